package rollup

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/downsample"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// An unreadable store opens no view while it is down.
type unreadable struct {
	*reference.Store
	down *atomic.Bool
}

func (u *unreadable) View(ctx context.Context) (store.View, error) {
	if u.down.Load() {
		return nil, errors.New("the store cannot be read")
	}
	return u.Store.View(ctx)
}

// While runs of a task fail, points arrive, in time and late. Then the roll-up is
// changed. The next run computes with the new query everything that the old one had
// still to compute.
func TestChangedTaskMissesNothing(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				h := newHarness(t)
				h.front = &unreadable{h.store, &down}
				h.restart(nil)
				h.start()
				defer func() { h.stop() }()
				h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
				time.Sleep(time.Hour + time.Second)
				down.Store(true)
				for range 5 {
					h.send("src", "a", 1, time.Now().UnixMilli())
					time.Sleep(time.Hour)
				}
				h.send("src", "a", 1, at(-48, 0, 0))
				down.Store(false)
				h.do(200, "PUT", "/api/v1/rollups/t", strings.Replace(taskJSON("t", hour, minute, ""), `"sum"`, `"max"`, 1))
				if restart {
					h.restart(nil)
					h.start()
				}
				time.Sleep(time.Hour + time.Minute)
				h.wantPoints("dst", `
{host=a,saved_from=src} 1999-12-30T00:00 1
{host=a,saved_from=src} 2000-01-01T01:00 1
{host=a,saved_from=src} 2000-01-01T02:00 1
{host=a,saved_from=src} 2000-01-01T03:00 1
{host=a,saved_from=src} 2000-01-01T04:00 1
{host=a,saved_from=src} 2000-01-01T05:00 1`)
			})
		})
	}
}

// TestFormer: only roll-ups that are no longer part of a task say from where a changed one computes:
// neither its other roll-ups, which may be behind, nor when the task was stored.
func TestFormer(t *testing.T) {
	task, err := parseTask(newHarness(t).scheduler.parser, []byte(taskJSON("t", hour, minute, "")), "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	marks := watermarks{storedAt: {UntilMS: 1, RunMS: 1}}
	for _, src := range task.sources() {
		marks[src.key] = downsample.Watermark{UntilMS: 2, RunMS: 2, HorizonMS: 90}
	}
	if mark, found := task.former(marks); found {
		t.Errorf("found %+v", mark)
	}
	marks["before"] = downsample.Watermark{UntilMS: 20, RunMS: 31, HorizonMS: 40}
	marks["long before"] = downsample.Watermark{UntilMS: 21, RunMS: 30, HorizonMS: 41}
	if mark, found := task.former(marks); !found || mark != (downsample.Watermark{UntilMS: 20, RunMS: 30, HorizonMS: 41}) {
		t.Errorf("found %t, %+v", found, mark)
	}
}

// A restart shortens the horizon. A point that arrived before, and was not late by the
// longer horizon, is in its result.
func TestShorterHorizonMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(2*time.Hour + time.Second)
		h.send("src", "a", 1, at(1, 45, 0))
		h.restart(func(c *Config, _ *query.Config) { c.LateHorizon = time.Minute })
		h.start()
		defer h.stop()
		time.Sleep(2 * time.Minute)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T01:45 1")
	})
}

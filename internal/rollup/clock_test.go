package rollup

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestClockSetBack: a clock that was hours ahead is corrected. Runs continue at once,
// and results are complete, both for later times and for the minutes in which the
// clock was ahead and points arrived, at this server or, unnoticed by it, at another
// one.
func TestClockSetBack(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ahead atomic.Int64
				h := newHarness(t)
				h.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				h.restart(nil)
				h.start()
				defer func() { h.stop() }()
				h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
				var want strings.Builder
				pass := func(minutes int) {
					for range minutes {
						time.Sleep(30 * time.Second)
						now := time.Now()
						h.send("src", "a", 1, now.UnixMilli())
						h.put("src", "b", 1, now.UnixMilli())
						time.Sleep(30 * time.Second)
						fmt.Fprintf(&want, "{host=%%s,saved_from=src} %s 1\n", now.UTC().Format("2006-01-02T15:04"))
					}
				}
				all := func() string {
					return strings.ReplaceAll(want.String(), "%s", "a") + strings.ReplaceAll(want.String(), "%s", "b")
				}
				time.Sleep(time.Millisecond) // runs come after points
				pass(10)
				ahead.Store(int64(5 * time.Hour))
				pass(10)
				ahead.Store(0)
				if restart {
					h.restart(nil)
					h.start()
				}
				time.Sleep(2 * time.Minute)
				h.wantPoints("dst", all())
				time.Sleep(time.Until(time.UnixMilli(at(0, 25, 0))))
				pass(10)
				time.Sleep(2 * time.Minute)
				h.wantPoints("dst", all())
			})
		})
	}
}

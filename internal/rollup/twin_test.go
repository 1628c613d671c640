package rollup

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/store"
	"varve/internal/store/reference"
)

// A halfHeard store applies each n-th Set, and reports that it failed.
type halfHeard struct {
	store.KeyValues
	sets, n int
}

func (h *halfHeard) Set(ctx context.Context, service, serviceKey, key, value string) error {
	err := h.KeyValues.Set(ctx, service, serviceKey, key, value)
	if h.sets++; h.n > 0 && h.sets%h.n == 0 {
		return errors.New("no answer")
	}
	return err
}

// TestTwin: two servers with the id of one say so, once and each of them, and say so again if it
// happens again. A server whose renewals are not always answered takes none of them for another
// server's.
func TestTwin(t *testing.T) { synctest.Test(t, testTwin) }

func testTwin(t *testing.T) {
	s := reference.New(nil)
	defer s.Close()
	node := func(name, host string, kv store.KeyValues) (*assignments, *bytes.Buffer) {
		var log bytes.Buffer
		return &assignments{values: kv, node: name, host: host, now: time.Now, log: slog.New(slog.NewTextHandler(&log, nil)), since: map[string]time.Time{}}, &log
	}
	rounds := func(n int, nodes ...*assignments) {
		for range n {
			for _, a := range nodes {
				_ = a.beat(t.Context(), []string{"t"})
				time.Sleep(beatEvery / time.Duration(len(nodes)))
			}
		}
	}
	const said = "another server has the id of this one"
	times := func(log *bytes.Buffer) int { return strings.Count(log.String(), said) }
	one, log := node("varve-a", "original", s)
	other, otherLog := node("varve-b", "b", s)
	lossy, lossyLog := node("varve-c", "c", &halfHeard{KeyValues: s, n: 3})
	rounds(5, one, other, lossy)
	if times(log)+times(otherLog)+times(lossyLog) > 0 {
		t.Errorf("different servers: %s%s%s", log, otherLog, lossyLog)
	}
	twin, twinLog := node("varve-a", "copy", s)
	rounds(5, one, twin)
	if times(log) != 1 || times(twinLog) != 1 || !strings.Contains(log.String(), "host=copy") || !strings.Contains(log.String(), "remove the file node-id") {
		t.Errorf("two with one id: %s%s", log, twinLog)
	}
	twin.resign()
	rounds(3, one)
	if times(log) != 1 {
		t.Errorf("one is left: %s", log)
	}
	rounds(3, one, twin)
	if times(log) != 2 {
		t.Errorf("again: %s", log)
	}
}

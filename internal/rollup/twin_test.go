package rollup

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
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

// A distant store takes a while for each read and write.
type distant struct{ store.KeyValues }

func (d distant) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	time.Sleep(5 * time.Millisecond)
	return d.KeyValues.Get(ctx, service, serviceKey, key)
}

func (d distant) Set(ctx context.Context, service, serviceKey, key, value string) error {
	time.Sleep(5 * time.Millisecond)
	return d.KeyValues.Set(ctx, service, serviceKey, key, value)
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
	one.values = &halfHeard{KeyValues: s, n: 2}
	rounds(10, one, twin)
	if times(log) != 1 || times(twinLog) != 1 {
		t.Errorf("still two, and not each renewal succeeds: %s%s", log, twinLog)
	}
	one.values = s
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

// TestTwinInStep: of two servers with one id that renew it at the same moment each time, one says so.
func TestTwinInStep(t *testing.T) { synctest.Test(t, testTwinInStep) }

func testTwinInStep(t *testing.T) {
	s := reference.New(nil)
	defer s.Close()
	var logs [2]bytes.Buffer
	var nodes [2]*assignments
	for i, host := range []string{"original", "copy"} {
		nodes[i] = &assignments{values: distant{s}, node: "varve-a", host: host, now: time.Now, log: slog.New(slog.NewTextHandler(&logs[i], nil)), since: map[string]time.Time{}}
	}
	for range 5 {
		var both sync.WaitGroup
		for _, a := range nodes {
			both.Go(func() { _ = a.beat(t.Context(), nil) })
		}
		both.Wait()
		time.Sleep(beatEvery)
	}
	if logs[0].Len()+logs[1].Len() == 0 {
		t.Error("neither has noticed the other")
	}
}

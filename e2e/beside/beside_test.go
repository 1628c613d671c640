package beside

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var loadFlag = flag.Duration("beside.load", 8*time.Second, "how long both are written to")

const (
	oldAge = 60 * 24 * time.Hour // of points in rows that are finished
	hosts  = 8
)

var loaded = []string{"load.a", "load.b", "load.c"}

// valueOf returns the only value that a point of the load can have.
func valueOf(s series, ms int64) int64 {
	v := ms*31 + int64(len(s.metric))
	for _, c := range s.metric + s.host {
		v = v*131 + int64(c)
	}
	return v % 1_000_000_007
}

// A load has the points that were sent to both servers.
type load struct {
	mu   sync.Mutex
	sent content // and acknowledged
	own  content // of these, by Varve
}

func (l *load) acknowledged(c content, byVarve bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, times := range c {
		for ms, value := range times {
			l.sent.add(s, ms, value)
			if byVarve {
				l.own.add(s, ms, value)
			}
		}
	}
}

// owned returns what Varve has acknowledged so far.
func (l *load) owned() content {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := content{}
	for s, times := range l.own {
		c[s] = maps.Clone(times)
	}
	return c
}

// TestBeside: under load, each server finds all points that were sent to
// either, and points that either has deleted are gone for both.
func TestBeside(t *testing.T) {
	varve, kairos := startBoth(t)
	l := &load{sent: content{}, own: content{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	var batches, answers atomic.Int64
	now := time.Now().UnixMilli()
	for lane := range int64(4) {
		n := []*node{varve, kairos}[lane%2]
		running.Go(func() {
			for round := int64(0); ctx.Err() == nil; round++ {
				c := batch(now, lane, round)
				// The end of the load must not leave writes unacknowledged.
				if err := n.write(context.WithoutCancel(ctx), c); err != nil {
					t.Error(err)
					return
				}
				l.acknowledged(c, n == varve)
				batches.Add(1)
				pause(ctx, 30*time.Millisecond)
			}
		})
	}
	for _, n := range []*node{varve, kairos} {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := l.look(ctx, n, n == varve); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				answers.Add(1)
				pause(ctx, 100*time.Millisecond)
			}
		})
	}
	end := time.After(*loadFlag)
	t.Run("Varve deletes", func(t *testing.T) { deletes(t, varve, kairos, varve) })
	t.Run("KairosDB deletes", func(t *testing.T) { deletes(t, kairos, kairos, varve) })
	<-end
	stop()
	running.Wait()
	t.Logf("%d batches with %d points to both, %d answers under load", batches.Load(), l.sent.len(), answers.Load())
	varve.await(t, "all", l.sent, loaded...)
	kairos.await(t, "all", l.sent, loaded...)
	for _, n := range []*node{varve, kairos} {
		one := content{}
		for s, times := range l.sent {
			if s.host == "h3" {
				one[s] = times
			}
		}
		got, err := n.read(t.Context(), `{"host":"h3"}`, loaded...)
		if err != nil {
			t.Fatal(err)
		}
		if d := got.differs(one); d != "" {
			t.Errorf("%s, asked for one host: %s", n.name, d)
		}
	}
}

// batch returns the points of a round. Each lane has times of its own; all
// lanes share the series.
func batch(now, lane, round int64) content {
	c := content{}
	for i, metric := range loaded {
		for h := range hosts {
			s := series{metric, fmt.Sprintf("h%d", h)}
			recent := now - 3_600_000 + round*40 + lane*10 + int64(i)
			old := recent - oldAge.Milliseconds()
			c.add(s, recent, valueOf(s, recent))
			c.add(s, old, valueOf(s, old))
		}
	}
	return c
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// look reads all points. It fails if there is a point that was not sent, or if
// Varve lacks a point that it had acknowledged.
func (l *load) look(ctx context.Context, n *node, promised bool) error {
	before := l.owned()
	got, err := n.read(ctx, "{}", loaded...)
	if err != nil {
		return err
	}
	for s, times := range got {
		for ms, value := range times {
			if want := valueOf(s, ms); value != want {
				return fmt.Errorf("%s: %v at %d is %d, want %d", n.name, s, ms, value, want)
			}
		}
	}
	if !promised {
		return nil
	}
	for s, times := range before {
		for ms := range times {
			if _, ok := got[s][ms]; !ok {
				return fmt.Errorf("%s acknowledged %v at %d, and does not show it", n.name, s, ms)
			}
		}
	}
	return nil
}

// deletes makes one server delete points that both have written, in parts and
// then the whole metric. After that both write again.
func deletes(t *testing.T, deleter, kairos, varve *node) {
	metric := "gone." + deleter.name
	now := time.Now().UnixMilli()
	old := now - oldAge.Milliseconds()
	a, b, c := series{metric, "a"}, series{metric, "b"}, series{metric, "c"}
	want := content{}
	write := func(n *node, s series, times ...int64) {
		t.Helper()
		part := content{}
		for _, ms := range times {
			part.add(s, ms, valueOf(s, ms))
			want.add(s, ms, valueOf(s, ms))
		}
		if err := n.write(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	both := func(what string) {
		t.Helper()
		varve.await(t, what, want, metric)
		kairos.await(t, what, want, metric)
	}
	remove := func(body string) {
		t.Helper()
		if _, err := deleter.do(t.Context(), http.MethodPost, "/api/v1/datapoints/delete", body); err != nil {
			t.Fatal(err)
		}
	}
	write(varve, a, now, old)
	write(kairos, a, now+1, old+1)
	write(varve, b, old, old+2)
	write(kairos, b, old+1, old+3)
	write(varve, c, old, old+2, now)
	write(kairos, c, old+1, old+3, now+1)
	both("written by both")

	remove(fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q,"tags":{"host":"b"}}]}`, metric))
	delete(want, b)
	both("a series deleted")

	remove(fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":%q,"tags":{"host":"c"}}]}`, old+1, old+2, metric))
	delete(want[c], old+1)
	delete(want[c], old+2)
	both("a stretch of time deleted")

	if _, err := deleter.do(t.Context(), http.MethodDelete, "/api/v1/metric/"+metric, ""); err != nil {
		t.Fatal(err)
	}
	clear(want)
	both("the metric deleted")

	// KairosDB remembers index rows as written even after it has deleted them
	// itself. Varve writes them again.
	time.Sleep(3 * time.Second)
	write(varve, a, now+10)
	both("written again by Varve")
	write(kairos, a, now+11)
	both("written again by KairosDB")
}

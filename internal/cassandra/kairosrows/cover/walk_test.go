package cover

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
)

// A walker is a server that walks when its turn comes, by a clock that a test sets.
type walker struct {
	*Coverer
	t   *testing.T
	now time.Time
}

func (b *bench) walker(t *testing.T, source Source) *walker {
	t.Helper()
	w := &walker{t: t, now: time.Now()}
	c, err := New(b.KS, Config{Interval: time.Hour}, source, Options{Now: func() time.Time { return w.now }}) // at a rate of 0 nothing runs by itself
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	w.Coverer = c
	return w
}

func count(t *testing.T, c prometheus.Counter) int {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.GetCounter().GetValue())
}

// wants gives w its turn: whether it walks, and when it looks again.
func (w *walker) wants(walks bool, next time.Duration) {
	w.t.Helper()
	before := count(w.t, w.walks)
	if got := w.turn(w.t.Context()); got != next || (count(w.t, w.walks) > before) != walks {
		w.t.Errorf("walks %d times, next look in %v; want %t, %v", count(w.t, w.walks)-before, got, walks, next)
	}
}

// TestOneOfTwoWalks: of two servers that share a keyspace one looks at all metrics. The other
// one takes its place when it dies, and is not stopped by a clock that is far ahead.
func TestOneOfTwoWalks(t *testing.T) {
	b := newBench(t, true)
	metric := b.Name("m")
	b.Exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), metric, []byte{0})
	add := func(row int) {
		b.Stamp++
		b.KairosRow(b.Stamp, metric, keyspacetest.CityTime(row), model.MustTags("host", "a"))
	}
	first, second := b.walker(t, b.reader), b.walker(t, b.reader)
	add(0)
	first.wants(true, time.Hour)
	if n := count(t, first.passes); n != 1 {
		t.Fatalf("the first has covered %d partitions, want 1", n)
	}
	add(1)
	b.forget()
	second.source = b.reader // which remembers nothing
	second.now = first.now.Add(20 * time.Minute)
	second.wants(false, 40*time.Minute)
	if n := count(t, second.passes); n != 0 {
		t.Errorf("the second has covered %d partitions in the turn of the first", n)
	}
	second.now = first.now.Add(-10 * time.Minute) // its clock is behind
	second.wants(false, 70*time.Minute)

	second.now = first.now.Add(time.Hour) // the first is gone
	second.wants(true, time.Hour)
	if n := count(t, second.passes); n != 1 {
		t.Errorf("the second has covered %d partitions, want 1", n)
	}
	first.now = second.now.Add(time.Second)
	first.wants(false, time.Hour-time.Second)

	second.now = first.now.Add(1000 * time.Hour) // a wrong clock
	second.wants(true, time.Hour)
	first.wants(true, time.Hour)
}

// A slowSource has three metrics, and takes a while for each.
type slowSource struct{ each func() }

func (s slowSource) Metrics(context.Context) ([]string, error) { return []string{"a", "b", "c"}, nil }
func (s slowSource) RowTimes(context.Context, string) ([]rowkey.RowTime, error) {
	s.each()
	return nil, nil
}

// TestLongWalk: while a server walks for longer than an interval, no other one begins.
func TestLongWalk(t *testing.T) {
	b := newBench(t, true)
	second := b.walker(t, b.reader)
	var first *walker
	first = b.walker(t, slowSource{func() {
		first.now = first.now.Add(30 * time.Minute)
		second.now = first.now
		second.wants(false, 30*time.Minute)
	}})
	first.wants(true, time.Hour)
}

// An awaySource answers nothing.
type awaySource struct{ Source }

func (awaySource) Metrics(context.Context) ([]string, error) { return nil, errors.New("away") }

// TestFailedWalk: a walk that fails is repeated soon, and later if it fails again.
func TestFailedWalk(t *testing.T) {
	b := newBench(t, true)
	w := b.walker(t, awaySource{})
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		w.wants(true, pause*time.Minute)
	}
	w.source = slowSource{func() {}}
	w.wants(true, time.Hour)
	w.source = awaySource{}
	w.wants(true, time.Minute)
}

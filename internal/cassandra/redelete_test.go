package cassandra

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
)

// A fakeDeleter has recorded deletions, and keeps those that are repeated.
type fakeDeleter struct {
	recorded []recorded
	fail     error
	again    func() // nil, or called at the second repeat

	mu       sync.Mutex
	repeated []string
}

func (d *fakeDeleter) Recorded(_ context.Context, fromMS int64, f func(int64, store.Deletion) error) error {
	for _, r := range d.recorded {
		if r.stampMS < fromMS {
			continue
		}
		if err := f(r.stampMS, r.Deletion); err != nil {
			return err
		}
	}
	return nil
}

func (d *fakeDeleter) Cuts() bool { return true }

// Place has rows of 100 ms, and forgets the last digit of a time from 100 on.
func (d *fakeDeleter) Place(ms int64, r model.TimeRange) (rowTimeMS, storedMS int64, deleted bool) {
	if rowTimeMS = ms - ms%100; ms >= 100 {
		ms -= ms % 10
	}
	return rowTimeMS, ms, r.Contains(ms)
}

func (d *fakeDeleter) DeleteWritten(_ context.Context, stampMS int64, metric string, written []layout.Written) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	parts := []string{fmt.Sprintf("%d %s", stampMS, metric)}
	for _, w := range written {
		parts = append(parts, fmt.Sprintf("%d-%d", w.Times.StartMS, w.Times.EndMS))
	}
	d.repeated = append(d.repeated, strings.Join(parts, " "))
	if d.again != nil && len(d.repeated) == 2 {
		d.again()
	}
	return d.fail
}

type takesAll struct{}

func (takesAll) Write(context.Context, *spool.Generation) error { return nil }

// Deletions are repeated if they are later than samples that they select, for the times of
// these samples only.
func TestRedelete(t *testing.T) {
	host := func(value string) []model.Matcher { return model.Matchers([]model.Tag{{Name: "host", Value: value}}) }
	within := func(from, to int64) model.TimeRange { return model.TimeRange{StartMS: from, EndMS: to} }
	x := model.Series{Metric: "m", Tags: model.MustTags("host", "x"), Type: model.TypeLong}
	double := x
	double.Type = model.TypeDouble
	unavailable := &store.UnavailableError{Reason: "away"}
	for _, test := range []struct {
		name  string
		stamp int64 // samples 10, 20, 30, 119 of m{host=x} have the stamps 1000, 2000, 3000, 11900
		del   store.Deletion
		want  string // but the stamp
	}{
		{"before all", 999, store.Deletion{Metric: "m", Range: model.AllTime}, ""},
		{"the first", 1500, store.Deletion{Metric: "m", Range: model.AllTime}, "m 10-10"},
		{"at the same time", 2000, store.Deletion{Metric: "m", Range: model.AllTime}, "m 10-20"},
		{"after all", 9000, store.Deletion{Metric: "m", Range: model.AllTime}, "m 10-30"},
		{"in two rows", 12000, store.Deletion{Metric: "m", Range: model.AllTime}, "m 10-30 110-110"},
		{"the time as it is read", 12000, store.Deletion{Metric: "m", Range: within(110, 112)}, "m 110-110"},
		{"the time as it came", 12000, store.Deletion{Metric: "m", Range: within(112, 120)}, ""},
		{"a range", 9000, store.Deletion{Metric: "m", Range: within(15, 25)}, "m 20-20"},
		{"another range", 9000, store.Deletion{Metric: "m", Range: within(31, 90)}, ""},
		{"another metric", 9000, store.Deletion{Metric: "n", Range: model.AllTime}, ""},
		{"its tag", 9000, store.Deletion{Metric: "m", Matchers: host("x"), Range: model.AllTime}, "m 10-30"},
		{"another tag", 9000, store.Deletion{Metric: "m", Matchers: host("y"), Range: model.AllTime}, ""},
		{"this series", 9000, store.DeletionOf(x, model.AllTime), "m 10-30"},
		{"another series", 9000, store.DeletionOf(double, model.AllTime), ""},
	} {
		for _, fail := range []error{nil, errors.New("cancelled"), unavailable} {
			var log bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			d := &fakeDeleter{recorded: []recorded{{test.stamp, test.del}}, fail: fail}
			waits := fail == unavailable && test.want != ""
			if waits {
				d.again = cancel
			}
			sink := &redeleter{sink: takesAll{}, deleter: d, log: slog.New(slog.NewTextHandler(&log, nil))}
			now := int64(0)
			s, err := spool.Open(vfs.NewMem(), "spool", spool.DefaultConfig(), spool.Options{Now: func() time.Time { return time.UnixMilli(now) }})
			if err != nil {
				t.Fatal(err)
			}
			for _, ms := range []int64{10, 20, 30, 119} {
				now = 100 * ms
				ref, err := s.Create(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				var b store.Batch
				b.Reset(s.Epoch())
				b.AddLong(ref, ms, 1, 0)
				if err := s.Append(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
			}
			s.Start(sink)
			_, err = s.Flush(ctx)
			cancel()
			if waits != (err != nil) {
				t.Errorf("%s, %v: flush: %v", test.name, fail, err)
			}
			var partial *spool.PartialError
			if err := s.Health().SinkError; err != nil && !errors.As(err, &partial) {
				t.Errorf("%s, %v: later generations wait too: %v", test.name, fail, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			var want []string
			if test.want != "" {
				want = []string{fmt.Sprintf("%d %s", test.stamp, test.want)}
			}
			if got := slices.Compact(d.repeated); !slices.Equal(got, want) {
				t.Errorf("%s, %v: repeated %q, want %q", test.name, fail, got, want)
			}
			if told := strings.Contains(log.String(), "cannot be repeated"); told != (test.want != "" && fail != nil && fail != unavailable) {
				t.Errorf("%s, %v: the log has %s", test.name, fail, &log)
			}
		}
	}
}

// A deleted sample does not come back because the index cannot be read when the delete
// is repeated: so many deleted rows may be in it that Cassandra gives up.
func TestRedeleteAmongTombstones(t *testing.T) {
	f := newFailingStore(t, func(c *settings) { c.Spool.Linger = time.Hour })
	const at = 1501672887988
	put(t, f.store, "m", "before", map[int64]int64{at: 1})
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	put(t, f.store, "m", "x", map[int64]int64{at: 1})
	laterOn()
	if err := f.beside.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	f.node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		for _, table := range []string{"row_keys ", "row_key_time_index ", "varve_row_index "} {
			if strings.HasPrefix(r.Statements[0].Text, "SELECT") && strings.Contains(r.Statements[0].Text, table) {
				return cqltest.Tombstones
			}
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := f.store.Flush(ctx)
	f.node.Mend()
	if err != nil {
		if err := f.flush(); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "after the delete", answer(t, f.beside, "m", all()))
}

// A delete that cannot be repeated yet does not leave a job behind with each attempt.
func TestRedeleteMakesNoJobs(t *testing.T) {
	f := newFailingStore(t, func(c *settings) { c.Spool.Linger, c.Delete.JobRows = time.Hour, 1 })
	const at = 1501672887988
	put(t, f.store, "m", "x", map[int64]int64{at: 1})
	laterOn()
	if err := f.beside.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	f.node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		if strings.HasPrefix(r.Statements[0].Text, "DELETE") && strings.Contains(r.Statements[0].Text, "data_points") {
			return cqltest.Unavailable
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	f.store.Flush(ctx)
	jobs, err := f.beside.Deletions(t.Context())
	if err != nil || len(jobs) > 1 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	f.node.Mend()
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	same(t, "after the delete", answer(t, f.beside, "m", all()))
}

// TestDeleteOfTextThatIsNotUTF8: a name that is not UTF-8 cannot be recorded. Other servers would
// delete from the metric with the name that JSON makes of it.
func TestDeleteOfTextThatIsNotUTF8(t *testing.T) {
	f := newFailingStore(t, func(c *settings) { c.Spool.Linger = time.Hour })
	const at, metric = 1501672887988, "temp\ufffd"
	put(t, f.store, metric, "x", map[int64]int64{at: 1})
	want := answer(t, f.store, metric, all())
	laterOn()
	for _, del := range []store.Deletion{
		{Metric: "temp\xb0", Range: model.AllTime},
		{Metric: metric, Matchers: []model.Matcher{{Tag: "host", Values: []string{"\xff"}}}, Range: model.AllTime},
		{Metric: metric, Matchers: []model.Matcher{{Tag: "\xff", Values: []string{"x"}}}, Range: model.AllTime},
	} {
		if err := f.beside.Delete(t.Context(), del); !errors.As(err, new(*store.InputError)) {
			t.Errorf("%+v: %v", del, err)
		}
	}
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	same(t, "after the deletes", answer(t, f.store, metric, all()), want...)
}

// The metrics of a delete that names as many as a request may are found at once: each once.
func TestMetricsOfManyDeletions(t *testing.T) {
	const n = 66_000
	deletions := make([]store.Deletion, 2*n)
	for i := range deletions {
		deletions[i].Metric = fmt.Sprintf("m%05d", i%n)
	}
	began := time.Now()
	metrics := metricsOf(deletions)
	if took := time.Since(began); took > 2*time.Second { // compared with each other: more than 10 s
		t.Errorf("it took %v", took)
	}
	if len(metrics) != n || metrics[0] != "m00000" || metrics[n-1] != "m65999" {
		t.Errorf("%d metrics", len(metrics))
	}
}

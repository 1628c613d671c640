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

	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
)

// A fakeDeleter has recorded deletions, and keeps those that are repeated.
type fakeDeleter struct {
	recorded []recorded
	fail     error

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

func (d *fakeDeleter) Delete(_ context.Context, stampMS int64, deletions ...store.Deletion) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, del := range deletions {
		d.repeated = append(d.repeated, fmt.Sprintf("%d %s %d-%d", stampMS, del.Metric, del.Range.StartMS, del.Range.EndMS))
	}
	return d.fail
}

type takesAll struct{}

func (takesAll) Write(context.Context, *spool.Generation) error { return nil }

// Deletions are repeated that are later than samples which they mean, for the times
// of these samples, and no others.
func TestRedelete(t *testing.T) {
	host := func(value string) []model.Matcher { return model.Matchers([]model.Tag{{Name: "host", Value: value}}) }
	within := func(from, to int64) model.TimeRange { return model.TimeRange{StartMS: from, EndMS: to} }
	x := model.Series{Metric: "m", Tags: model.MustTags("host", "x"), Type: model.TypeLong}
	double := x
	double.Type = model.TypeDouble
	unavailable := &store.UnavailableError{Reason: "away"}
	for _, test := range []struct {
		name  string
		stamp int64 // samples 10, 20, 30 of m{host=x} have the stamps 1000, 2000, 3000
		del   store.Deletion
		want  string // but the stamp
	}{
		{"before all", 999, store.Deletion{Metric: "m", Range: model.AllTime}, ""},
		{"the first", 1500, store.Deletion{Metric: "m", Range: model.AllTime}, "m 10-10"},
		{"at the same time", 2000, store.Deletion{Metric: "m", Range: model.AllTime}, "m 10-20"},
		{"after all", 9000, store.Deletion{Metric: "m", Range: model.AllTime}, "m 10-30"},
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
			d := &fakeDeleter{recorded: []recorded{{test.stamp, test.del}}, fail: fail}
			sink := &redeleter{takesAll{}, d, slog.New(slog.NewTextHandler(&log, nil))}
			now := int64(0)
			s, err := spool.Open(vfs.NewMem(), "spool", spool.DefaultConfig(), spool.Options{Now: func() time.Time { return time.UnixMilli(now) }})
			if err != nil {
				t.Fatal(err)
			}
			for _, ms := range []int64{10, 20, 30} {
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
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if fail == unavailable && test.want != "" {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			}
			_, err = s.Flush(ctx)
			cancel()
			if waits := fail == unavailable && test.want != ""; waits != (err != nil) {
				t.Errorf("%s, %v: flush: %v", test.name, fail, err)
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

package query

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/store"
	"varve/internal/units"
)

// A delete that the store has recorded gives its slot to others.
func TestRecordedDeleteLeavesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, DefaultConfig())
		end := make(chan struct{})
		var all sync.WaitGroup
		for range 3 * max(leastDeletes, runtime.GOMAXPROCS(0)) {
			all.Go(func() {
				began, err := f.Delete(t.Context(), "", func(ctx context.Context) error {
					parts := store.RecordedParts(ctx, 2)
					store.Recorded(parts[0])
					store.Recorded(parts[0])
					store.Recorded(parts[1])
					<-end
					return nil
				})
				if !began || err != nil {
					t.Errorf("began %t, %v", began, err)
				}
			})
		}
		synctest.Wait()
		if began, err := f.Delete(t.Context(), "", func(context.Context) error { return nil }); !began || err != nil {
			t.Errorf("beside recorded ones: began %t, %v", began, err)
		}
		if n := f.deletes.waiting.Load(); n != 0 {
			t.Errorf("%d deletes wait", n)
		}
		close(end)
		all.Wait()
		if f.deletes.taken != 0 {
			t.Errorf("%d slots are taken", f.deletes.taken)
		}
	})
}

// Few deletes run at once. Those beyond wait, and are refused if too many do, or if no slot
// becomes free in time: then nothing was deleted, and the client is told so.
func TestDeletesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxQueued = 2
		f := newFixture(t, config)
		end, fault := make(chan struct{}), errors.New("the disk is gone")
		slots := max(leastDeletes, runtime.GOMAXPROCS(0))
		type result struct {
			began bool
			err   error
		}
		running, waiting := make(chan result, slots), make(chan result, 2)
		remove := func(results chan result, f *fixture, err error) {
			began, e := f.Delete(t.Context(), "", func(context.Context) error { <-end; return err })
			results <- result{began, e}
		}
		for range slots {
			go remove(running, f, fault)
		}
		synctest.Wait()
		go remove(waiting, f, nil)
		go remove(waiting, f, nil)
		synctest.Wait()
		var limit *store.LimitError
		if began, err := f.Delete(t.Context(), "", func(context.Context) error { t.Error("a refused delete runs"); return nil }); began || !errors.As(err, &limit) || !limit.Busy || limit.Limit != "waiting deletes" || limit.Need != 3 || limit.Max != 2 {
			t.Errorf("one more: began %t, %v", began, err)
		}
		began := time.Now()
		for range 2 {
			if got := <-waiting; got.began || !errors.As(got.err, &limit) || !limit.Busy || limit.Limit != "query.max_wait" || limit.Max != config.MaxWait.Milliseconds() {
				t.Errorf("one that waits: began %t, %v", got.began, got.err)
			}
		}
		if waited := time.Since(began); waited != config.MaxWait {
			t.Errorf("waited for %v", waited)
		}
		if n := counted(t, f.deletes.metrics.deletesRefused); n != 3 {
			t.Errorf("%v were refused", n)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		left := errors.New("the client has left")
		cancel(left)
		if began, err := f.Delete(ctx, "", func(context.Context) error { return nil }); began || !errors.Is(err, left) {
			t.Errorf("began %t, %v", began, err)
		}
		if n := counted(t, f.deletes.metrics.deletesRefused); n != 3 {
			t.Errorf("a client that left counts as refused: %v", n)
		}
		go remove(waiting, f, nil)
		synctest.Wait()
		close(end)
		for range slots {
			if got := <-running; !got.began || got.err != fault {
				t.Errorf("one that ran: began %t, %v", got.began, got.err)
			}
		}
		if got := <-waiting; !got.began || got.err != nil {
			t.Errorf("one that waited: began %t, %v", got.began, got.err)
		}
		for range 2 * slots { // slots are given back
			if began, err := f.Delete(t.Context(), "", func(context.Context) error { return nil }); !began || err != nil {
				t.Fatalf("after that: began %t, %v", began, err)
			}
		}
	})
}

// A partial store is asked for parts and for what is stored now as the request says.
type partial struct {
	fails   error
	asked   []string
	missing error
}

func (p *partial) View(context.Context) (store.View, error) { return &partialView{of: p}, p.fails }

type partialView struct {
	store.View
	of *partial
}

func (v *partialView) AllowPartial()  { v.of.asked = append(v.of.asked, "partial") }
func (v *partialView) ReadCurrent()   { v.of.asked = append(v.of.asked, "current") }
func (v *partialView) Missing() error { return v.of.missing }
func (v *partialView) Close() error   { v.of.asked = append(v.of.asked, "close"); return nil }

func TestSessionAsksTheStore(t *testing.T) {
	for _, tc := range []struct {
		q    Request
		want []string
	}{
		{Request{}, []string{"close"}},
		{Request{Partial: true}, []string{"partial", "close"}},
		{Request{Current: true}, []string{"current", "close"}},
		{Request{Current: true, Partial: true}, []string{"current", "partial", "close"}},
	} {
		p := &partial{missing: errors.New("a part is away")}
		f := fixtureOver(t, p, DefaultConfig())
		s, err := f.Begin(t.Context(), tc.q)
		if err != nil {
			t.Fatal(err)
		}
		if s.Missing() != p.missing {
			t.Errorf("missing: %v", s.Missing())
		}
		s.Close(nil)
		s.Close(nil)
		if !slices.Equal(p.asked, tc.want) {
			t.Errorf("%+v: asked for %v, want %v", tc.q, p.asked, tc.want)
		}
	}
	f := newFixture(t, DefaultConfig())
	s, err := f.Begin(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(nil)
	if s.Missing() != nil {
		t.Errorf("a store of one part lacks some: %v", s.Missing())
	}
}

// A store that cannot be opened fails the query, which gives back its slot.
func TestQueryOfAStoreThatIsAway(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent, config.MaxQueued = 1, 0
	p := &partial{fails: &store.UnavailableError{Reason: "away"}}
	f := fixtureOver(t, p, config)
	for range 3 {
		if _, err := f.Begin(t.Context(), Request{}); !errors.Is(err, p.fails) {
			t.Fatal(err)
		}
	}
	if n := counted(t, f.metrics.queries.WithLabelValues("failed")); n != 3 || len(f.Running()) != 0 || f.pool.inUse() != 0 {
		t.Errorf("%v failed, %d run, %d bytes are held", n, len(f.Running()), f.pool.inUse())
	}
}

// The list of running queries says what is worked on.
func TestRunningQueries(t *testing.T) {
	config := DefaultConfig()
	config.Workers, config.MaxSamples = 1, 77
	f := newFixture(t, config)
	start := time.Unix(1_700_000_000, 0)
	f.now = func() time.Time { return start }
	var all []*Session
	for i := range 3 {
		s, err := f.Begin(t.Context(), Request{Text: fmt.Sprint("query ", i), Client: "c", Metric: "first"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(nil)
		all = append(all, s)
	}
	all[1].WorkOn(2, "third")
	list := f.Running()
	if len(list) != 3 || list[0].Text != "query 0" || list[2].Text != "query 2" || list[0].Metric != "first" || list[0].Index != 0 || !list[0].Start.Equal(start) || list[0].Client != "c" {
		t.Fatalf("%+v", list)
	}
	if list[1].Index != 2 || list[1].Metric != "third" {
		t.Errorf("%+v", list[1])
	}
	if s := all[0]; !s.Started().Equal(start) || s.Workers() != 1 || s.MaxSamples() != 77 {
		t.Errorf("%v, %d workers, %d samples", s.Started(), s.Workers(), s.MaxSamples())
	}
	if !f.Cancel(list[1].ID) || f.Cancel(list[2].ID+1) || context.Cause(all[1].Context()) != ErrCancelled || all[0].Context().Err() != nil {
		t.Error("not the one was cancelled that was meant")
	}
}

// Queries are counted by how they ended.
func TestOutcomes(t *testing.T) {
	limit := &store.LimitError{Limit: "query.max_samples"}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, "ok"},
		{&store.LimitError{Limit: "query.max_concurrent", Busy: true}, "busy"},
		{limit, "limit"},
		{&store.LimitError{Limit: "query.timeout"}, "timeout"},
		{&store.InputError{Reason: "x"}, "input"},
		{&ComputeError{Reason: "x"}, "input"},
		{&principal.ForbiddenError{Metric: "x"}, "input"},
		{ErrCancelled, "cancelled"},
		{context.Canceled, "cancelled"},
		{context.DeadlineExceeded, "failed"},
		{errors.New("x"), "failed"},
	} {
		if got := outcome(tc.err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
		if tc.err != nil {
			if got := outcome(fmt.Errorf("read: %w", tc.err)); got != tc.want {
				t.Errorf("wrapped %v: %s, want %s", tc.err, got, tc.want)
			}
		}
	}
	if got := (&ComputeError{Reason: "no such thing"}).Error(); got != "no such thing" {
		t.Error(got)
	}
}

// broken fails the n-th series or page of names.
type broken struct {
	*fixture
	selects, names int // left until one fails
}

var errBroken = errors.New("the store is out of order")

func (b *broken) View(ctx context.Context) (store.View, error) {
	v, err := b.store.View(ctx)
	return &brokenView{v, b}, err
}

type brokenView struct {
	store.View
	of *broken
}

func (v *brokenView) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	return func(yield func(store.Series, error) bool) {
		for s, err := range v.View.Select(ctx, sel) {
			if v.of.selects--; v.of.selects == 0 {
				yield(store.Series{}, errBroken)
				return
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

func (v *brokenView) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	if v.of.names--; v.of.names == 0 {
		return nil, false, errBroken
	}
	return v.View.Names(ctx, q)
}

// Names and lists of series are complete, or the query fails.
func TestNamesOfABrokenStore(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	for i := range 3 {
		f.put(fmt.Sprint("m", i), model.MustTags("h", "1"), sample{1, 1})
		f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{1, 1})
	}
	for name, list := range map[string]struct {
		calls int // of Select, or of Names if negative
		do    func(*Session) (int, error)
	}{
		"metrics": {6, func(s *Session) (int, error) {
			names, _, err := s.Names(store.NamesQuery{Kind: store.MetricNames}, NamesFilter{Range: model.AllTime})
			return len(names) + 2, err
		}},
		"pages of metrics": {-1, func(s *Session) (int, error) {
			names, _, err := s.Names(store.NamesQuery{Kind: store.MetricNames}, NamesFilter{Range: model.AllTime})
			return len(names) - 3, err
		}},
		"a page": {-1, func(s *Session) (int, error) {
			names, _, err := s.NamesPage(store.NamesQuery{Kind: store.MetricNames})
			return len(names) - 3, err
		}},
		"tags": {3, func(s *Session) (int, error) {
			names, _, err := s.Names(store.NamesQuery{Kind: store.TagValues, Metric: "m"}, NamesFilter{Range: model.AllTime})
			return len(names), err
		}},
		"series": {3, func(s *Session) (int, error) {
			l := s.Lease()
			defer l.Release()
			list, err := s.Collect(store.Selection{Metric: "m", Range: model.AllTime}, &l, nil)
			return list.Len(), err
		}},
	} {
		most := max(list.calls, -list.calls)
		for n := range most + 2 {
			b := &broken{fixture: f}
			if list.calls > 0 {
				b.selects = n
			} else {
				b.names = n
			}
			on := fixtureOver(t, b, DefaultConfig())
			s := on.session(t, t.Context())
			got, err := list.do(s)
			failed := (list.calls > 0 && n > 0 && b.selects <= 0 || list.calls < 0 && n > 0 && b.names <= 0)
			if failed && !errors.Is(err, errBroken) {
				t.Errorf("%s, call %d fails: %d, %v", name, n, got, err)
			}
			if !failed && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			s.Close(nil)
		}
	}
}

// Lists of names hold memory, which is bounded and given back at the end.
func TestMemoryOfNames(t *testing.T) {
	config := DefaultConfig()
	config.MaxMemory = 64 * units.KiB
	f := newFixture(t, config)
	long := strings.Repeat("0123456789", 6)
	for i := range 1200 {
		f.put(fmt.Sprintf("%s%d", long, i), model.MustTags("h", "1"), sample{1, 1})
	}
	s := f.session(t, t.Context())
	var limit *store.LimitError
	if names, _, err := s.Names(store.NamesQuery{Kind: store.MetricNames}, NamesFilter{Range: model.AllTime}); !errors.As(err, &limit) || limit.Limit != "query.max_memory" {
		t.Errorf("%d names: %v", len(names), err)
	}
	s.Close(nil)
	if n := f.pool.inUse(); n != 0 {
		t.Errorf("%d bytes are held at rest", n)
	}
	s = f.session(t, t.Context())
	defer s.Close(nil)
	if names, more, err := s.Names(store.NamesQuery{Kind: store.MetricNames, Limit: 5}, NamesFilter{Range: model.AllTime}); err != nil || len(names) != 5 || !more {
		t.Errorf("%q, more %t, %v", names, more, err)
	}
}

// A file of active queries that cannot be opened or read is an error.
func TestActiveFileThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "active")} {
		if _, _, err := OpenActiveFile(path, 2, nil); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	if _, err := readActive(failing{}); err == nil {
		t.Error("a file that breaks off is no error")
	}
	path := filepath.Join(dir, "active")
	if err := os.WriteFile(path, []byte(`{"start":"2026-05-04T12:00:00Z","client":"c","query":"half a slot"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f, left, err := OpenActiveFile(path, 2, nil)
	if err != nil || len(left) != 0 {
		t.Fatalf("%v, %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 2*activeSlot {
		t.Errorf("%v, %v", info, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// The tags of series hold memory, also of fewer series than are looked at between two checks: beyond the limit the
// query fails, and names no tags.
func TestMemoryOfTags(t *testing.T) {
	config := DefaultConfig()
	config.MaxMemory = 64 * units.KiB
	f := newFixture(t, config)
	for i := range lookTags - 1 {
		f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{1, 1})
	}
	f.put("one", model.MustTags("h", "1"), sample{1, 1})
	var limit *store.LimitError
	for name, list := range map[string]func(*Session, *Lease) (int, error){
		"selected": func(s *Session, l *Lease) (int, error) {
			tags, err := s.SelectTags(store.Selection{Metric: "m", Range: model.AllTime}, l)
			return len(tags), err
		},
		"beside": func(s *Session, l *Lease) (int, error) {
			series := make([]store.Series, lookTags-1)
			for i := range series {
				series[i].Tags = model.MustTags("h", fmt.Sprint(i), "name", fmt.Sprint(i))
			}
			tags, err := s.TagValuesOf(series, l)
			return len(tags), err
		},
		"names": func(s *Session, _ *Lease) (int, error) {
			names, _, err := s.Names(store.NamesQuery{Kind: store.TagValues, Metric: "m"}, NamesFilter{Range: model.AllTime})
			return len(names), err
		},
	} {
		s := f.session(t, t.Context())
		l := s.Lease()
		if n, err := list(s, &l); n != 0 || !errors.As(s.Cause(err), &limit) || limit.Limit != "query.max_memory" {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		l.Release()
		s.Close(nil)
	}
	s := f.session(t, t.Context())
	defer s.Close(nil)
	l := s.Lease()
	if tags, err := s.SelectTags(store.Selection{Metric: "one", Range: model.AllTime}, &l); err != nil || len(tags) != 1 || tags[0].Values[0] != "1" {
		t.Errorf("%v, %v", tags, err)
	}
	l.Release()
}

// Collecting the tags of many series ends with the query, and before it has taken more memory than there is.
func TestTagsOfManySeries(t *testing.T) {
	config := DefaultConfig()
	config.MaxMemory = 64 * units.KiB
	f := newFixture(t, config)
	series := make([]store.Series, 100*lookTags)
	for i := range series {
		series[i].Tags = model.MustTags("h", "same")
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := f.session(t, ctx)
	defer s.Close(nil)
	l := s.Lease()
	defer l.Release()
	if tags, err := s.TagValuesOf(series, &l); err != nil || len(tags) != 1 || !slices.Equal(tags[0].Values, []string{"same"}) {
		t.Errorf("equal tags: %v, %v", tags, err)
	}
	for i := range series {
		series[i].Tags = model.MustTags("h", fmt.Sprint(i))
	}
	var limit *store.LimitError
	if tags, err := s.TagValuesOf(series, &l); tags != nil || !errors.As(err, &limit) || limit.Need > 2*int64(config.MaxMemory) {
		t.Errorf("%d tags, %v", len(tags), err)
	}
	for i := range series {
		series[i].Tags = model.MustTags("h", "same")
	}
	l.Release() // what the one before holds
	cancel()
	if tags, err := s.TagValuesOf(series, &l); tags != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the query: %d tags, %v", len(tags), err)
	}
}

// A cursor that was closed has no samples.
func TestClosedNumberCursor(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	f.put("m", model.MustTags("h", "1"), sample{1, 1}, sample{2, 2}, sample{3, 0.5})
	s := f.session(t, t.Context())
	defer s.Close(nil)
	for host, n := range f.numbers(t, s, "m") {
		c := s.OpenNumber(n, model.AllTime)
		if ok, err := c.Next(); !ok || err != nil {
			t.Fatal(host, ok, err)
		}
		c.Close()
		c.Close()
		if ok, err := c.Next(); ok || err != nil {
			t.Errorf("next: %t, %v", ok, err)
		}
	}
}

package storetest

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A fault is one thing done wrong. What it leaves nil is done right.
type fault struct {
	append func(r *reference.Store, b *store.Batch)                                                           // changes b, which is then appended
	after  func(r *reference.Store, b *store.Batch)                                                           // runs after an append
	delete func(r *reference.Store, d store.Deletion)                                                         // in place of the delete
	reopen func(old *reference.Store) *reference.Store                                                        // in place of Reopen
	merge  func(r *reference.Store)                                                                           // runs after Purge
	choose func(sel store.Selection) store.Selection                                                          // changes what is selected
	yield  func(v store.View, ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) // in place of Select
	read   func(o store.ReadOptions) store.ReadOptions                                                        // changes what is read
	block  func(o store.ReadOptions, b *store.Block)                                                          // changes what was read
	names  func(q store.NamesQuery, names []string)                                                           // changes what is listed
	ctx    func(context.Context) context.Context                                                              // changes the context of views
	closed bool                                                                                               // views work after Close
}

// stored returns the sample that p overwrites.
func stored(r *reference.Store, p store.Sample) (reference.Sample, bool) {
	samples := r.Samples()[r.Series(p.Ref)]
	i := slices.IndexFunc(samples, func(old reference.Sample) bool { return old.TimeMS == p.TimeMS })
	if i < 0 {
		return reference.Sample{}, false
	}
	return samples[i], true
}

// faults are named by what is wrong; group is the part of Run that must notice.
var faults = []struct {
	name        string
	group       string
	metamorphic bool // RunMetamorphic must notice too
	make        func() *fault
}{
	{"an overwrite is dropped", "overwrite", true, func() *fault {
		return &fault{append: func(r *reference.Store, b *store.Batch) {
			b.Samples = slices.DeleteFunc(b.Samples, func(p store.Sample) bool {
				_, found := stored(r, p)
				return found
			})
		}}
	}},
	{"the first of two in a batch wins", "overwrite", true, func() *fault {
		return &fault{append: func(_ *reference.Store, b *store.Batch) { slices.Reverse(b.Samples) }}
	}},
	{"the range end is left out", "time", true, func() *fault {
		return &fault{read: func(o store.ReadOptions) store.ReadOptions {
			o.Range.EndMS -= min(1, max(0, o.Range.EndMS-math.MinInt64))
			return o
		}}
	}},
	{"a row border belongs to the wrong row", "time", true, func() *fault {
		return &fault{read: func(o store.ReadOptions) store.ReadOptions {
			if o.Range.StartMS%1_814_400_000 == 0 && o.Range.StartMS != 0 {
				o.Range.StartMS++
			}
			return o
		}}
	}},
	{"markers of staleness are shown", "stats", false, func() *fault {
		return &fault{read: func(o store.ReadOptions) store.ReadOptions {
			o.Stale = true
			return o
		}}
	}},
	{"markers of staleness are lost", "stats", false, func() *fault {
		return &fault{read: func(o store.ReadOptions) store.ReadOptions {
			o.Stale = false
			return o
		}}
	}},
	{"a limit counts from the old end", "time", true, func() *fault {
		return &fault{read: func(o store.ReadOptions) store.ReadOptions {
			if o.Limit > 1 && o.Descending {
				o.Limit--
			}
			return o
		}}
	}},
	{"longs pass through a double", "value", true, func() *fault {
		return &fault{append: func(r *reference.Store, b *store.Batch) {
			for i, p := range b.Samples {
				if r.Series(p.Ref).Type == model.TypeLong {
					b.Samples[i].Value = uint64(int64(float64(int64(p.Value))))
				}
			}
		}}
	}},
	{"every NaN is the same", "value", false, func() *fault {
		return &fault{append: func(r *reference.Store, b *store.Batch) {
			for i, p := range b.Samples {
				if r.Series(p.Ref).Type == model.TypeDouble && math.IsNaN(math.Float64frombits(p.Value)) {
					b.Samples[i].Value = math.Float64bits(math.NaN())
				}
			}
		}}
	}},
	{"deletes are forgotten on reopening", "delete", true, func() *fault {
		var kept []func(*reference.Store)
		return &fault{
			delete: func(r *reference.Store, d store.Deletion) {
				for s, samples := range r.Samples() {
					if !d.Means(s) {
						continue
					}
					lost := slices.DeleteFunc(samples, func(p reference.Sample) bool { return !d.Range.Contains(p.TimeMS) })
					kept = append(kept, func(n *reference.Store) { n.Put(s, lost...) })
				}
				_ = r.Delete(context.Background(), d)
			},
			reopen: func(old *reference.Store) *reference.Store {
				n := old.Reopen()
				for _, restore := range kept {
					restore(n)
				}
				return n
			},
		}
	}},
	{"a delete hides later writes", "delete", true, func() *fault {
		var done []store.Deletion
		f := &fault{delete: func(r *reference.Store, d store.Deletion) {
			done = append(done, d)
			_ = r.Delete(context.Background(), d)
		}}
		f.after = func(r *reference.Store, _ *store.Batch) {
			for _, d := range done {
				_ = r.Delete(context.Background(), d)
			}
		}
		return f
	}},
	{"a delete ignores its matchers", "delete", true, func() *fault {
		return &fault{delete: func(r *reference.Store, d store.Deletion) {
			d.Matchers = nil
			_ = r.Delete(context.Background(), d)
		}}
	}},
	{"a delete of one series takes those with more tags", "delete", false, func() *fault {
		return &fault{delete: func(r *reference.Store, d store.Deletion) {
			if d.Only == nil {
				_ = r.Delete(context.Background(), d)
				return
			}
			for s := range r.Samples() {
				if s.Type == d.Only.Type {
					_ = r.Delete(context.Background(), store.Deletion{Metric: d.Metric, Matchers: d.Matchers, Range: d.Range, Only: &s})
				}
			}
		}}
	}},
	{"a delete of one series takes other types", "delete", false, func() *fault {
		return &fault{delete: func(r *reference.Store, d store.Deletion) {
			if d.Only == nil {
				_ = r.Delete(context.Background(), d)
				return
			}
			for s := range r.Samples() {
				if s.Tags == d.Only.Tags {
					_ = r.Delete(context.Background(), store.Deletion{Metric: d.Metric, Matchers: d.Matchers, Range: d.Range, Only: &s})
				}
			}
		}}
	}},
	{"the newest sample of each series is lost on reopening", "reopen", true, func() *fault {
		return &fault{reopen: func(old *reference.Store) *reference.Store {
			n := old.Reopen()
			for s, samples := range n.Samples() {
				newest := samples[len(samples)-1].TimeMS
				_ = n.Delete(context.Background(), store.DeletionOf(s, model.TimeRange{StartMS: newest, EndMS: newest}))
			}
			return n
		}}
	}},
	{"a merge brings back what was overwritten", "overwrite", true, func() *fault {
		first := map[model.Series][]reference.Sample{}
		return &fault{
			append: func(r *reference.Store, b *store.Batch) {
				for _, p := range b.Samples {
					if old, found := stored(r, p); found {
						s := r.Series(p.Ref)
						first[s] = append(first[s], old)
					}
				}
			},
			merge: func(r *reference.Store) {
				for s, old := range first {
					r.Put(s, old...)
				}
			},
		}
	}},
	{"statistics count a sample too many", "stats", true, func() *fault {
		return &fault{block: func(_ store.ReadOptions, b *store.Block) {
			for i := range b.Stats {
				b.Stats[i].Count++
			}
		}}
	}},
	{"the minimum is never above zero", "stats", true, func() *fault {
		return &fault{block: func(_ store.ReadOptions, b *store.Block) {
			for i := range b.Stats {
				b.Stats[i].Min = min(b.Stats[i].Min, 0)
			}
		}}
	}},
	{"statistics without being asked", "blocks", true, func() *fault {
		return &fault{read: func(o store.ReadOptions) store.ReadOptions {
			o.Summarize = &store.Summary{Final: summarizers["all"], Needs: model.AllStats}
			return o
		}}
	}},
	{"names are sorted by byte", "names", true, func() *fault {
		return &fault{names: func(_ store.NamesQuery, names []string) { slices.Sort(names) }}
	}},
	{"a pattern matches a part of a value", "select", true, func() *fault {
		return &fault{choose: func(sel store.Selection) store.Selection {
			sel.Matchers = slices.Clone(sel.Matchers)
			for i, m := range sel.Matchers {
				for j, p := range m.Patterns {
					loose, _ := model.NewPattern(".*(?:" + p.String() + ").*")
					sel.Matchers[i].Patterns = slices.Clone(sel.Matchers[i].Patterns)
					sel.Matchers[i].Patterns[j] = loose
				}
			}
			return sel
		}}
	}},
	{"absent tags satisfy no matcher", "select", true, func() *fault {
		return &fault{choose: func(sel store.Selection) store.Selection {
			sel.Matchers = slices.Clone(sel.Matchers)
			for i := range sel.Matchers {
				sel.Matchers[i].Absent = false
			}
			return sel
		}}
	}},
	{"times-to-live are ignored", "ttl", true, func() *fault {
		return &fault{append: func(_ *reference.Store, b *store.Batch) {
			for i := range b.Samples {
				b.Samples[i].TTL = 0
			}
		}}
	}},
	{"a life begins on arrival", "ttl", true, func() *fault {
		return &fault{append: func(r *reference.Store, b *store.Batch) {
			for i, p := range b.Samples {
				if late := (r.Now().UnixMilli() - p.TimeMS) / 1000; p.TTL > 0 && late > 0 {
					b.Samples[i].TTL += uint32(late)
				}
			}
		}}
	}},
	{"stale refs are taken", "series", false, func() *fault {
		return &fault{append: func(r *reference.Store, b *store.Batch) { b.Epoch = r.Epoch() }}
	}},
	{"contexts are not looked at", "cancel", false, func() *fault {
		return &fault{ctx: context.WithoutCancel}
	}},
	{"a series is yielded twice", "selecting", true, func() *fault {
		return &fault{yield: func(v store.View, ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) {
			for s, err := range v.Select(ctx, sel) {
				if !yield(s, err) || err == nil && s.Ref == 1 && !yield(s, err) {
					return
				}
			}
		}}
	}},
	{"series come in the order of refs", "selecting", true, func() *fault {
		return &fault{yield: func(v store.View, ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) {
			list, err := Select(ctx, v, sel)
			slices.SortFunc(list, func(a, b store.Series) int { return cmp.Compare(a.Ref, b.Ref) })
			yieldAll(list, err, yield)
		}}
	}},
	{"the end of the context is not noticed between two series", "selecting", false, func() *fault {
		return &fault{yield: func(v store.View, ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) {
			list, err := Select(ctx, v, sel) // the context and the view are not looked at further
			yieldAll(list, err, yield)
		}}
	}},
	{"a limit is that of each metric", "selecting", false, func() *fault {
		return &fault{yield: func(v store.View, ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) {
			names := []string{sel.Metric}
			if len(sel.Metrics) > 0 {
				names, _, _ = v.Names(ctx, store.NamesQuery{Kind: store.MetricNames})
			}
			for _, name := range names {
				one := sel
				if one.Metric, one.Metrics = name, nil; !sel.MeansMetric(name) {
					continue
				}
				for s, err := range v.Select(ctx, one) {
					if !yield(s, err) || err != nil {
						return
					}
				}
			}
		}}
	}},
	{"an iteration goes on after its error", "selecting", false, func() *fault {
		return &fault{yield: func(v store.View, ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) {
			for s, err := range v.Select(ctx, sel) {
				if !yield(s, err) || err != nil && !yield(s, err) {
					return
				}
			}
		}}
	}},
	{"a limit lets one more through", "selecting", false, func() *fault {
		return &fault{yield: func(v store.View, ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) {
			if sel.Limit > 0 {
				sel.Limit++
			}
			v.Select(ctx, sel)(yield)
		}}
	}},
	{"a lock is held while series are yielded", "selecting", false, func() *fault {
		var lock sync.Mutex
		return &fault{yield: func(v store.View, ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) {
			if !lock.TryLock() { // a real store would wait for ever
				yield(store.Series{}, errors.New("locked"))
				return
			}
			defer lock.Unlock()
			v.Select(ctx, sel)(yield)
		}}
	}},
	{"a closed view goes on", "views", false, func() *fault { return &fault{closed: true} }},
}

// yieldAll yields a list, then an error if there is one.
func yieldAll(list []store.Series, err error, yield func(store.Series, error) bool) {
	for _, s := range list {
		if !yield(s, nil) {
			return
		}
	}
	if err != nil {
		yield(store.Series{}, err)
	}
}

// faultyStore is a reference store with a fault.
type faultyStore struct {
	*reference.Store
	f *fault
}

func (s faultyStore) Append(ctx context.Context, b *store.Batch) error {
	if s.f.append != nil {
		s.f.append(s.Store, b)
	}
	err := s.Store.Append(ctx, b)
	if err == nil && s.f.after != nil {
		s.f.after(s.Store, b)
	}
	return err
}

func (s faultyStore) Delete(ctx context.Context, deletions ...store.Deletion) error {
	for _, d := range deletions {
		if s.f.delete != nil && d.Metric != "" {
			s.f.delete(s.Store, d)
		} else if err := s.Store.Delete(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (s faultyStore) View(ctx context.Context) (store.View, error) {
	v, err := s.Store.View(ctx)
	return faultyView{v, s.f}, err
}

type faultyView struct {
	store.View
	f *fault
}

func (v faultyView) Close() error {
	if v.f.closed {
		return nil
	}
	return v.View.Close()
}

func (v faultyView) context(ctx context.Context) context.Context {
	if v.f.ctx == nil {
		return ctx
	}
	return v.f.ctx(ctx)
}

func (v faultyView) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	if v.f.choose != nil {
		sel = v.f.choose(sel)
	}
	if v.f.yield != nil {
		return func(yield func(store.Series, error) bool) { v.f.yield(v.View, v.context(ctx), sel, yield) }
	}
	return v.View.Select(v.context(ctx), sel)
}

func (v faultyView) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	names, more, err := v.View.Names(v.context(ctx), q)
	if v.f.names != nil {
		v.f.names(q, names)
	}
	return names, more, err
}

func (v faultyView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	if v.f.read != nil {
		o = v.f.read(o)
	}
	return faultyCursor{v.View.Read(v.context(ctx), s, o), o, v.f}
}

type faultyCursor struct {
	store.Cursor
	o store.ReadOptions
	f *fault
}

func (c faultyCursor) Next() (*store.Block, error) {
	b, err := c.Cursor.Next()
	if b != nil && c.f.block != nil {
		c.f.block(c.o, b)
	}
	return b, err
}

var testOrigin = time.UnixMilli(1_700_000_000_000)

func faultyHarness(f *fault) *Harness {
	h := referenceHarness(testOrigin, 0)
	var kept *reference.Store
	h.Open = func(testing.TB) store.Store {
		switch {
		case kept == nil:
			kept = reference.New(h.Now)
		case f.reopen != nil:
			kept = f.reopen(kept)
		default:
			kept = kept.Reopen()
		}
		return faultyStore{kept, f}
	}
	h.Merge = func(_ testing.TB, s store.Store) {
		r := s.(faultyStore).Store
		r.Purge()
		if f.merge != nil {
			f.merge(r)
		}
	}
	return h
}

// TestFaultsAreNoticed shows that Run can fail: each fault by the group of
// tests that is about it.
func TestFaultsAreNoticed(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			for _, g := range groups() {
				if g.name != f.group {
					continue
				}
				for _, c := range g.tests {
					failure, _ := record(t, func(tb testing.TB) {
						c.runOn(tb, func(testing.TB) *Harness { return faultyHarness(f.make()) })
					})
					if failure != "" {
						t.Logf("noticed by %s/%s:\n%s", g.name, c.name, failure)
						return
					}
				}
			}
			t.Errorf("no test of group %s fails", f.group)
		})
	}
}

// TestMetamorphicNoticesFaults shows that RunMetamorphic can fail, and that
// what it prints is short and can be read back.
func TestMetamorphicNoticesFaults(t *testing.T) {
	for i, f := range faults {
		if !f.metamorphic || i%2 == 1 && *roundsFlag == 0 {
			continue // -storetest.rounds=1 runs all
		}
		t.Run(f.name, func(t *testing.T) {
			c := Config{"faulty", func(testing.TB) *Harness { return faultyHarness(f.make()) }}
			for seed := range uint64(40) {
				report := runRound(t, c, seed, 150)
				if report == "" {
					continue
				}
				t.Log(report)
				checkReport(t, c, report)
				return
			}
			t.Error("40 rounds saw nothing wrong")
		})
	}
}

func checkReport(t *testing.T, c Config, report string) {
	t.Helper()
	_, script, _ := strings.Cut(report, "script of")
	lines := strings.Split(strings.TrimSpace(script), "\n")[1:]
	if len(lines) > 12 {
		t.Errorf("the script has %d operations, want at most 12", len(lines))
	}
	var ops []op
	for _, line := range lines {
		o, err := parseOp(line, testOrigin)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, o)
	}
	if (attempt{tb: t, config: c, origin: testOrigin}).run(ops) == "" {
		t.Error("the printed script, read back, does not fail")
	}
}

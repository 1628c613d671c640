package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"varve/internal/model"
	"varve/internal/store"
)

// concurrentTests run writers, readers and maintenance at once.
var concurrentTests = []test{
	{"writers-see-their-writes", writersSeeTheirWrites},
	{"writers-of-one-series", writersOfOneSeries},
	{"readers-see-whole-batches-grow", readersSeeGrowth},
	{"deletes-beside-writes", deletesBesideWrites},
	{"creators-of-one-series", creatorsOfOneSeries},
	{"random-workers", randomWorkers},
}

// together runs each function in a goroutine of its own, reports what they
// return, and waits for all.
func (e *env) together(functions ...func() error) {
	e.Helper()
	var wg sync.WaitGroup
	problems := make(chan error, len(functions))
	for _, f := range functions {
		wg.Go(func() {
			if err := f(); err != nil {
				problems <- err
			}
		})
	}
	wg.Wait()
	close(problems)
	for err := range problems {
		e.Error(err)
	}
}

// maintained flushes and merges until the returned function is called, which
// waits for the last round.
func (e *env) maintained() (stop func()) {
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; !done.Load() && i < 1000; i++ {
			if i%3 == 2 {
				e.merge()
			} else {
				e.flush()
			}
		}
	})
	return func() {
		done.Store(true)
		wg.Wait()
	}
}

// last reads the newest sample of a series in a view of its own.
func (e *env) last(s model.Series) (readSample, bool, error) {
	ctx := context.Background()
	v, err := e.s.View(ctx)
	if err != nil {
		return readSample{}, false, err
	}
	defer v.Close()
	found, ok, err := findSeries(ctx, v, s, model.AllTime)
	if !ok || err != nil {
		return readSample{}, false, err
	}
	list, err := readSamples(ctx, v, found, store.ReadOptions{Range: model.AllTime, Descending: true, Limit: 1})
	if len(list) == 0 {
		return readSample{}, false, err
	}
	return list[0], true, err
}

func writersSeeTheirWrites(e *env) {
	defer e.maintained()()
	var writers []func() error
	for w := range 8 {
		writers = append(writers, func() error {
			s := hostSeries("load", w)
			for i := range 40 {
				p := readSample{timeMS: someTimeMS + int64(i/2)*1000, value: value{bits: uint64(i)}} // each time twice
				if err := e.append(context.Background(), scriptSamples(s, []readSample{p})); err != nil {
					return fmt.Errorf("writer %d, write %d: %w", w, i, err)
				}
				got, ok, err := e.last(s)
				if err != nil || !ok || got != p {
					return fmt.Errorf("writer %d wrote %d at %d and read %d at %d (found %v, error %v)",
						w, p.value.bits, p.timeMS, got.value.bits, got.timeMS, ok, err)
				}
			}
			return nil
		})
	}
	e.together(writers...)
}

func writersOfOneSeries(e *env) {
	s := seriesA(model.TypeLong)
	all := steps(s.Type, someTimeMS, 800)
	stop := e.maintained()
	var writers []func() error
	for w := range 4 {
		writers = append(writers, func() error {
			for i := w; i < len(all); i += 40 {
				var part []readSample
				for j := i; j < min(i+40, len(all)); j += 4 {
					part = append(part, all[j])
				}
				if err := e.append(context.Background(), scriptSamples(s, part)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	e.together(writers...)
	stop()
	e.inEveryState(s, all)
}

// readersSeeGrowth: one writer appends 0, 1, 2, ... in order. A view that is
// opened when n were acknowledged finds 0..n-1 without a gap; of later ones it
// may see any, each with its own value.
func readersSeeGrowth(e *env) {
	defer e.maintained()()
	const total = 200
	s := seriesA(model.TypeLong)
	var acknowledged atomic.Int64
	var failed atomic.Bool
	writer := func() error {
		for i := range total {
			p := readSample{timeMS: someTimeMS + int64(i)*1000, value: value{bits: uint64(i)}}
			if err := e.append(context.Background(), scriptSamples(s, []readSample{p})); err != nil {
				failed.Store(true)
				return err
			}
			acknowledged.Store(int64(i + 1))
		}
		return nil
	}
	reader := func() error {
		for !failed.Load() {
			n := acknowledged.Load()
			if err := e.readsAtLeast(s, n); err != nil {
				return err
			}
			if n == total {
				return nil
			}
		}
		return nil
	}
	e.together(writer, reader, reader)
}

// readsAtLeast opens a view on a series whose i-th sample is i, and checks that
// the first n are there.
func (e *env) readsAtLeast(s model.Series, n int64) error {
	ctx := context.Background()
	v, err := e.s.View(ctx)
	if err != nil {
		return err
	}
	defer v.Close()
	found, ok, err := findSeries(ctx, v, s, model.AllTime)
	if err != nil || !ok && n > 0 {
		return fmt.Errorf("select a series of %d samples: found %v, error %w", n, ok, err)
	}
	if !ok {
		return nil
	}
	list, err := readSamples(ctx, v, found, store.ReadOptions{Range: model.AllTime})
	if err != nil {
		return err
	}
	for i, p := range list {
		at := (p.timeMS - someTimeMS) / 1000
		if p.value.bits != uint64(at) || int64(i) < n && at != int64(i) {
			return fmt.Errorf("%d samples were acknowledged before the view was opened; its sample %d is %d at second %d", n, i, p.value.bits, at)
		}
	}
	if int64(len(list)) < n {
		return fmt.Errorf("%d samples were acknowledged before the view was opened, it has %d", n, len(list))
	}
	return nil
}

// deletesBesideWrites: each worker owns a series; it writes, deletes and
// writes again, and must always find just what it left.
func deletesBesideWrites(e *env) {
	defer e.maintained()()
	ctx := context.Background()
	var workers []func() error
	for w := range 4 {
		workers = append(workers, func() error {
			s := hostSeries("load", w)
			host, _ := s.Tags.Get("host")
			mine := []model.Matcher{{Tag: "host", Values: []string{host}}}
			for i := range 20 {
				p := readSample{timeMS: someTimeMS, value: value{bits: uint64(i)}}
				if err := e.append(ctx, scriptSamples(s, []readSample{p})); err != nil {
					return err
				}
				if got, ok, err := e.last(s); !ok || err != nil || got != p {
					return fmt.Errorf("worker %d, round %d: wrote %d, read %d (found %v, error %v)", w, i, i, got.value.bits, ok, err)
				}
				if err := e.s.Delete(ctx, store.Deletion{Metric: "load", Matchers: mine, Range: model.AllTime}); err != nil {
					return err
				}
				if got, ok, err := e.last(s); ok || err != nil {
					return fmt.Errorf("worker %d, round %d: deleted all, still read %d (error %v)", w, i, got.value.bits, err)
				}
			}
			return nil
		})
	}
	e.together(workers...)
	e.expect("names metrics", "(none)")
}

func creatorsOfOneSeries(e *env) {
	var creators []func() error
	refs := make([][]store.Ref, 6)
	for w := range refs {
		creators = append(creators, func() error {
			for i := range 100 {
				ref, err := e.s.Create(context.Background(), hostSeries("load", i))
				if err != nil {
					return err
				}
				refs[w] = append(refs[w], ref)
			}
			return nil
		})
	}
	e.together(creators...)
	distinct := map[store.Ref]bool{}
	for i, ref := range refs[0] {
		distinct[ref] = true
		for w := range refs {
			if refs[w][i] != ref {
				e.Fatalf("two creators of one series got refs %d and %d", ref, refs[w][i])
			}
		}
	}
	if len(distinct) != 100 {
		e.Fatalf("100 series share %d refs", len(distinct))
	}
}

// randomWorkers: four workers do random operations, each to metrics and
// services of its own and to a reference store of its own, while the store is
// flushed and merged. What the others do must not change any answer.
func randomWorkers(e *env) {
	defer e.maintained()()
	var workers []func() error
	for w := range 4 {
		workers = append(workers, func() error { return e.randomWorker(w) })
	}
	e.together(workers...)
}

func (e *env) randomWorker(w int) error {
	own := fmt.Sprintf("worker%d.", w)
	origin := e.h.now()
	g := newGenerator(uint64(w), origin, false)
	g.metrics = []string{own + "a", own + "b"}
	got := &runner{tb: e.TB, h: e.h, s: e.s, mortal: map[samplePlace]bool{}, metrics: map[string]bool{}}
	defer got.release()
	want := newRunner(e.TB, referenceHarness(origin, 0))
	defer want.close()
	for i, o := range g.ops(200) {
		if !o.keptTo(own) {
			continue
		}
		if err := e.refuses(got, &o); err != nil {
			return err
		}
		if g, w := got.do(o), want.do(o); g != w {
			return fmt.Errorf("%soperation %d, %s\n got: %s\nwant: %s", own, i+1, o.format(e.origin), indented(g), indented(w))
		}
	}
	return nil
}

// refuses checks that the store refuses each sample of an operation that it cannot hold, and
// removes those samples from the operation.
func (e *env) refuses(r *runner, o *op) error {
	if e.h.CannotHold == nil || o.verb != "append" {
		return nil
	}
	checker, ok := store.As[store.SampleChecker](e.s)
	if !ok {
		return errors.New("the store cannot hold every sample, and is no SampleChecker")
	}
	var kept []scriptSample
	for _, p := range o.samples {
		k := p.series.Type.Kind()
		ref, err := refOf(context.Background(), e.s, p.series)
		if err != nil {
			return err
		}
		var input *store.InputError
		err = checker.CheckSample(ref, k, p.timeMS, p.value.bits, []byte(p.value.data), p.ttl)
		if !e.h.CannotHold(k, p.timeMS, p.value.bits, p.value.data) {
			if kept = append(kept, p); err != nil {
				return fmt.Errorf("sample %+v could be held: %w", p, err)
			}
			continue
		}
		if !errors.As(err, &input) {
			return fmt.Errorf("sample %+v cannot be held, but CheckSample says %v", p, err)
		}
		// Nothing of a batch with it is stored.
		other := p
		other.timeMS, other.value = someTimeMS-1, value{}
		if err := r.append(context.Background(), []scriptSample{other, p}); !errors.As(err, &input) {
			return fmt.Errorf("sample %+v cannot be held, but Append says %v", p, err)
		}
	}
	o.samples = kept
	return nil
}

// keptTo limits an operation to the names that begin with own, and reports
// whether that is possible.
func (o *op) keptTo(own string) bool {
	switch o.verb {
	case "flush", "merge", "reopen", "crash", "advance":
		return false
	case "names":
		if o.names.Kind == store.MetricNames {
			o.names.Prefix, o.names.After = own, ""
		} else {
			o.names.Metric = own + "a"
		}
	case "set", "unset", "get", "keys":
		o.text = append([]string{own + o.text[0]}, o.text[1:]...)
	}
	return true
}

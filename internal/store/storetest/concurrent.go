package storetest

import (
	"context"
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

// readersSeeGrowth: one writer appends 1, 2, 3, ... in order. At any moment a
// reader finds 1..n without a gap, and n never falls.
func readersSeeGrowth(e *env) {
	defer e.maintained()()
	s := seriesA(model.TypeLong)
	var done atomic.Bool
	writer := func() error {
		defer done.Store(true)
		for i := range 200 {
			p := readSample{timeMS: someTimeMS + int64(i)*1000, value: value{bits: uint64(i)}}
			if err := e.append(context.Background(), scriptSamples(s, []readSample{p})); err != nil {
				return err
			}
		}
		return nil
	}
	reader := func() error {
		seen := 0
		for !done.Load() {
			n, err := e.readPrefix(s)
			if err != nil {
				return err
			}
			if n < seen {
				return fmt.Errorf("a reader saw %d samples, then %d", seen, n)
			}
			seen = n
		}
		return nil
	}
	e.together(writer, reader, reader)
	if n, err := e.readPrefix(s); n != 200 || err != nil {
		e.Fatalf("%d samples in the end, error %v; want 200", n, err)
	}
}

// readPrefix reads s and checks that its i-th value is i.
func (e *env) readPrefix(s model.Series) (int, error) {
	ctx := context.Background()
	v, err := e.s.View(ctx)
	if err != nil {
		return 0, err
	}
	defer v.Close()
	found, ok, err := findSeries(ctx, v, s, model.AllTime)
	if !ok || err != nil {
		return 0, err
	}
	list, err := readSamples(ctx, v, found, store.ReadOptions{Range: model.AllTime})
	for i, p := range list {
		if p.value.bits != uint64(i) {
			return 0, fmt.Errorf("sample %d of a series of 0, 1, 2, ... is %d: one before it is missing", i, p.value.bits)
		}
	}
	return len(list), err
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

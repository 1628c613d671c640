package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"varve/internal/model"
	"varve/internal/store"
)

// viewTests are about what a View sees, and for how long.
var viewTests = []test{
	{"sees-what-was-acknowledged", viewSees},
	{"stays-while-the-store-changes", viewStays},
	{"cursor-over-a-merge", cursorOverMerge},
	{"refs-outlive-a-purge", viewOutlivesPurge},
	{"many-readers", manyReaders},
	{"closed", closedView},
	{"cursor-closed-early", cursorClosedEarly},
}

// selectOne selects the only series of a metric.
func (e *env) selectOne(v store.View, metric string) store.Series {
	e.Helper()
	list, err := Select(context.Background(), v, store.Selection{Metric: metric, Range: model.AllTime})
	if err != nil || len(list) != 1 {
		e.Fatalf("select %s: %d series, error %v; want one", metric, len(list), err)
	}
	return list[0]
}

func viewSees(e *env) {
	ctx := context.Background()
	for i := range 20 {
		e.must(fmt.Sprintf("append load{host=a}:long %d=%d", i*1000, i))
		v := e.view()
		s := e.selectOne(v, "load")
		got, err := readSamples(ctx, v, s, store.ReadOptions{Range: model.AllTime})
		if err != nil || len(got) != i+1 {
			e.Fatalf("a view opened after %d samples were acknowledged reads %d of them; error %v", i+1, len(got), err)
		}
		v.Close()
		if i%5 == 4 {
			e.flush()
		}
	}
}

// viewStays keeps a view open over appends, flushes, merges and deletes of
// other samples. What was there before and is not touched stays readable.
func viewStays(e *env) {
	s := seriesA(model.TypeLong)
	samples := steps(s.Type, someTimeMS, 1000)
	e.put(s, samples[:600], 600)
	e.flush()
	e.put(s, samples[600:], 400)
	v := e.view()
	defer v.Close()
	selected := e.selectOne(v, "load")
	part := store.ReadOptions{Range: model.TimeRange{StartMS: samples[100].timeMS, EndMS: samples[899].timeMS}}
	check := func(after string) {
		e.Helper()
		got, err := readSamples(context.Background(), v, selected, part)
		if err != nil {
			e.Fatalf("view, after %s: %v", after, err)
		}
		e.same("view, after "+after, s, got, samples[100:900])
	}
	check("nothing")
	e.put(s, steps(s.Type, someTimeMS+100_000_000, 500), 500)
	check("an append")
	e.must("append load{host=b}:long 1000=1")
	check("a new series")
	e.flush()
	check("a flush")
	e.must(fmt.Sprintf("delete load -to=%d", samples[99].timeMS))
	check("a delete of other samples")
	e.merge()
	check("a merge")
	e.merge()
	check("another merge")
}

func cursorOverMerge(e *env) {
	s := seriesA(model.TypeDouble)
	samples := steps(s.Type, someTimeMS, 5000)
	e.put(s, samples[:2500], 500)
	e.flush()
	e.put(s, samples[2500:], 500)
	v := e.view()
	defer v.Close()
	c := v.Read(context.Background(), e.selectOne(v, "load"), store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	var got []readSample
	for i := 0; ; i++ {
		b, err := c.Next()
		if err != nil {
			e.Fatalf("block %d: %v", i, err)
		}
		if b == nil {
			break
		}
		if got, err = addBlock(got, store.Series{Series: s}, store.ReadOptions{Range: model.AllTime}, b); err != nil {
			e.Fatalf("block %d: %v", i, err)
		}
		switch i {
		case 0:
			e.flush()
		case 1:
			e.merge()
		}
	}
	e.same("a cursor with a flush and a merge under way", s, got, samples)
}

// viewOutlivesPurge: a view's refs never lead to the samples of another
// series, though theirs were deleted and forgotten.
func viewOutlivesPurge(e *env) {
	e.must("append load{host=a}:long 1000=1 2000=2")
	v := e.view()
	defer v.Close()
	selected := e.selectOne(v, "load")
	e.must("delete load")
	e.merge()
	for i := range 20 {
		e.put(hostSeries("other", i), []readSample{{timeMS: 1500, value: value{bits: 77}}}, 1)
	}
	got, err := readSamples(context.Background(), v, selected, store.ReadOptions{Range: model.AllTime})
	if err != nil {
		e.Fatalf("view, after its series was forgotten: %v", err)
	}
	for _, p := range got {
		if p.timeMS == 1500 || p.value.bits == 77 {
			e.Fatalf("the ref of %s now reads the samples of another series: %d=%d", selected, p.timeMS, p.value.bits)
		}
	}
}

func manyReaders(e *env) {
	s := seriesA(model.TypeLong)
	samples := steps(s.Type, someTimeMS, 2000)
	e.put(s, samples[:1000], 500)
	e.flush()
	e.put(s, samples[1000:], 500)
	v := e.view()
	defer v.Close()
	var wg sync.WaitGroup
	problems := make(chan string, 8)
	for i := range cap(problems) {
		wg.Go(func() {
			o := store.ReadOptions{Range: model.AllTime, Descending: i%2 == 1}
			found, ok, err := findSeries(context.Background(), v, s, model.AllTime)
			if err != nil || !ok {
				problems <- fmt.Sprintf("select: found %v, error %v", ok, err)
				return
			}
			got, err := readSamples(context.Background(), v, found, o)
			if err != nil || len(got) != len(samples) {
				problems <- fmt.Sprintf("%d samples, error %v; want %d", len(got), err, len(samples))
			}
		})
	}
	wg.Wait()
	close(problems)
	for p := range problems {
		e.Errorf("one of 8 readers of one view: %s", p)
	}
}

func closedView(e *env) {
	ctx := context.Background()
	e.must("append load{host=a}:long 1000=1")
	v := e.view()
	s := e.selectOne(v, "load")
	if err := v.Close(); err != nil {
		e.Fatalf("closing a view: %v", err)
	}
	if _, err := Select(ctx, v, store.Selection{Metric: "load", Range: model.AllTime}); !errors.Is(err, store.ErrClosed) {
		e.Errorf("Select on a closed view: %v, want ErrClosed", err)
	}
	if _, _, err := v.Names(ctx, store.NamesQuery{}); !errors.Is(err, store.ErrClosed) {
		e.Errorf("Names on a closed view: %v, want ErrClosed", err)
	}
	c := v.Read(ctx, s, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	if b, err := c.Next(); b != nil || !errors.Is(err, store.ErrClosed) {
		e.Errorf("Read on a closed view: block %v, error %v, want ErrClosed", b, err)
	}
	if _, err := c.Next(); !errors.Is(err, store.ErrClosed) {
		e.Errorf("a cursor after its error: %v, want the same error again", err)
	}
}

// cursorClosedEarly: closing twice, before the first block and in the middle.
func cursorClosedEarly(e *env) {
	s := seriesA(model.TypeLong)
	e.put(s, steps(s.Type, someTimeMS, 2000), 2000)
	v := e.view()
	defer v.Close()
	selected := e.selectOne(v, "load")
	for blocks := range 3 {
		c := v.Read(context.Background(), selected, store.ReadOptions{Range: model.AllTime})
		for range blocks {
			if _, err := c.Next(); err != nil {
				e.Fatal(err)
			}
		}
		c.Close()
		c.Close()
	}
}

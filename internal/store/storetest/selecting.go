package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"varve/internal/model"
	"varve/internal/store"
)

// selectTests are about Select as an iteration.
var selectTests = []test{
	{"in-order-and-in-any", selectedInOrder},
	{"again-and-in-part", selectedAgain},
	{"stopped-at-each-series", selectStopped},
	{"used-meanwhile", usedWhileSelecting},
	{"limit-met-and-passed", selectLimit},
	{"context-ends-meanwhile", selectCancelled},
	{"view-closed-meanwhile", selectOnClosedView},
	{"nothing-before-it-begins", selectLater},
	{"writes-and-deletes-meanwhile", selectBesideChanges},
	{"several-metrics", selectMetrics},
}

// wide stores n series of the metric wide, a sample each; a part of them is flushed.
func (e *env) wide(n int) []model.Series {
	e.Helper()
	var batch []scriptSample
	var all []model.Series
	for i := range n {
		s := hostSeries("wide", i*7919%n)
		all = append(all, s)
		batch = append(batch, scriptSample{series: s, timeMS: 1000, value: value{bits: uint64(i)}})
		if i == n/2 {
			e.putAll(batch)
			e.flush()
			batch = nil
		}
	}
	e.putAll(batch)
	slices.SortFunc(all, model.Series.Compare)
	return all
}

var allWide = store.Selection{Metric: "wide", Range: model.AllTime}

// iterate counts the series of a sequence, and calls each with the count. It returns the
// error with which the sequence ends.
func iterate(sequence iter.Seq2[store.Series, error], each func(seen int)) (seen int, failed error) {
	for _, err := range sequence {
		switch {
		case failed != nil:
			return seen, fmt.Errorf("the iteration went on after its error: %w", failed)
		case err != nil:
			failed = err
		default:
			seen++
			each(seen)
		}
	}
	return seen, failed
}

// seriesOf are the series of a list, without their refs.
func seriesOf(list []store.Series) []model.Series {
	var out []model.Series
	for _, s := range list {
		out = append(out, s.Series)
	}
	return out
}

// selectedInOrder: a selection of several types, in order and in any order, is the
// same series, each once, and each with a ref that is its own.
func selectedInOrder(e *env) {
	want := e.wide(50)
	more := []model.Series{
		{Metric: "wide", Type: model.TypeLong}, {Metric: "wide", Type: "custom.b"}, {Metric: "wide", Type: "custom.a"},
		{Metric: "wide", Type: model.TypeDouble, Tags: want[7].Tags}, {Metric: "wide", Type: "a.custom", Tags: want[7].Tags},
		{Metric: "wide", Type: model.TypeLong, Tags: model.MustTags("a", "b", "host", "h000007")},
	}
	var batch []scriptSample
	for _, s := range more {
		v := value{bits: 1}
		if s.Type.Kind().Variable() {
			v = value{data: "x"}
		}
		batch = append(batch, scriptSample{series: s, timeMS: 1000, value: v})
	}
	e.putAll(batch)
	want = append(want, more...)
	slices.SortFunc(want, model.Series.Compare)
	v := e.view()
	defer v.Close()
	for _, any := range []bool{false, true} {
		sel := allWide
		sel.AnyOrder = any
		list, err := Select(context.Background(), v, sel)
		if err != nil {
			e.Fatal(err)
		}
		got := seriesOf(list)
		if any {
			slices.SortFunc(got, model.Series.Compare)
		}
		if !slices.Equal(got, want) {
			e.Errorf("any order %v: %d series %v\nwant %d %v", any, len(got), got, len(want), want)
		}
		refs := map[store.Ref]bool{}
		for _, s := range list {
			refs[s.Ref] = true
		}
		if len(refs) != len(list) {
			e.Errorf("any order %v: %d refs for %d series", any, len(refs), len(list))
		}
	}
}

// selectedAgain: one sequence may be iterated over again, from the beginning.
func selectedAgain(e *env) {
	want := e.wide(20)
	v := e.view()
	defer v.Close()
	sequence := v.Select(context.Background(), allWide)
	for range 2 {
		if got := e.first(sequence, 3); !slices.Equal(seriesOf(got), want[:3]) {
			e.Errorf("the first three are %v, want %v", got, want[:3])
		}
	}
	if got := e.first(sequence, 100); !slices.Equal(seriesOf(got), want) {
		e.Errorf("after two iterations that were stopped: %v, want %v", got, want)
	}
}

// first stops after n series.
func (e *env) first(sequence iter.Seq2[store.Series, error], n int) []store.Series {
	e.Helper()
	var list []store.Series
	for s, err := range sequence {
		if err != nil {
			e.Fatal(err)
		}
		if list = append(list, s); len(list) == n {
			break
		}
	}
	return list
}

// selectStopped stops at each series. After that, the view can be closed and the store
// takes writes and deletes. The packages that run these tests check for leaked goroutines.
func selectStopped(e *env) {
	const n = 12
	want := e.wide(n)
	for stop := 1; stop <= n; stop++ {
		v := e.view()
		got := e.first(v.Select(context.Background(), allWide), stop)
		if !slices.Equal(seriesOf(got), want[:stop]) {
			e.Errorf("stopped after %d: %v", stop, got)
		}
		for _, s := range got {
			if samples, err := readSamples(context.Background(), v, s, store.ReadOptions{Range: model.AllTime}); err != nil || len(samples) != 1 {
				e.Errorf("stopped after %d: %d samples of %v, %v", stop, len(samples), s, err)
			}
		}
		if err := v.Close(); err != nil {
			e.Errorf("closing a view after a selection that was stopped: %v", err)
		}
		e.must(fmt.Sprintf("append other{n=%d}:long 1000=1", stop), "delete other")
	}
}

// usedWhileSelecting uses the view and the store in every way while it has a series.
func usedWhileSelecting(e *env) {
	ctx := context.Background()
	want := e.wide(6)
	v := e.view()
	defer v.Close()
	n := 0
	for s, err := range v.Select(ctx, allWide) {
		if err != nil {
			e.Fatal(err)
		}
		if s.Series != want[n] {
			e.Fatalf("series %d is %v, want %v", n, s, want[n])
		}
		inner, err := Select(ctx, v, allWide)
		if err != nil || len(inner) < len(want) {
			e.Fatalf("selecting meanwhile: %v, %v", inner, err)
		}
		for _, of := range []store.Series{s, inner[n]} {
			if samples, err := readSamples(ctx, v, of, store.ReadOptions{Range: model.AllTime}); err != nil || len(samples) != 1 {
				e.Fatalf("%d samples of %v, %v", len(samples), of, err)
			}
		}
		if _, _, err := v.Names(ctx, store.NamesQuery{Kind: store.TagValues, Metric: "wide"}); err != nil {
			e.Fatal(err)
		}
		e.must(fmt.Sprintf("append other{n=%d}:long 1000=1", n), "delete other")
		e.flush()
		e.merge()
		n++
	}
	if n != len(want) {
		e.Errorf("%d series, want %d", n, len(want))
	}
}

// metricsOf are selections of several metrics, by what says which.
func metricsOf(e *env) map[string][]model.Matcher {
	matcher := func(op model.Operator, text string) model.Matcher {
		m, err := model.NewMatcher("", op, text)
		if err != nil {
			e.Fatal(err)
		}
		return m
	}
	return map[string][]model.Matcher{
		"any":                   {store.AnyMetric},
		"exact":                 {matcher(model.Equal, "b.load")},
		"none":                  {matcher(model.Equal, "nothing")},
		"other":                 {matcher(model.NotEqual, "b.load")},
		"pattern":               {matcher(model.Matches, `[bc]\..*`)},
		"no pattern":            {matcher(model.NotMatches, `b\..*`)},
		"pattern of all":        {matcher(model.Matches, `.*`)},
		"two patterns":          {matcher(model.Matches, `.*load`), matcher(model.NotMatches, `a.*`)},
		"exact and a pattern":   {matcher(model.Matches, `.*load`), matcher(model.Equal, "b.load")},
		"exact, not a pattern":  {matcher(model.Matches, `c.*`), matcher(model.Equal, "b.load")},
		"several values":        {{Values: []string{"c.load", "a.load", "nothing", "a.load"}}},
		"values or patterns":    {{Values: []string{"c.load"}, Patterns: matcher(model.Matches, `a.*`).Patterns}},
		"no value and no other": {{}},
	}
}

// selectMetrics selects series of several metrics at once: in order, within a limit of
// all of them, of a range, with matchers of tags, and in part.
func selectMetrics(e *env) {
	var batch []scriptSample
	var all []model.Series
	for i, metric := range []string{"c.load", "a.load", "b.load", "b.free", "b.\ufffdx", "b.\U00010000x"} {
		for _, host := range []string{"y", "x", "z"} {
			s := hostSeries(metric, 0)
			s.Tags = model.MustTags("host", host)
			all = append(all, s)
			batch = append(batch, scriptSample{series: s, timeMS: 1000 * int64(1+i), value: value{bits: uint64(i)}})
		}
	}
	slices.SortFunc(all, model.Series.Compare)
	e.putAll(batch[:9])
	e.flush()
	e.putAll(batch[9:])
	for name, metrics := range metricsOf(e) {
		var want []model.Series
		sel := store.Selection{Metric: "not looked at", Metrics: metrics, Range: model.AllTime, LimitKey: "test.max"}
		for _, s := range all {
			if sel.MeansMetric(s.Metric) {
				want = append(want, s)
			}
		}
		e.metricsAre(name, sel, want)
		sel.Matchers = model.Matchers([]model.Tag{{Name: "host", Value: "x"}})
		want = slices.DeleteFunc(want, func(s model.Series) bool { return !model.MatchesAll(sel.Matchers, s.Tags) })
		e.metricsAre(name+", with a matcher", sel, want)
	}
}

// metricsAre compares what a selection selects: in order and in any, up to each limit.
func (e *env) metricsAre(name string, sel store.Selection, want []model.Series) {
	e.Helper()
	v := e.view()
	defer v.Close()
	for _, any := range []bool{false, true} {
		sel.AnyOrder, sel.Limit = any, 0
		list, err := Select(context.Background(), v, sel)
		got := seriesOf(list)
		if any {
			slices.SortFunc(got, model.Series.Compare)
		}
		if err != nil || !slices.Equal(got, want) {
			e.Fatalf("%s, any order %v: %v, %v; want %v", name, any, got, err, want)
		}
		for i, s := range list { // each ref is that of its series
			if cols, err := readSamples(context.Background(), v, s, store.ReadOptions{Range: model.AllTime}); err != nil || len(cols) != 1 {
				e.Fatalf("%s: series %d, %v: %d samples, %v", name, i, s, len(cols), err)
			}
		}
		for limit := 1; limit <= len(want); limit++ {
			sel.Limit = limit
			seen, failed := iterate(v.Select(context.Background(), sel), func(int) {})
			var found *store.LimitError
			switch over := errors.As(failed, &found); {
			case limit == len(want):
				if failed != nil || seen != limit {
					e.Fatalf("%s, limit %d: %d series, %v", name, limit, seen, failed)
				}
			case !over || seen > limit || found.Limit != "test.max" || found.Max != int64(limit) || found.Need <= int64(limit) || found.Need > int64(len(want)):
				e.Fatalf("%s, limit %d of %d: %d series, then %v", name, limit, len(want), seen, failed)
			}
		}
	}
	for range v.Select(context.Background(), sel) { // the caller stops at the first one
		break
	}
}

// selectLimit: as many series as the limit are no error; one more is, and nothing
// comes after the error.
func selectLimit(e *env) {
	const n = 20
	e.wide(n)
	v := e.view()
	defer v.Close()
	for _, any := range []bool{false, true} {
		sel := allWide
		sel.AnyOrder, sel.LimitKey, sel.Limit = any, "test.max", n
		if list, err := Select(context.Background(), v, sel); err != nil || len(list) != n {
			e.Errorf("limit %d, any order %v: %d series, %v", n, any, len(list), err)
		}
		for limit := 1; limit < n; limit += 6 {
			sel.Limit = limit
			seen, failed := iterate(v.Select(context.Background(), sel), func(int) {})
			var found *store.LimitError
			if seen > limit || !errors.As(failed, &found) || found.Need <= int64(limit) || found.Need > n {
				e.Fatalf("limit %d: %d series, then %v", limit, seen, failed)
			}
			if want := fmt.Sprintf("limit test.max of %d reached, at least %d needed: select series of wide", limit, found.Need); failed.Error() != want {
				e.Errorf("limit %d: %q, want %q", limit, failed, want)
			}
		}
	}
}

// selectCancelled ends the context while the caller has a series.
func selectCancelled(e *env) {
	e.wide(2*store.SelectAhead + 100)
	v := e.view()
	defer v.Close()
	for _, any := range []bool{false, true} {
		for _, at := range []int{1, 100} {
			sel := allWide
			sel.AnyOrder = any
			ctx, cancel := context.WithCancel(context.Background())
			seen, failed := iterate(v.Select(ctx, sel), func(seen int) {
				if seen == at {
					cancel()
				}
			})
			cancel()
			if !errors.Is(failed, context.Canceled) || seen >= at+store.SelectAhead {
				e.Errorf("cancelled at series %d, any order %v: %d series, then %v", at, any, seen, failed)
			}
		}
	}
}

// selectOnClosedView closes the view while the caller has a series.
func selectOnClosedView(e *env) {
	e.wide(10)
	for _, any := range []bool{false, true} {
		v := e.view()
		sel := allWide
		sel.AnyOrder = any
		seen, failed := iterate(v.Select(context.Background(), sel), func(seen int) {
			if seen != 3 {
				return
			}
			if err := v.Close(); err != nil {
				e.Error(err)
			}
		})
		if seen != 3 || !errors.Is(failed, store.ErrClosed) {
			e.Errorf("any order %v: %d series and %v after the view was closed at the third", any, seen, failed)
		}
	}
}

// selectLater: calling Select does nothing yet.
func selectLater(e *env) {
	e.wide(3)
	v := e.view()
	never := v.Select(context.Background(), allWide)
	if err := v.Close(); err != nil {
		e.Fatal(err)
	}
	for s, err := range never {
		if !errors.Is(err, store.ErrClosed) {
			e.Errorf("a selection that began after the view was closed: %v, %v", s, err)
		}
	}
}

// selectBesideChanges selects during writes, deletes and maintenance. Every untouched
// series is yielded once and in order, and no series that never existed.
func selectBesideChanges(e *env) {
	const still, rounds = 600, 15
	e.wide(still)
	stop := e.maintained()
	defer stop()
	changes := func(worker int) func() error {
		return func() error {
			for round := range rounds {
				var batch []scriptSample
				for i := range 20 {
					s := model.Series{Metric: "wide", Type: model.TypeLong, Tags: model.MustTags("host", fmt.Sprintf("h%06d", i*30), "worker", fmt.Sprint(worker))}
					batch = append(batch, scriptSample{series: s, timeMS: int64(round), value: value{bits: 1}})
				}
				var b store.Batch
				for {
					if err := fill(context.Background(), e.s, &b, batch); err != nil {
						return err
					}
					err := e.s.Append(context.Background(), &b)
					if err == nil {
						break
					}
					if !errors.Is(err, store.ErrStale) {
						return err
					}
				}
				d := store.Deletion{Metric: "wide", Range: model.AllTime, Matchers: model.Matchers([]model.Tag{{Name: "worker", Value: fmt.Sprint(worker)}})}
				if err := e.s.Delete(context.Background(), d); err != nil {
					return err
				}
			}
			return nil
		}
	}
	e.together(changes(0), changes(1), func() error { return e.selectAll(rounds, still, false) }, func() error { return e.selectAll(rounds, still, true) })
}

func (e *env) selectAll(rounds, still int, any bool) error {
	for range rounds {
		v, err := e.s.View(context.Background())
		if err != nil {
			return err
		}
		err = e.checkWide(v, still, any)
		if err := errors.Join(err, v.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) checkWide(v store.View, still int, any bool) error {
	sel := allWide
	sel.AnyOrder = any
	list, err := Select(context.Background(), v, sel)
	if err != nil {
		return err
	}
	untouched, seen := 0, map[model.Series]bool{}
	for i, s := range list {
		worker, changing := s.Tags.Get("worker")
		host, _ := s.Tags.Get("host")
		switch {
		case seen[s.Series]:
			return fmt.Errorf("%v is selected twice", s.Series)
		case !any && i > 0 && list[i-1].Compare(s.Series) >= 0:
			return fmt.Errorf("%v follows %v", s.Series, list[i-1].Series)
		case s.Metric != "wide" || s.Type != model.TypeLong || len(host) != 7 || changing && worker != "0" && worker != "1":
			return fmt.Errorf("%v was never written", s.Series)
		case !changing:
			untouched++
		}
		seen[s.Series] = true
	}
	if untouched != still {
		return fmt.Errorf("%d of %d series are selected that nobody touches", untouched, still)
	}
	return nil
}

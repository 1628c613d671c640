package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A runner does the ops of a script to one store and writes down the answers.
// Answers do not depend on how a store cuts its blocks, so those of two stores
// can be compared as text.
type runner struct {
	tb      testing.TB
	h       *Harness
	s       store.Store          // nil once closed
	origin  time.Time            // what @ means; zero: answers hold no @
	mortal  map[samplePlace]bool // written with a time-to-live
	metrics map[string]bool      // ever written
	held    *heldView            // nil, or a view kept open by hold
}

func newRunner(tb testing.TB, h *Harness) *runner {
	return &runner{tb: tb, h: h, s: h.Open(tb), mortal: map[samplePlace]bool{}, metrics: map[string]bool{}}
}

func (r *runner) close() {
	if r.s == nil {
		return
	}
	r.release()
	s := r.s
	r.s = nil
	if err := s.Close(); err != nil {
		r.tb.Errorf("Close: %v", err)
	}
}

// do runs one op and returns its answer: "" for a plain success.
func (r *runner) do(o op) string {
	ctx := context.Background()
	switch o.verb {
	case "append":
		r.note(o.samples)
		return answer(r.append(ctx, o.samples))
	case "delete", "erase":
		if r.held != nil {
			r.held.deleted(o)
		}
		return answer(r.s.Delete(ctx, o.deletion()))
	case "read":
		return r.inView(func(v store.View) string { return r.read(ctx, v, o) })
	case "select":
		if o.raw {
			r.settle()
		}
		return r.inView(func(v store.View) string { return r.selectSeries(ctx, v, o) })
	case "names":
		r.settle()
		return r.inView(func(v store.View) string { return r.names(ctx, v, o.names) })
	case "hold":
		return answer(r.hold(ctx))
	case "look":
		return answer(r.look(ctx))
	case "flush":
		r.flush()
	case "merge":
		r.merge()
	case "reopen":
		r.reopen()
	case "crash":
		r.crash()
	case "advance":
		r.h.advance(o.delay)
	default:
		return r.keyValue(ctx, o)
	}
	return ""
}

// note remembers what is about to be written.
func (r *runner) note(samples []scriptSample) {
	for _, p := range samples {
		r.metrics[p.series.Metric] = true
		if p.ttl > 0 {
			r.mortal[samplePlace{p.series, p.timeMS}] = true
		}
	}
	if r.held != nil {
		r.held.appended(samples)
	}
}

// settle merges if samples may have expired: their names and series may be
// listed until then.
func (r *runner) settle() {
	if len(r.mortal) > 0 {
		r.merge()
	}
}

func (r *runner) flush() {
	if r.h.Flush != nil {
		r.h.Flush(r.tb, r.s)
	}
}

func (r *runner) merge() {
	r.flush()
	if r.h.Merge != nil {
		r.h.Merge(r.tb, r.s)
	}
}

func (r *runner) reopen() {
	r.close()
	r.s = r.h.Open(r.tb)
}

// crash ends the store without notice if the harness can, and opens it again.
func (r *runner) crash() {
	if r.h.Crash == nil {
		r.reopen()
		return
	}
	r.release()
	s := r.s
	r.s = nil
	r.h.Crash(r.tb, s)
	r.s = r.h.Open(r.tb)
}

// maxStale bounds how often one batch is built again: a store that says
// ErrStale every time is broken.
const maxStale = 100

// append stores one batch the way package ingest does: lookup, create, and
// from the start again when the epoch has moved on.
func (r *runner) append(ctx context.Context, samples []scriptSample) error {
	var b store.Batch
	for range maxStale {
		if err := fill(ctx, r.s, &b, samples); err != nil {
			return err
		}
		if err := r.s.Append(ctx, &b); !errors.Is(err, store.ErrStale) {
			return err
		}
	}
	return fmt.Errorf("append was stale %d times in a row", maxStale)
}

func fill(ctx context.Context, s store.Store, b *store.Batch, samples []scriptSample) error {
	b.Reset(s.Epoch())
	for _, p := range samples {
		ref, err := refOf(ctx, s, p.series)
		if err != nil {
			return err
		}
		switch k := p.series.Type.Kind(); {
		case k == model.Long:
			b.AddLong(ref, p.timeMS, int64(p.value.bits), p.ttl)
		case k == model.Double:
			b.AddDouble(ref, p.timeMS, math.Float64frombits(p.value.bits), p.ttl)
		case k == model.Null:
			b.AddNull(ref, p.timeMS, p.ttl)
		default:
			b.AddBytes(ref, p.timeMS, []byte(p.value.data), p.ttl)
		}
	}
	return nil
}

// refOf returns the ref of a series for appending.
func refOf(ctx context.Context, s store.Store, series model.Series) (store.Ref, error) {
	if ref, ok := s.Lookup(series.AppendKey(nil)); ok {
		return ref, nil
	}
	ref, err := s.Create(ctx, series)
	if err != nil {
		err = fmt.Errorf("create %s: %w", series, err)
	}
	return ref, err
}

func (r *runner) inView(ask func(store.View) string) string {
	v, err := r.s.View(context.Background())
	if err != nil {
		return answer(err)
	}
	text := ask(v)
	if err := v.Close(); err != nil {
		text += "\nclosing the view: " + answer(err)
	}
	return text
}

func (r *runner) read(ctx context.Context, v store.View, o op) string {
	s, ok, err := findSeries(ctx, v, o.series, o.within)
	if err != nil {
		return answer(err)
	}
	if !ok {
		return "(none)"
	}
	ro := store.ReadOptions{Range: o.within, Descending: o.desc, Limit: o.limit}
	samples, err := readSamples(ctx, v, s, ro)
	if err == nil && o.summarize != "" {
		samples, err = readSummarized(ctx, v, s, ro, samples, summarizers[o.summarize], model.AllStats)
	}
	if err != nil {
		return answer(err)
	}
	return r.samplesText(s.Type.Kind(), samples)
}

func (r *runner) samplesText(k model.Kind, samples []readSample) string {
	w := &writer{origin: r.origin}
	for i, p := range samples {
		if i > 0 {
			w.WriteByte(' ')
		}
		w.WriteString(w.time(p.timeMS) + "=" + valueText(k, p.value))
	}
	return cmp.Or(w.String(), "(none)")
}

// findSeries selects exactly one series.
func findSeries(ctx context.Context, v store.View, want model.Series, within model.TimeRange) (store.Series, bool, error) {
	sel := store.Selection{Metric: want.Metric, Range: within}
	for name, value := range want.Tags.All() {
		sel.Matchers = append(sel.Matchers, model.Matcher{Tag: name, Values: []string{value}})
	}
	list, err := Select(ctx, v, sel)
	if err != nil {
		return store.Series{}, false, err
	}
	for _, s := range list {
		if s.Series == want {
			return s, true, nil
		}
	}
	return store.Series{}, false, nil
}

// selectSeries writes the selected series, one per line. Since a store decides
// how coarsely it looks at the range, those without a sample in it are left
// out, unless the op says raw.
func (r *runner) selectSeries(ctx context.Context, v store.View, o op) string {
	sel := store.Selection{Metric: o.metric, Matchers: o.matchers, Range: o.within, Limit: o.limit, LimitKey: "test.max_series"}
	list, err := Select(ctx, v, sel)
	if err != nil {
		return answer(err)
	}
	if err := checkSelected(sel, list); err != nil {
		return answer(err)
	}
	var lines []string
	for _, s := range list {
		if !o.raw {
			samples, err := readSamples(ctx, v, s, store.ReadOptions{Range: o.within, Limit: 1})
			if err != nil {
				return answer(err)
			}
			if len(samples) == 0 {
				continue
			}
		}
		lines = append(lines, seriesText(s.Series))
	}
	return cmp.Or(strings.Join(lines, "\n"), "(none)")
}

func checkSelected(sel store.Selection, list []store.Series) error {
	for i, s := range list {
		if s.Metric != sel.Metric || !model.MatchesAll(sel.Matchers, s.Tags) {
			return fmt.Errorf("selected %s, which does not match", s)
		}
		if i > 0 && list[i-1].Compare(s.Series) >= 0 {
			return fmt.Errorf("selected %s before %s: wrong order or twice", list[i-1], s)
		}
	}
	return nil
}

func (r *runner) names(ctx context.Context, v store.View, q store.NamesQuery) string {
	names, more, err := v.Names(ctx, q)
	if err != nil {
		return answer(err)
	}
	var parts []string
	for _, n := range names {
		parts = append(parts, quoted(n))
	}
	if more {
		parts = append(parts, "and more")
	}
	return cmp.Or(strings.Join(parts, " "), "(none)")
}

func (r *runner) keyValue(ctx context.Context, o op) string {
	t := o.text
	switch o.verb {
	case "set":
		return answer(r.s.Set(ctx, t[0], t[1], t[2], t[3]))
	case "unset":
		return answer(r.s.Unset(ctx, t[0], t[1], t[2]))
	case "get":
		v, err := r.s.Get(ctx, t[0], t[1], t[2])
		if err != nil {
			return answer(err)
		}
		return strconv.Quote(v.Text)
	}
	prefix := ""
	if len(t) > 2 {
		prefix = t[2]
	}
	var keys []string
	for k, err := range r.s.Keys(ctx, t[0], t[1], prefix) {
		if err != nil {
			return answer(err)
		}
		keys = append(keys, quoted(k))
	}
	return cmp.Or(strings.Join(keys, " "), "(none)")
}

// answer writes an error by its type, since stores differ in their words.
func answer(err error) string {
	var input *store.InputError
	var limit *store.LimitError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &input):
		return "input error"
	case errors.As(err, &limit):
		return fmt.Sprintf("limit error: %s of %d", limit.Limit, limit.Max)
	case errors.Is(err, store.ErrNotFound):
		return "not found"
	}
	return "error: " + err.Error()
}

// A readSample is one sample as a cursor gave it.
type readSample struct {
	timeMS int64
	value  value
}

// readSamples reads a series and checks the form of each block.
func readSamples(ctx context.Context, v store.View, s store.Series, o store.ReadOptions) ([]readSample, error) {
	c := v.Read(ctx, s, o)
	defer c.Close()
	var out []readSample
	for {
		b, err := c.Next()
		if err != nil {
			return out, err
		}
		if b == nil {
			break
		}
		if b.Stats != nil {
			return out, fmt.Errorf("read %s: statistics where samples were asked for", s)
		}
		if out, err = addBlock(out, s, o, b); err != nil {
			return out, fmt.Errorf("read %s: %w", s, err)
		}
	}
	if o.Limit > 0 && len(out) > o.Limit {
		return out, fmt.Errorf("read %s: %d samples, limit was %d", s, len(out), o.Limit)
	}
	return out, nil
}

// addBlock appends the samples of a block after checking its columns, its
// order and its place in the range.
func addBlock(out []readSample, s store.Series, o store.ReadOptions, b *store.Block) ([]readSample, error) {
	k, n := s.Type.Kind(), b.Len()
	switch {
	case n == 0:
		return out, errors.New("block without samples")
	case k.Fixed() && len(b.Values) != n:
		return out, fmt.Errorf("%d times but %d values", n, len(b.Values))
	case k.Variable() && len(b.Offsets) != n+1:
		return out, fmt.Errorf("%d times but %d offsets", n, len(b.Offsets))
	}
	for i, ms := range b.Times {
		p := readSample{timeMS: ms}
		switch {
		case k.Fixed():
			p.value.bits = b.Values[i]
		case k.Variable():
			p.value.data = string(b.Bytes(i))
		}
		if err := follows(out, o, ms); err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

// follows checks that a sample at ms may come after those in out.
func follows(out []readSample, o store.ReadOptions, ms int64) error {
	if !o.Range.Contains(ms) {
		return fmt.Errorf("sample at %d is outside the range %d..%d", ms, o.Range.StartMS, o.Range.EndMS)
	}
	if len(out) == 0 {
		return nil
	}
	last := out[len(out)-1].timeMS
	if ms == last || (ms < last) != o.Descending {
		return fmt.Errorf("sample at %d came after the one at %d (descending=%v)", ms, last, o.Descending)
	}
	return nil
}

// summarizers are how scripts let time be cut for statistics: not at all, into spans
// of 7 seconds, of which every third is in one piece, or into single instants.
var summarizers = map[string]func(ms int64) int64{
	"all":  func(int64) int64 { return math.MaxInt64 },
	"none": func(ms int64) int64 { return ms },
	"some": func(ms int64) int64 {
		n := ms / 7000
		if n%3 == 0 || n == math.MaxInt64/7000 {
			return ms
		}
		if ms < 0 {
			return n * 7000
		}
		return n*7000 + 6999
	},
}

// readSummarized reads a series again with statistics allowed, checks every
// statistic against plain, the samples of the same read without them, and
// returns the samples that blocks and statistics together stand for.
func readSummarized(ctx context.Context, v store.View, s store.Series, o store.ReadOptions,
	plain []readSample, final func(ms int64) int64, needs model.StatSet) ([]readSample, error) {
	var problem error
	o.Summarize = &store.Summary{Needs: needs, Final: func(ms int64) int64 {
		if !o.Range.Contains(ms) {
			problem = fmt.Errorf("asked for the span of %d, which is outside the range %d..%d", ms, o.Range.StartMS, o.Range.EndMS)
		}
		return final(ms)
	}}
	c := v.Read(ctx, s, o)
	defer c.Close()
	var out []readSample
	for {
		b, err := c.Next()
		switch {
		case err != nil:
			return out, err
		case b == nil:
			return out, problem
		case b.Stats == nil:
			out, err = addBlock(out, s, o, b)
		case b.Len() > 0 || len(b.Stats) == 0:
			err = fmt.Errorf("block with %d statistics and %d samples", len(b.Stats), b.Len())
		default:
			for i := 0; i < len(b.Stats) && err == nil; i++ {
				out, err = addStats(out, s.Type.Kind(), o, &b.Stats[i], plain)
			}
		}
		if err != nil {
			return out, fmt.Errorf("summarize %s: %w", s, err)
		}
	}
}

func addStats(out []readSample, k model.Kind, o store.ReadOptions, s *model.Stats, plain []readSample) ([]readSample, error) {
	if !k.Fixed() {
		return out, fmt.Errorf("statistics of a %s series", k)
	}
	if s.LastMS > o.Summarize.Final(s.FirstMS) {
		return out, fmt.Errorf("statistics of %d..%d, which is not of one span", s.FirstMS, s.LastMS)
	}
	var run []readSample
	for _, p := range plain {
		if s.FirstMS <= p.timeMS && p.timeMS <= s.LastMS {
			run = append(run, p)
		}
	}
	if err := checkStats(k, *s, run, o.Summarize.Needs); err != nil {
		return out, err
	}
	for _, p := range run {
		if err := follows(out, o, p.timeMS); err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

// checkStats compares statistics with the samples that they stand for, which
// may be in either order.
func checkStats(k model.Kind, got model.Stats, run []readSample, needs model.StatSet) error {
	if len(run) == 0 {
		return fmt.Errorf("statistics of %d samples in %d..%d, where there is none", got.Count, got.FirstMS, got.LastMS)
	}
	run = slices.Clone(run)
	slices.SortFunc(run, func(a, b readSample) int { return cmp.Compare(a.timeMS, b.timeMS) })
	samples := make([]reference.Sample, len(run))
	sumOfSizes := 0.0
	for i, p := range run {
		samples[i] = reference.Sample{TimeMS: p.timeMS, Bits: p.value.bits}
		sumOfSizes += math.Abs(model.Float(k, p.value.bits))
	}
	want := reference.Stats(k, samples)
	var wrong []string
	compare := func(what string, same bool, got, want any) {
		if !same {
			wrong = append(wrong, fmt.Sprintf("%s %v, want %v", what, got, want))
		}
	}
	compare("count", got.Count == want.Count, got.Count, want.Count)
	compare("first time", got.FirstMS == want.FirstMS, got.FirstMS, want.FirstMS)
	compare("last time", got.LastMS == want.LastMS, got.LastMS, want.LastMS)
	need := func(what model.StatSet) bool { return needs&what != 0 }
	compare("first value", !need(model.StatFirst) || got.First == want.First, got.First, want.First)
	compare("last value", !need(model.StatLast) || got.Last == want.Last, got.Last, want.Last)
	compare("min", !need(model.StatMin) || sameNumber(got.Min, want.Min), got.Min, want.Min)
	compare("max", !need(model.StatMax) || sameNumber(got.Max, want.Max), got.Max, want.Max)
	compare("sum", !need(model.StatSum) || sameSum(got.Sum, want.Sum, sumOfSizes), got.Sum, want.Sum)
	if len(wrong) > 0 {
		return fmt.Errorf("statistics of %d..%d: %s", got.FirstMS, got.LastMS, strings.Join(wrong, "; "))
	}
	return nil
}

// sameNumber tells 0 from -0.
func sameNumber(a, b float64) bool {
	return a == b && math.Signbit(a) == math.Signbit(b) || math.IsNaN(a) && math.IsNaN(b)
}

// sameSum allows what another order of additions may change: 1e-12 of the sum
// of the values' sizes. Where sizes overflow, the sum depends on the order.
func sameSum(got, want, sumOfSizes float64) bool {
	switch {
	case math.IsNaN(sumOfSizes):
		return math.IsNaN(got)
	case math.IsInf(sumOfSizes, 1):
		return sameNumber(got, want) || math.IsInf(want, 0) || math.IsNaN(got)
	}
	return math.Abs(got-want) <= 1e-12*sumOfSizes
}

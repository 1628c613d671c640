package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// A generator makes random operations. The same seed gives the same list.
type generator struct {
	rng      *rand.Rand
	originMS int64
	nowMS    int64 // moves with the advance operations made so far
	expiry   bool  // make times-to-live and advance operations
	metrics  []string
	known    []model.Series
}

// newGenerator makes operations on samples around origin.
func newGenerator(seed uint64, origin time.Time, expiry bool) *generator {
	return &generator{
		rng: rand.New(rand.NewPCG(seed, 0)), originMS: origin.UnixMilli(), nowMS: origin.UnixMilli(),
		expiry: expiry, metrics: genMetrics,
	}
}

var (
	genMetrics = []string{"load", "mem.free", "żółw", "\U0001f422"}
	genTags    = map[string][]string{"host": {"a", "b", "ab", "\U0001f422", "\ue000"}, "dc": {"x", "y"}}
	genTypes   = []model.Type{
		model.TypeLong, model.TypeLong, model.TypeDouble, model.TypeDouble, model.TypeDouble,
		model.TypeString, model.TypeComplex, model.TypeNull, "acme.blob",
	}
	genPatterns = []string{"a.*", ".*b", "[a-z]+", ".", "a|x", "nothing"}
)

func pick[T any](g *generator, list []T) T { return list[g.rng.IntN(len(list))] }

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.rng.IntN(n) == 0 }

func (g *generator) ops(count int) []op {
	kinds := []struct {
		weight int
		make   func() op
	}{
		{40, g.append}, {34, g.read}, {8, g.selectOp}, {8, g.names}, {8, g.delete}, {8, g.keyValue},
		{6, g.bare("flush")}, {3, g.bare("merge")}, {2, g.bare("reopen")}, {2, g.bare("crash")},
		{2, g.bare("hold")}, {6, g.bare("look")}, {4, g.advance},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	var out []op
	for len(out) < count {
		n := g.rng.IntN(total)
		for _, k := range kinds {
			if n -= k.weight; n < 0 {
				out = append(out, k.make())
				break
			}
		}
	}
	return out
}

func (g *generator) bare(verb string) func() op {
	return func() op { return op{verb: verb, within: model.AllTime} }
}

func (g *generator) advance() op {
	o := op{verb: "advance", within: model.AllTime}
	if g.expiry {
		o.delay = time.Duration(g.rng.IntN(20_000)) * time.Millisecond
		g.nowMS += o.delay.Milliseconds()
	}
	return o
}

// series returns mostly one that was written before, so that samples meet.
func (g *generator) series() model.Series {
	if len(g.known) > 0 && !g.chance(4) {
		return pick(g, g.known)
	}
	tags := []string{}
	for _, name := range []string{"host", "dc"} {
		if !g.chance(4) {
			tags = append(tags, name, pick(g, genTags[name]))
		}
	}
	return model.Series{Metric: pick(g, g.metrics), Tags: model.MustTags(tags...), Type: pick(g, genTypes)}
}

func (g *generator) append() op {
	o := op{verb: "append", within: model.AllTime}
	for range 1 + g.rng.IntN(4) {
		s := g.series()
		g.known = append(g.known, s)
		run := g.run(s)
		if g.chance(3) {
			g.rng.Shuffle(len(run), func(i, j int) { run[i], run[j] = run[j], run[i] })
		}
		if g.chance(3) { // some of them twice
			run = append(run, run[:1+g.rng.IntN(len(run))]...)
			last := &run[len(run)-1]
			last.value = g.values(s.Type)(0)
		}
		o.samples = append(o.samples, run...)
	}
	if g.chance(3) {
		g.rng.Shuffle(len(o.samples), func(i, j int) { o.samples[i], o.samples[j] = o.samples[j], o.samples[i] })
	}
	return o
}

// run makes the samples of one series in one batch.
func (g *generator) run(s model.Series) []scriptSample {
	n := 1 + g.rng.IntN(6)
	if g.chance(4) {
		n = 1 + g.rng.IntN(150)
	}
	start, stepMS := g.time(), pick(g, []int64{1, 1000, 10_000, 907_200_000})
	next := g.values(s.Type)
	ttl := uint32(0)
	if g.expiry && g.chance(4) {
		ttl = uint32(1 + g.rng.IntN(30))
		start, stepMS = g.recent(), 1000
	}
	out := make([]scriptSample, n)
	for i := range out {
		ms := start + int64(i)*stepMS
		if n > 1 && g.chance(5) {
			ms = g.time()
		}
		out[i] = scriptSample{series: s, timeMS: apart(ms, false), value: next(i), ttl: ttl}
		if model.ExpiryMS(out[i].timeMS, ttl) <= g.nowMS {
			out[i].timeMS = apart(ms, true)
		}
	}
	return out
}

// recent is a full second of the last twenty.
func (g *generator) recent() int64 {
	return g.nowMS/1000*1000 - 1000*int64(g.rng.IntN(20))
}

// apart moves a time so that samples that are gone on arrival never meet
// others: whether they hide an earlier one of the same time is not promised.
func apart(ms int64, goneOnArrival bool) int64 {
	ms -= (ms%10 + 10) % 10
	if goneOnArrival {
		return ms - 13
	}
	return ms
}

// time picks from few places, so that samples meet: the last seconds,
// both sides of row borders, before 1970, and far away.
func (g *generator) time() int64 {
	const row = 1_814_400_000
	switch g.rng.IntN(10) {
	case 0:
		return row*int64(g.rng.IntN(5)-2) + 10*int64(g.rng.IntN(3)-1)
	case 1:
		return pick(g, []int64{-62_135_596_800_000, 253_402_300_799_990, -10, 0, 10})
	case 2:
		return -1_000_000 + 1000*int64(g.rng.IntN(100))
	case 3, 4:
		return g.recent()
	}
	return someTimeMS + 10_000*int64(g.rng.IntN(300))
}

// values returns a source of values of type t with one of several habits.
func (g *generator) values(t model.Type) func(i int) value {
	habit, start := g.rng.IntN(5), g.rng.IntN(1000)
	switch t.Kind() {
	case model.Long:
		return func(i int) value { return value{bits: g.long(habit, start+i)} }
	case model.Double:
		return func(i int) value { return value{bits: g.double(habit, start+i)} }
	case model.Null:
		return func(int) value { return value{} }
	case model.Complex:
		return func(i int) value { return value{data: fmt.Sprintf("%016d", start+i)} }
	}
	return func(i int) value {
		if habit == 0 {
			return value{data: strings.Repeat(string(rune('a'+i%20)), g.rng.IntN(40))}
		}
		return value{data: pick(g, []string{"", "ok", "failed", "\x00", "żółw \U0001f422"})}
	}
}

func (g *generator) long(habit, i int) uint64 {
	switch habit {
	case 0:
		return 42
	case 1:
		return g.rng.Uint64()
	case 2:
		return uint64(int64(-i * 1_000_003))
	}
	return uint64(i)
}

func (g *generator) double(habit, i int) uint64 {
	switch habit {
	case 0:
		return math.Float64bits(1.5)
	case 1:
		return g.rng.Uint64()
	case 2:
		odd := []float64{math.Copysign(0, -1), math.Inf(1), math.NaN(), 5e-324, math.MaxFloat64}
		return math.Float64bits(odd[i%len(odd)])
	}
	return math.Float64bits(float64(i*37%1000) / 100)
}

func (g *generator) within() model.TimeRange {
	r := model.AllTime
	if g.chance(2) {
		return r
	}
	if g.chance(4) {
		r.StartMS = g.time()
		return r
	}
	if g.chance(4) {
		r.EndMS = g.time()
		return r
	}
	a, b := g.time()+int64(g.rng.IntN(3)-1), g.time()+int64(g.rng.IntN(3)-1)
	if a > b && !g.chance(10) { // now and then a range that is empty
		a, b = b, a
	}
	return model.TimeRange{StartMS: a, EndMS: b}
}

func (g *generator) read() op {
	o := op{verb: "read", series: g.series(), within: g.within(), desc: g.chance(2)}
	switch g.rng.IntN(3) {
	case 0:
		o.limit = 1 + g.rng.IntN(20)
	case 1:
		o.summarize = pick(g, []string{"all", "some", "none"})
	}
	return o
}

func (g *generator) matchers() []model.Matcher {
	var out []model.Matcher
	for g.chance(2) {
		name := pick(g, []string{"host", "dc"})
		m := model.Matcher{Tag: name}
		for range 1 + g.rng.IntN(2) {
			m.Values = append(m.Values, pick(g, genTags[name]))
		}
		if g.chance(3) {
			m.Values, m.Patterns = m.Values[:1], []*model.Pattern{g.pattern()}
		}
		if g.chance(20) {
			m.Tag = "rack"
		}
		out = append(out, m)
	}
	return out
}

func (g *generator) pattern() *model.Pattern {
	p, err := model.NewPattern(pick(g, genPatterns))
	if err != nil {
		panic(err) // genPatterns are constants
	}
	return p
}

func (g *generator) selectOp() op {
	o := op{verb: "select", metric: pick(g, g.metrics), matchers: g.matchers(), within: g.within()}
	o.raw = o.within == model.AllTime
	return o
}

func (g *generator) delete() op {
	return op{verb: "delete", metric: pick(g, g.metrics), matchers: g.matchers(), within: g.within()}
}

func (g *generator) names() op {
	q := store.NamesQuery{Kind: store.NameKind(g.rng.IntN(3)), Limit: g.rng.IntN(4)}
	if q.Kind != store.MetricNames && g.chance(2) {
		q.Metric = pick(g, g.metrics)
	}
	if q.Kind == store.TagValues && g.chance(2) {
		q.Tag = pick(g, []string{"host", "dc"})
	}
	switch g.rng.IntN(6) {
	case 0:
		q.Prefix = pick(g, []string{"a", "m", "\U0001f422"})
	case 1:
		q.Pattern = g.pattern()
	case 2:
		q.After = pick(g, []string{"a", "load", "\U0001f422"})
	}
	return op{verb: "names", names: q, within: model.AllTime}
}

func (g *generator) keyValue() op {
	service, serviceKey, key := pick(g, []string{"s", "t"}), pick(g, []string{"k", "l"}), pick(g, []string{"a", "ab", "b"})
	o := op{within: model.AllTime, verb: pick(g, []string{"set", "set", "unset", "get", "keys"}), text: []string{service, serviceKey, key}}
	if o.verb == "set" {
		o.text = append(o.text, fmt.Sprint("v", g.rng.IntN(100)))
	}
	return o
}

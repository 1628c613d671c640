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
	rng     *rand.Rand
	nowMS   int64 // moves with the advance operations made so far
	expiry  bool  // make times-to-live and advance operations
	metrics []string
	known   []model.Series
}

// newGenerator makes operations on samples around origin.
func newGenerator(seed uint64, origin time.Time, expiry bool) *generator {
	return &generator{
		rng: rand.New(rand.NewPCG(seed, 0)), nowMS: origin.UnixMilli(),
		expiry: expiry, metrics: genMetrics,
	}
}

var (
	genMetrics = []string{"load", "mem.free", "żółw", "\U0001f422", strings.Repeat("m", longName)}
	genTags    = map[string][]string{
		"host": {"a", "b", "ab", "\U0001f422", "\ue000", "\uffff", "a=b:c", "\x01", strings.Repeat("h", longName), strings.Repeat("h", longName-1) + "i"},
		"dc":   {"x", "y"},
	}
	genTypes = []model.Type{
		model.TypeLong, model.TypeLong, model.TypeDouble, model.TypeDouble, model.TypeDouble,
		model.TypeString, model.TypeComplex, model.TypeNull, "acme.blob",
	}
	genPatterns = []string{"a.*", ".*b", "[a-z]+", ".", "a|x", "nothing"}
)

// longText does not fit the 16 bits of a length.
var longText = strings.Repeat("0123456789abcdef", 4097)

// longName is a length of names that senders may have: the default limits of
// package ingest are not above it.
const longName = 1024

// Widths of partitions that stores are tested with: KairosDB's three weeks, and
// an hour.
var genWidths = []int64{1_814_400_000, 3_600_000}

// AwkwardTimes are the ends of int64, and borders of partitions at both ends
// and around 1970.
var AwkwardTimes = func() []int64 {
	times := []int64{
		math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64, -1, 0, 1,
		-62_135_596_800_000, 253_402_300_799_999, // years 1 and 9999
	}
	for _, width := range genWidths {
		for _, border := range []int64{math.MinInt64 / width * width, -width, width, 700 * width, math.MaxInt64 / width * width} {
			times = append(times, border-1, border, border+1)
		}
	}
	return times
}()

// AwkwardLongs are whole numbers at which codecs, statistics and conversions to a double change
// their behaviour.
var AwkwardLongs = []int64{
	math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1, -1, 0, 1,
	1<<53 - 1, 1 << 53, 1<<53 + 1, -1<<53 + 1, -1 << 53, -1<<53 - 1,
	math.MinInt32 - 1, math.MinInt32, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, 1 << 62, 1e18, 100_000_000_000,
}

// AwkwardDoubles are bits of doubles, each a special case somewhere: zeros, infinities, NaNs with
// payloads, quiet and signalling, denormals, the ends of exponents, numbers around 2^53 and 2^63,
// and decimals that are not binary fractions.
var AwkwardDoubles = func() []uint64 {
	bits := []uint64{
		0x7ff8000000000000, 0x7ff8000000000001, 0x7ff0000000000001, 0xfff8000000000000, 0xffffffffffffffff, // NaN
		0x0000000000000001, 0x000fffffffffffff, 0x800fffffffffffff, 0x0010000000000000, // denormals and the first normal number
	}
	for _, f := range []float64{
		0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64,
		1<<53 - 1, 1 << 53, 1<<53 + 2, 1 << 63, -1 << 63, 1 << 64, 1e15, 1e16, 1e22, 1e23, 1e300, 1e-300, 1e-5, 1e-7,
		0.1, 0.3, 1.0 / 3, 123456.789, 99.99, -0.01,
	} {
		bits = append(bits, math.Float64bits(f))
	}
	return bits
}()

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
		out[i] = scriptSample{series: s, timeMS: ms, value: next(i), ttl: ttl}
		if g.expiry {
			out[i].timeMS = apart(ms, false)
			if model.ExpiryMS(out[i].timeMS, ttl) <= g.nowMS {
				out[i].timeMS = apart(ms, true)
			}
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
	if ms < math.MinInt64+30 { // there is no room below
		if goneOnArrival {
			return math.MinInt64 + 35
		}
		return ms
	}
	ms -= (ms%10 + 10) % 10
	if goneOnArrival {
		return ms - 13
	}
	return ms
}

// time picks from few places, so that samples meet: the last seconds, both
// sides of partition borders, before 1970, and the ends of time.
func (g *generator) time() int64 {
	switch g.rng.IntN(10) {
	case 0:
		return pick(g, genWidths)*int64(g.rng.IntN(5)-2) + int64(g.rng.IntN(3)-1)
	case 1:
		return pick(g, AwkwardTimes)
	case 2:
		return -1_000_000 + 1000*int64(g.rng.IntN(100))
	case 3, 4:
		return g.recent()
	}
	return someTimeMS + 10_000*int64(g.rng.IntN(300))
}

// values returns a source of values of type t with one of several habits.
func (g *generator) values(t model.Type) func(i int) value {
	habit, start := g.rng.IntN(6), g.rng.IntN(1000)
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
		return value{data: pick(g, []string{"", "ok", "failed", "\x00", "\xff\xfe", "\u2028", "żółw \U0001f422", longText})}
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
	case 3:
		return uint64(pick(g, AwkwardLongs))
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
		return pick(g, AwkwardDoubles)
	case 3: // one among plain ones
		if g.chance(20) {
			return pick(g, AwkwardDoubles)
		}
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
	a, b := g.around(), g.around()
	if a > b && !g.chance(10) { // now and then a range that is empty
		a, b = b, a
	}
	return model.TimeRange{StartMS: a, EndMS: b}
}

// around is a time that samples have, or one beside it.
func (g *generator) around() int64 {
	ms := g.time()
	switch d := int64(g.rng.IntN(3) - 1); {
	case d < 0 && ms == math.MinInt64, d > 0 && ms == math.MaxInt64:
		return ms
	default:
		return ms + d
	}
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
		m.Not, m.Absent = g.chance(4), g.chance(4)
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
	if g.chance(6) {
		return op{verb: "erase", series: g.series(), within: g.within()}
	}
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
	if q.Kind == store.MetricNames && q.Pattern == nil && g.chance(3) {
		q.Delimiter = pick(g, []byte{'.', 'a', 'o', 'e'})
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

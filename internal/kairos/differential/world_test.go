package differential

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A world is the data that questions are about.
type world struct {
	metrics []string
	tags    map[string][]string // all values of each tag
	points  []point
	low     int64 // first and last time
	high    int64
	now     int64    // when it was made; zero unless times are relative to that
	compact bool     // Varve's points are in files
	zones   []string // to be named in questions
}

// A maker draws worlds and questions.
type maker struct{ *rand.Rand }

func newMaker(seed, number uint64) maker {
	return maker{rand.New(rand.NewPCG(seed, number))}
}

func (g maker) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g maker, of ...T) T { return of[g.IntN(len(of))] }

// Days of clock changes or calendar edges.
var days = []string{
	"2021-03-14 New York goes to summer time",
	"2021-11-07 and back",
	"2021-03-28 Berlin goes to summer time",
	"2021-10-31 and back",
	"2021-04-04 Lord Howe goes back by half an hour",
	"2018-11-04 Sao Paulo skips its midnight",
	"2018-02-18 Sao Paulo repeats an hour before midnight",
	"2011-12-30 Apia skips the day",
	"1986-01-01 Kathmandu moves by a quarter of an hour",
	"2020-02-28 a leap day comes",
	"2020-12-30 a year ends, in the middle of a week",
	"2017-05-31 a month ends on the 31st",
	"1970-01-01 the epoch",
	"1969-11-02 before it",
	"1950-06-15 long before it",
	"2021-10-21 a row of three weeks begins",
	"1970-01-22 the first row has ended",
	"9999-12-31 the last day that dates of four digits can say",
}

var zones = []string{
	"UTC", "", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns",
	"Pacific/Chatham", "Asia/Tokyo", "+05:30", "-03:30", "Etc/GMT+5", "EST", "US/Pacific",
}

// oldZones have other rules now than in the zone data of KairosDB, which are of 2020.
// Questions about them are for earlier times.
var oldZones = []string{"America/Sao_Paulo", "Asia/Tehran", "Pacific/Apia"}

// zoneDataMS is the begin of 2020.
const zoneDataMS = 1_577_836_800_000

// tagValues are words, and texts that may confuse a parser or an order.
var tagValues = []string{
	"a", "b", "c", "ab", "A", "a1", "10", "9", "a b", "x:y", "k=v", `q"u\o`, "ä", "日本", "～", "😀", "<&>", "a.b*", "%", "_", "/", "[1]", " s ",
	"\uffff", strings.Repeat("long", 60),
}

func (g maker) world() *world {
	w := &world{tags: map[string][]string{}, compact: g.chance(50)}
	step := pick[int64](g, 1000, 10_000, 60_000, 600_000, 3_600_000, 6*3_600_000, 24*3_600_000, 7*24*3_600_000)
	steps := 5 + g.IntN(60)
	var origin int64
	if g.chance(25) {
		w.now = time.Now().UnixMilli()
		step = 600_000
		// Half a step away from all multiples of it, now and for minutes to come.
		origin = w.now - w.now%1000 - int64(steps)*step + step/2
	} else {
		day, err := time.Parse(time.DateOnly, pick(g, days...)[:10])
		if err != nil {
			panic(err)
		}
		origin = day.UnixMilli() - step*int64(g.IntN(steps)) + g.Int64N(24)*3_600_000
		if g.chance(50) {
			origin += g.Int64N(3_600_000)
		}
	}
	for key := range 1 + g.IntN(3) {
		name := []string{"host", "dc", pick(g, "c p u", "a", "ключ", "k.e/y")}[key]
		for range 1 + g.IntN(4) {
			w.tags[name] = append(w.tags[name], pick(g, tagValues...))
		}
	}
	for m := range 1 + g.IntN(3) {
		metric := stand + fmt.Sprintf(".m%d", m)
		if g.chance(20) {
			metric += pick(g, " x", "/é", "%", "😀", `"`)
		}
		w.metrics = append(w.metrics, metric)
		g.fill(w, metric, origin, step, steps)
	}
	w.low, w.high = w.points[0].TimeMS, w.points[0].TimeMS
	for _, p := range w.points {
		w.low, w.high = min(w.low, p.TimeMS), max(w.high, p.TimeMS)
	}
	w.zones = zones
	if 2*w.high-w.low < zoneDataMS {
		w.zones = slices.Concat(zones, oldZones, oldZones)
	}
	return w
}

// fill makes the series of one metric.
func (g maker) fill(w *world, metric string, origin, step int64, steps int) {
	kinds := pick(g, []string{"long"}, []string{"double"}, []string{"long", "double"}, []string{"long", "double"},
		[]string{"string"}, []string{"double", "string"}, []string{"long", "double", "string"}, []string{"large"}, []string{"decimal"}, []string{"ends"}, []string{"odd"})
	scattered := g.chance(30) && w.now == 0
	taken := map[string]bool{}
	for s := range 1 + g.IntN(6) {
		tags := map[string]string{}
		for _, key := range sortedKeys(w.tags) {
			if len(tags) == 0 || g.chance(80) {
				tags[key] = pick(g, w.tags[key]...)
			}
		}
		for _, kind := range kinds {
			id := encode([]any{tags, typeOf(kind)})
			if taken[id] || len(kinds) > 1 && g.chance(30) {
				continue
			}
			taken[id] = true
			offset := int64(0)
			if kind == "string" || kind == "large" || kind == "ends" || kind == "odd" {
				offset = int64(s) // which of several is first at one time is not defined
			}
			for i := range steps {
				ms := origin + int64(i)*step
				if scattered {
					ms = origin + g.Int64N(int64(steps)*step)
				}
				if g.chance(85) || i == 0 {
					w.points = append(w.points, point{metric, tags, typeOf(kind), ms + offset, g.value(kind), 0})
				}
			}
		}
	}
	if len(taken) == 0 {
		w.points = append(w.points, point{metric, map[string]string{"host": "a"}, "long", origin, 1, 0})
	}
	g.overwrite(w, metric)
}

// overwrite overwrites some points, and keeps chance out of points that were written
// twice in one round.
func (g maker) overwrite(w *world, metric string) {
	at := map[string]bool{}
	kept := w.points[:0]
	var again []point
	for _, p := range w.points {
		id := fmt.Sprint(p.series(), p.TimeMS)
		if at[id] {
			continue
		}
		at[id] = true
		kept = append(kept, p)
		if p.Metric == metric && g.chance(5) {
			p.Round, p.Value = 1, g.value(p.Type)
			again = append(again, p)
		}
	}
	w.points = append(kept, again...)
}

func typeOf(kind string) string {
	switch kind {
	case "large", "ends":
		return "long"
	case "decimal", "odd":
		return "double"
	}
	return kind
}

// value draws a value. Doubles are multiples of 1/8, so that sums are exact in
// any order; those of kind decimal are positive, so that little is lost.
func (g maker) value(kind string) any {
	switch kind {
	case "long":
		return pick(g, g.IntN(20), g.IntN(20)-10, g.IntN(2_000_000)-1_000_000)
	case "large":
		return pick(g, int64(1)<<53+g.Int64N(9), -(int64(1)<<53)-g.Int64N(9), g.Int64(), -g.Int64(), int64(1)<<62)
	case "ends":
		return pick[int64](g, math.MinInt64, math.MinInt64+1, math.MaxInt64, math.MaxInt64-1, 1<<53-1, 1<<53, 1<<53+1, -1<<53-1, 0, -1, 1,
			math.MaxInt32, math.MaxInt32+1, math.MinInt32-1)
	case "odd":
		return pick[any](g, json.Number("-0.0"), json.Number("1e-05"), 0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-300, 1e300, math.MaxFloat64, -math.MaxFloat64,
			float64(1<<53-1), float64(1<<53), float64(1<<53+2), 1e15, 1e16, 1e21, 1e22, 9.223372036854775807e18, 0.1, 1.0/3)
	case "double":
		return pick(g, float64(g.IntN(200)-100)/8, float64(g.IntN(20)), float64(g.IntN(80_000_000))/8)
	case "decimal":
		return pick(g, float64(g.IntN(10_000)+1)/100, g.Float64()+0.001, 1e10*g.Float64()+1)
	default:
		return pick(g, "up", "down", "a b", "13", "ünï", "</x>", "  ", "zebra", "\u2028\t", "😀")
	}
}

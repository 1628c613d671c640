package graphite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// sampleNow is the time of the sample: on the day on which Europe's clocks went forward, and
// not a multiple of any step.
const sampleNow = 1711900837

// sampleSchemas and sampleAggregation are the rules of the sample.
const (
	sampleSchemas = "[fast]\npattern = ^fast\\.\nretentions = 10s:1h,60s:1d\n" +
		"[multi]\npattern = ^multi\\.\nretentions = 60s:2h,5m:12h,1h:60d\n" +
		"[slow]\npattern = ^slow\\.\nretentions = 300s:60d\n" +
		"[each]\npattern = ^each\\.\nretentions = 1s:10m,10s:6h\n" +
		"[seven]\npattern = ^seven\\.\nretentions = 7s:2h,49s:1d\n" +
		"[all]\npattern = .*\nretentions = 60s:2d,10m:20d\n"
	sampleAggregation = "[sum]\npattern = \\.sum$\nxFilesFactor = 0.3\naggregationMethod = sum\n" +
		"[max]\npattern = \\.max$\nxFilesFactor = 0\naggregationMethod = max\n" +
		"[min]\npattern = \\.min$\nxFilesFactor = 0.1\naggregationMethod = min\n" +
		"[last]\npattern = \\.last$\nxFilesFactor = 0.9\naggregationMethod = last\n" +
		"[zero]\npattern = \\.zero$\nxFilesFactor = 0\naggregationMethod = avg_zero\n" +
		"[absolute]\npattern = \\.absmax$\nxFilesFactor = 0\naggregationMethod = absmax\n"
)

// A sampled is a path with values in a range of time, given in seconds before
// sampleNow.
type sampled struct {
	path            string
	step            int64
	from, until     int64 // seconds before sampleNow
	value           func(r *rand.Rand, i int64) float64
	missing         float64 // share of missing values
	from2, missing2 int64   // all values between these seconds before sampleNow are missing
}

func wave(level, height, period float64) func(*rand.Rand, int64) float64 {
	return func(r *rand.Rand, i int64) float64 {
		return math.Round(1000*(level+height*math.Sin(float64(i)/period)+r.Float64()*height/5)) / 1000
	}
}

func constant(v float64) func(*rand.Rand, int64) float64 {
	return func(*rand.Rand, int64) float64 { return v }
}

// counter counts up, and restarts at 0 now and then.
func counter(each int64) func(*rand.Rand, int64) float64 {
	return func(r *rand.Rand, i int64) float64 { return float64((i % 97) * each) }
}

const hour = 3600

// sample has series of all kinds.
var sample = func() (all []sampled) {
	for i, host := range []string{"web01", "web02", "web10", "db01"} {
		f := float64(i + 1)
		all = append(all,
			sampled{path: "srv." + host + ".cpu.user", step: 60, from: 8 * hour, value: wave(20*f, 10, 9)},
			sampled{path: "srv." + host + ".cpu.system", step: 60, from: 8 * hour, value: wave(5*f, 3, 5), missing: 0.1},
			sampled{path: "srv." + host + ".requests", step: 60, from: 8 * hour, value: counter(int64(10 * f)), missing: 0.05},
		)
	}
	all = append(all,
		sampled{path: "srv.web01.cpu", step: 60, from: 3 * hour, value: constant(3)}, // a branch, too
		sampled{path: "srv.web02.mem", step: 60, from: 3 * hour, value: wave(1e9, 1e7, 30), from2: 2 * hour, missing2: hour},
		sampled{path: "fast.a.req", step: 10, from: 3 * hour, value: wave(100, 30, 20)},
		sampled{path: "fast.b.req", step: 10, from: 3 * hour, value: wave(50, 30, 11), missing: 0.3},
		sampled{path: "slow.a.size", step: 300, from: 30 * hour, value: wave(1000, 30, 4)},
		sampled{path: "slow.b.size", step: 300, from: 30 * hour, value: wave(2000, 300, 4), missing: 0.2},
		sampled{path: "seven.a", step: 7, from: 3 * hour, value: wave(7, 3, 15)},
	)
	for _, m := range []string{"sum", "avg", "max", "min", "last", "zero", "absmax"} {
		all = append(all,
			sampled{path: "multi.full." + m, step: 60, from: 50 * hour, value: wave(1, 50, 60)},
			sampled{path: "multi.gaps." + m, step: 60, from: 50 * hour, value: wave(1, 50, 60), missing: 0.3, from2: 9*hour + 38, missing2: 7*hour + 500})
	}
	all = append(all,
		sampled{path: "const.zero", step: 60, from: 6 * hour, value: constant(0)},
		sampled{path: "const.one", step: 60, from: 6 * hour, value: constant(1)},
		sampled{path: "const.minus", step: 60, from: 6 * hour, value: constant(-2.5)},
		sampled{path: "edge.single", step: 60, from: hour, until: hour - 60, value: constant(5)},
		sampled{path: "edge.first", step: 60, from: 8 * hour, until: 7 * hour, value: wave(5, 1, 3)},
		sampled{path: "edge.sparse", step: 60, from: 8 * hour, value: wave(5, 1, 3), missing: 0.8},
		sampled{path: "edge.negative", step: 60, from: 8 * hour, value: wave(-50, 20, 7)},
		sampled{path: "edge.signs", step: 60, from: 8 * hour, value: wave(0, 20, 7), missing: 0.05},
		sampled{path: "edge.huge", step: 60, from: 2 * hour, value: wave(1e300, 1e299, 7)},
		sampled{path: "edge.tiny", step: 60, from: 2 * hour, value: wave(1e-3, 1e-3, 7)},
		sampled{path: "edge.fraction", step: 60, from: 4 * hour, value: wave(0.5, 0.3, 7)},
		sampled{path: "edge.future", step: 60, from: hour, until: -hour, value: wave(5, 1, 3)},
	)
	for i, server := range []string{"web01", "web02", "db.01", "z-rich"} {
		dc := "dc" + string(rune('1'+i%2))
		all = append(all,
			sampled{path: fmt.Sprintf("disk.used;datacenter=%s;rack=a%d;server=%s", dc, i, server), step: 60, from: 4 * hour, value: wave(100, 10, 9)},
			sampled{path: fmt.Sprintf("disk.total;datacenter=%s;server=%s", dc, server), step: 60, from: 4 * hour, value: wave(500, 1, 9), missing: 0.2})
	}
	all = append(all,
		sampled{path: "net.in;if=eth0;note=a=b!c^d", step: 60, from: 2 * hour, value: wave(1, 1, 9)},
		sampled{path: "net.out;server=zürich", step: 60, from: 2 * hour, value: wave(1, 1, 9)},
		sampled{path: "net.in;if=eth1", step: 60, from: 2 * hour, value: wave(1, 1, 9)},
		sampled{path: "plain;zone=x{y},z", step: 60, from: 2 * hour, value: wave(1, 1, 9)})
	for _, name := range odd {
		all = append(all, sampled{path: "odd." + name, step: 60, from: 2 * hour, value: wave(1, 1, 9)})
		all = append(all, sampled{path: "odd." + name + ".below", step: 60, from: 2 * hour, value: wave(2, 1, 9)})
	}
	return append(all,
		sampled{path: "edge.denormal", step: 60, from: 2 * hour, value: func(_ *rand.Rand, i int64) float64 { return float64(i%5) * 5e-324 }},
		sampled{path: "edge.counter64", step: 60, from: 3 * hour, value: func(_ *rand.Rand, i int64) float64 { return math.MaxUint64 - float64(i%90)*1e15 }, missing: 0.1},
		sampled{path: "edge.alternating", step: 60, from: 3 * hour, value: func(_ *rand.Rand, i int64) float64 { return float64(i%3-1) * 1e16 }, missing: 0.1},
		sampled{path: "often.a", step: 13, from: 5 * hour, value: wave(3, 9, 20)}, // several in a minute
		sampled{path: "often.b", step: 47, from: 5 * hour, value: wave(3, 9, 20), missing: 0.2},
		sampled{path: "each.second", step: 1, from: 700, value: wave(30, 9, 20), missing: 0.1})
}()

// odd are nodes with characters that mean something in targets, globs, formats or files.
var odd = []string{"a{b,c}", "a{b", "b}c", "a[0]", "a[0", "a]0", "a,b", "a'b", `a"b`, "a(b)", "a)b", "a=b", "50%", "%d", "a:b", "a#b", "a@b", "a&b", "a+b",
	"a|b", `a\b`, "a?b", "a*b", "zürich", "日本", "a~b", "a!b", "a^b", "a$b", "$1", "a<b>", "UPPER", "upper", "1", "-1", "1e55", "true", "none", "inf", "a-b", "a_b", "a%20b", "a`b"}

// sampleLines returns the sample as lines of carbon: older are the lines that a store may
// have written to files before newer arrive.
func sampleLines() (older, newer string) {
	var lines [2]strings.Builder
	for n, s := range sample {
		r, there := rand.New(rand.NewPCG(uint64(n), 0)), true
		for at := (sampleNow-s.from)/s.step*s.step + s.step; at <= sampleNow-s.until; at += s.step {
			before := sampleNow - at
			v := s.value(r, at/s.step)
			if at%300 != 60 { // a single sample in the first minute of five would be a point: see docs/graphite.md
				there = r.Float64() >= s.missing
			}
			if !there || before < s.from2 && before >= s.missing2 {
				continue
			}
			part := 0
			if before < 90*60 {
				part = 1
			}
			fmt.Fprintf(&lines[part], "%s %v %d\n", s.path, v, at)
		}
	}
	return lines[0].String(), lines[1].String()
}

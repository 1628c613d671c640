package storetest

import (
	"cmp"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

var (
	seedFlag   = flag.Uint64("storetest.seed", 0, "first seed of the metamorphic test, 0 = by the clock")
	roundsFlag = flag.Int("storetest.rounds", 0, "rounds of the metamorphic test, 0 = up to 60, for at most 10 s")
	opsFlag    = flag.Int("storetest.ops", 150, "operations per round of the metamorphic test")
)

const (
	defaultRounds = 60
	defaultLimit  = 10 * time.Second

	shrinkRuns  = 1000 // bounds on making a failing list of operations smaller
	shrinkLimit = 60 * time.Second
)

// A Config is one way to run the store under test, for example with tiny
// blocks, or with a checkpoint after every few samples. What a Config changes
// must not change any answer.
type Config struct {
	Name string
	New  NewHarness
}

// RunMetamorphic does random operations to the store under each configuration
// and to a reference store, and compares all answers. Round i works with seed+i;
// a failure prints the seed that repeats it with
//
//	go test -run <this test> -storetest.seed=<seed> -storetest.rounds=1
//
// and a script, as small as could be made, in the language of this package: with
// the right answers added it is a story for the files of [Run].
//
// Rounds with an even seed have samples with a time-to-live, except for stores
// in real time and those whose names outlive expired samples.
func RunMetamorphic(t *testing.T, configs ...Config) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1e9
	}
	rounds := cmp.Or(*roundsFlag, defaultRounds)
	started := time.Now()
	for round := range rounds {
		if *roundsFlag == 0 && time.Since(started) > defaultLimit {
			t.Logf("%d rounds from seed %d on in %v", round, seed, time.Since(started).Round(time.Second))
			return
		}
		for _, c := range configs {
			if report := runRound(t, c, seed+uint64(round), *opsFlag); report != "" {
				t.Fatal(report)
			}
		}
	}
}

// runRound returns what to tell the user, "" if all answers were right.
func runRound(tb testing.TB, c Config, seed uint64, count int) string {
	probe := c.New(tb)
	origin := probe.now().Truncate(time.Millisecond)
	expiry := seed%2 == 0 && probe.Advance != nil && probe.Merge != nil && !probe.LazyNames
	ops := newGenerator(seed, origin, expiry).ops(count)
	a := attempt{tb: tb, config: c, origin: origin}
	failure := a.run(ops)
	if failure == "" {
		return ""
	}
	small := a.shrink(ops)
	if again := a.run(small); again != "" {
		failure = again
	} else {
		small = ops
	}
	return fmt.Sprintf("configuration %s, seed %d (repeat with -storetest.seed=%d -storetest.rounds=1 -storetest.ops=%d):\n%s\n"+
		"script of %d operations (of %d); @0 is %s:\n%s",
		c.Name, seed, seed, count, failure, len(small), len(ops), origin.UTC().Format(time.RFC3339Nano), scriptText(small, origin))
}

func scriptText(ops []op, origin time.Time) string {
	var b strings.Builder
	for _, o := range ops {
		b.WriteString("\t" + o.format(origin) + "\n")
	}
	return b.String()
}

// An attempt runs lists of operations, each on an empty store.
type attempt struct {
	tb     testing.TB
	config Config
	origin time.Time
}

// run does ops to a store and to a reference store, and says where they first
// disagree, "" if nowhere.
func (a attempt) run(ops []op) string {
	failure, _ := record(a.tb, func(tb testing.TB) {
		got := newRunner(tb, a.config.New(tb))
		defer got.close()
		want := newRunner(tb, referenceHarness(got.h.now(), 0))
		got.origin, want.origin = a.origin, a.origin
		for i, o := range ops {
			w, g := want.do(o), got.do(o)
			if g != w {
				tb.Fatalf("operation %d, %s\n got: %s\nwant: %s", i+1, o.format(a.origin), indented(g), indented(w))
			}
			if tb.Failed() {
				tb.Fatalf("after operation %d, %s", i+1, o.format(a.origin))
			}
		}
	})
	return failure
}

// shrink returns a list of operations that still fails, with as few operations
// and samples as it finds within its bounds.
func (a attempt) shrink(ops []op) []op {
	budget := &budget{runs: shrinkRuns, until: time.Now().Add(shrinkLimit)}
	fails := func(list []op) bool { return budget.spend() && a.run(list) != "" }
	for before := -1; before != weight(ops) && budget.left(); {
		before = weight(ops)
		ops = without(ops, fails)
		for i := range ops {
			if len(ops[i].samples) < 2 {
				continue
			}
			ops[i].samples = without(ops[i].samples, func(fewer []scriptSample) bool {
				list := slices.Clone(ops)
				list[i].samples = fewer
				return fails(list)
			})
		}
		for i := range ops {
			for _, change := range simplifications {
				list := slices.Clone(ops)
				if change(&list[i]); weight(list) < weight(ops) && fails(list) {
					ops = list
				}
			}
		}
	}
	return ops
}

// simplifications take one restriction of an operation away.
var simplifications = []func(*op){
	func(o *op) { o.within = model.AllTime },
	func(o *op) { o.matchers = nil },
	func(o *op) { o.desc = false },
	func(o *op) { o.limit = 0 },
	func(o *op) { o.summarize = "" },
	func(o *op) { o.names = store.NamesQuery{Kind: o.names.Kind} },
}

// weight is what shrinking makes less: operations, samples, restrictions.
func weight(ops []op) int {
	n := 0
	for _, o := range ops {
		n += 1 + len(o.samples) + len(o.matchers)
		for _, restricted := range []bool{
			o.within != model.AllTime, o.desc, o.limit > 0, o.summarize != "",
			!reflect.DeepEqual(o.names, store.NamesQuery{Kind: o.names.Kind}),
		} {
			if restricted {
				n++
			}
		}
	}
	return n
}

// without removes stretches of list, long ones first, as long as what is left
// still fails.
func without[T any](list []T, fails func([]T) bool) []T {
	for size := len(list) / 2; size > 0; size /= 2 {
		for end := len(list); end > 0; end -= size {
			start := max(end-size, 0)
			fewer := slices.Concat(list[:start], list[end:])
			if len(fewer) > 0 && fails(fewer) {
				list = fewer
			}
		}
	}
	return list
}

type budget struct {
	runs  int
	until time.Time
}

func (b *budget) left() bool { return b.runs > 0 && time.Now().Before(b.until) }

func (b *budget) spend() bool {
	b.runs--
	return b.left()
}

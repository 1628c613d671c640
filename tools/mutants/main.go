// Command mutants measures how many faults the tests of a package detect. It changes
// one place of the code at a time, runs the tests, and lists the changes that made no
// test fail.
//
//	go run ./tools/mutants -seed 7 -count 40 ./internal/wal
//
// A mutant is one change of one place: a comparison with a changed boundary or
// reversed, && and || swapped, a condition negated, a constant changed by one or set
// to 0, a statement removed, an error swallowed. The seed determines which mutants of
// the same code are drawn, and their order.
//
// The source tree is not modified. Changed files are in a temporary directory, and
// -overlay passes them to the compiler. Mutants are compiled together, each behind a condition
// that an environment variable makes true, because compiling takes longer than most tests.
// Mutants that do not compile are not counted; a
// test that exceeds its time limit has failed. Code that only writes log lines, updates
// metrics or sets capacities is not mutated, nor are constants that are returned
// together with an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"time"
)

// options are the options of the command line.
type options struct {
	seed       uint64
	count      int           // mutants to run
	skip       int           // drawn mutants to skip, because an earlier run had them
	jobs       int           // mutants at a time
	limit      time.Duration // after which no mutant is started
	tests      []string      // packages whose tests are run; none: the mutant's package
	run        string        // as in go test -run
	short      bool          // as in go test -short
	list       bool          // only list the mutants
	memoryKiB  int64         // limit of a test binary's address space, where the shell supports it
	packages   []string
	dir        string // working directory of go commands
	out        io.Writer
	timeoutMin time.Duration // smallest time limit of a test run
}

func main() {
	o := options{dir: ".", out: os.Stdout, timeoutMin: 15 * time.Second}
	flag.Uint64Var(&o.seed, "seed", 1, "draws the mutants")
	flag.IntVar(&o.count, "count", 40, "how many mutants to run")
	flag.IntVar(&o.skip, "skip", 0, "how many of the drawn mutants to skip, to continue where an earlier run ended")
	flag.IntVar(&o.jobs, "jobs", 1, "mutants at a time")
	flag.DurationVar(&o.limit, "limit", 30*time.Minute, "begin no mutant after this time")
	flag.StringVar(&o.run, "run", "", "run only tests that match, as go test -run")
	flag.BoolVar(&o.short, "short", false, "run tests with -short")
	flag.BoolVar(&o.list, "list", false, "list the mutants that are drawn, run nothing")
	flag.Int64Var(&o.memoryKiB, "memory", 16<<20, "address space of a test binary in KiB")
	tests := flag.String("tests", "", "packages whose tests are run, instead of each package's own")
	flag.Parse()
	o.tests, o.packages = strings.Fields(*tests), flag.Args()
	if len(o.packages) == 0 {
		fmt.Fprintln(os.Stderr, "mutants: name at least one package, such as ./internal/wal")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// do draws mutants and runs them.
func (o *options) do(ctx context.Context) error {
	packages, err := load(ctx, o.dir, o.packages)
	if err != nil {
		return err
	}
	var places []place
	for _, p := range packages {
		places = append(places, p.places()...)
	}
	total := 0
	for _, p := range places {
		total += len(p.texts)
	}
	drawn := draw(places, o.seed, o.skip+o.count)
	drawn = drawn[min(o.skip, len(drawn)):]
	fmt.Fprintf(o.out, "%d packages, %d places, %d mutants; seed %d draws %d\n", len(packages), len(places), total, o.seed, len(drawn))
	if o.list {
		for _, m := range drawn {
			fmt.Fprintln(o.out, m)
		}
		return nil
	}
	if len(drawn) == 0 {
		return errors.New("there is nothing to mutate")
	}
	return o.runAll(ctx, packages, drawn)
}

// draw returns up to n mutants that compile. Each place is drawn once before
// any is drawn a second time, so a literal with three mutants is not three
// times as likely as a comparison with one.
func draw(places []place, seed uint64, n int) []mutant {
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	for i := range places {
		texts := places[i].texts
		random.Shuffle(len(texts), func(a, b int) { texts[a], texts[b] = texts[b], texts[a] })
	}
	var drawn []mutant
	for round, more := 0, true; more && len(drawn) < n; round++ {
		more = false
		for _, p := range places {
			if round >= len(p.texts) {
				continue
			}
			more = true
			m := mutant{place: p, text: p.texts[round]}
			if len(drawn) < n && m.compiles() {
				drawn = append(drawn, m)
			}
		}
	}
	return drawn
}

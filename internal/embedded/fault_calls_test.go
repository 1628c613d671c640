package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
)

// faultShape says which calls fail, counted from the start of the run.
type faultShape struct {
	name  string
	err   error
	fails func(n, at int64, random *rand.Rand) bool
}

var faultShapes = []faultShape{
	{"EIO once", syscall.EIO, func(n, at int64, _ *rand.Rand) bool { return n == at }},
	{"EIO from then on", syscall.EIO, func(n, at int64, _ *rand.Rand) bool { return n >= at }},
	{"EIO for five calls", syscall.EIO, func(n, at int64, _ *rand.Rand) bool { return n >= at && n < at+5 }},
	{"ENOSPC for five calls", syscall.ENOSPC, func(n, at int64, _ *rand.Rand) bool { return n >= at && n < at+5 }},
	{"EIO at random", syscall.EIO, func(_, _ int64, random *rand.Rand) bool { return random.IntN(60) == 0 }},
}

// TestErrorAtEveryCall lets one call to the file system after another fail,
// reads as well as writes, the catalogue's as well as the log's and the block
// files', at a start as well as later. A query that meets the error may fail,
// but the next one is right; no answer is wrong; and when the process ends,
// whether by Close or because the catalogue called Fatal, everything that was
// acknowledged is on disk, also when the power is cut at that moment.
//
// What has called Fatal cannot be closed: its goroutines stand still, holding
// locks. So the runs are in processes of their own, some dozens in each.
func TestErrorAtEveryCall(t *testing.T) {
	if part := os.Getenv(faultPartVariable); part != "" {
		runFaultPart(part)
	}
	if *faultStep > 1 {
		t.Skip("*** ERRORS AT EVERY CALL ARE NOT TESTED IN THIS RUN: Pebble 2.1.7 panics now and then after a start that failed; run with -embedded.faults=1 ***")
	}
	if testing.Short() {
		t.Skip("left out of short runs, as those under the race detector are: Pebble races with itself after a start that failed")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range faultShapes {
		var sum faultPart
		part := faultPart{Shape: i, At: 1 + rand.Int64N(int64(*faultStep)), Step: int64(*faultStep), Seed: rand.Uint64()}
		for !part.Done && !t.Failed() {
			part = runFaultProcess(t, self, part)
			sum.add(part)
		}
		t.Logf("%-22s %d runs: %d met the error, %d ended with Fatal, %d had a start that failed, %d any step; %d panics in Pebble after a failed start",
			faultShapes[i].name+":", sum.Runs, sum.Met, sum.Fatal, sum.NoStart, sum.Failed, sum.Panicked)
	}
}

const faultPartVariable = "VARVE_FAULT_PART"

// A faultPart is the runs that one process does: what to do, and what came of
// it.
type faultPart struct {
	Shape    int
	At, Step int64 // first call that fails; the next run's is Step later
	Seed     uint64

	Done                                        bool // no call is left to fail
	Runs, Met, Fatal, NoStart, Failed, Panicked int
}

func (p *faultPart) reset() {
	p.Runs, p.Met, p.Fatal, p.NoStart, p.Failed, p.Panicked = 0, 0, 0, 0, 0, 0
}

func (p *faultPart) add(o faultPart) {
	p.Runs += o.Runs
	p.Met += o.Met
	p.Fatal += o.Fatal
	p.NoStart += o.NoStart
	p.Failed += o.Failed
	p.Panicked += o.Panicked
}

func runFaultProcess(t *testing.T, self string, part faultPart) faultPart {
	t.Helper()
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^TestErrorAtEveryCall$")
	child.Env = append(os.Environ(), faultPartVariable+"="+string(text))
	var complaint bytes.Buffer
	child.Stderr = &complaint
	out, err := child.Output()
	part.reset()
	for reports := json.NewDecoder(bytes.NewReader(out)); reports.More(); { // the last one counts
		if err := reports.Decode(&part); err != nil {
			t.Fatalf("%s: %v in %.500q", faultShapes[part.Shape].name, err, out)
		}
	}
	switch {
	case err != nil && pebblePanic(complaint.String()):
		part.Panicked++
		part.At += part.Step
	case err != nil:
		t.Fatalf("%s: %v\n%.8000s", faultShapes[part.Shape].name, err, complaint.String())
	}
	return part
}

// What a process says on its standard error.
const (
	starting = "starting\n"
	started  = "started\n"
)

// pebblePanic reports whether a process ended by a panic of Pebble v2.1.7, whose
// work in the background goes on when it has failed to open, with caches that
// are no more. The process was to end anyway, with a message.
func pebblePanic(complaint string) bool {
	at := strings.Index(complaint, "panic: ")
	if at < 0 || strings.Count(complaint, starting) == strings.Count(complaint, started) {
		return false // every start went well
	}
	trace := complaint[at:]
	return strings.Contains(trace, "github.com/cockroachdb/pebble/v2.Open(") ||
		strings.Contains(trace, "github.com/cockroachdb/pebble/v2") && !strings.Contains(trace, "varve/internal/")
}

const (
	fatalsMost = 40 // stores that stand still in one process
	runsMost   = 400
	faultRuns  = 150              // of the shape that is random, at Step 1
	runWithin  = 60 * time.Second // what hangs is a failure
)

// runFaultPart does runs until the process should be replaced, and ends it.
func runFaultPart(text string) {
	var part faultPart
	if err := json.Unmarshal([]byte(text), &part); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	part.reset()
	reports := json.NewEncoder(os.Stdout)
	for !part.Done && part.Fatal < fatalsMost && part.Runs < runsMost {
		run := newFaultRun(part)
		if err := run.whole(); err != nil {
			fmt.Fprintf(os.Stderr, "call %d, %s, seed %d: %v\ncalls that failed:\n%s\n", part.At, faultShapes[part.Shape].name, part.Seed, err, strings.Join(run.failed, "\n"))
			os.Exit(1)
		}
		run.count(&part)
		part.At += part.Step
		if err := reports.Encode(part); err != nil {
			os.Exit(2)
		}
	}
	os.Exit(0)
}

// A faultRun is one life of a store on a file system that fails.
type faultRun struct {
	shape  faultShape
	at     int64
	script *faultScript
	disk   *crashfs.FS
	calls  int64 // when the script ended

	mu     sync.Mutex
	n      int64
	random *rand.Rand
	failed []string

	fatal  chan struct{}
	once   sync.Once
	reason string
	then   *promises     // when the process ended
	left   []*crashfs.FS // what the disk may hold then
	err    error         // of the script
}

func newFaultRun(part faultPart) *faultRun {
	return &faultRun{
		shape: faultShapes[part.Shape], at: part.At, fatal: make(chan struct{}),
		random: rand.New(rand.NewPCG(part.Seed, uint64(part.At))),
	}
}

// MaybeError implements [errorfs.Injector].
func (r *faultRun) MaybeError(op errorfs.Op) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if !r.shape.fails(r.n, r.at, r.random) {
		return nil
	}
	if len(r.failed) < 20 {
		r.failed = append(r.failed, fmt.Sprintf("%d: kind %d of %s at %d", r.n, op.Kind, op.Path, op.Offset))
	}
	return r.shape.err
}

func (r *faultRun) String() string { return r.shape.name }

// whole prepares a store, lets its disk fail, and checks what remains.
func (r *faultRun) whole() error {
	r.disk = crashfs.New()
	r.script = newFaultScript(r.disk, newPromises())
	if err := r.script.begin(); err != nil {
		return err
	}
	killed := r.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	if err := r.script.close(); err != nil {
		return err
	}
	r.disk = killed
	r.script.fs = errorfs.Wrap(killed, r)
	r.script.fatal = r.die
	r.script.say = func(what string) { fmt.Fprint(os.Stderr, what) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.err = r.script.rest()
		r.script.abandon()
	}()
	select {
	case <-r.fatal:
	case <-done:
		r.noteEnd()
	case <-time.After(runWithin):
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		return errors.New("hangs")
	}
	r.mu.Lock()
	r.calls = r.n
	r.mu.Unlock()
	if untrue := (*untrueError)(nil); errors.As(r.err, &untrue) {
		return r.err
	}
	for i, disk := range r.left {
		var p *promises
		r.then.while(func(now *promises) { p = now })
		if err := p.checkDisk(disk, r.script.cfg, r.script.now.Load()); err != nil {
			return fmt.Errorf("on a sound disk (copy %d), fatal %q, first error %v: %w", i, r.reason, r.err, err)
		}
	}
	return nil
}

// die is the store's Fatal. The process has ended here.
func (r *faultRun) die(reason string) {
	r.once.Do(func() {
		r.reason = reason
		r.script.ended.Store(true)
		r.noteEnd()
		close(r.fatal)
	})
	select {}
}

// noteEnd copies the promises, and the content of the disk if only the
// process ends, and if the power is cut.
func (r *faultRun) noteEnd() {
	r.script.promises.while(func(now *promises) {
		r.then = now
		for _, percent := range []int{100, 50, 0} {
			r.left = append(r.left, r.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(r.at), 3))}))
		}
	})
}

func (r *faultRun) count(part *faultPart) {
	part.Runs++
	if len(r.failed) > 0 {
		part.Met++
	}
	if r.reason != "" {
		part.Fatal++
	}
	if r.err != nil {
		part.Failed++
	}
	if r.script.notStarted > 0 {
		part.NoStart++
	}
	random := r.shape.name == "EIO at random"
	part.Done = !random && len(r.failed) == 0 && r.reason == "" || random && part.At > faultRuns
}

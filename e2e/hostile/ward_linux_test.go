package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

const (
	servedWithin = time.Second            // what a plain write and a plain question may take beside an attack; see stretch
	restWithin   = 3 * time.Second        // from the end of an attack to a process that does nothing; see stretch
	restCPU      = 0.15                   // seconds of CPU per second that count as doing nothing
	lookEvery    = 100 * time.Millisecond // between two looks at the process
	askEvery     = 50 * time.Millisecond  // between two rounds of the bystander
	mib          = 1 << 20
	spoolMemory  = 144 * mib // cassandra.spool.max_memory: samples that are not in Cassandra yet
)

// A ward is a server under attack, with a bystander whose service is watched.
type ward struct {
	*process.Server
	t     *testing.T
	dir   string   // of its data
	flags []string // that it was started with

	secure   *tls.Config     // of attackers that speak HTTP/1 over TLS; nil if the server does not
	attacker *process.Server // how attackers send whole requests
	shows    string          // lines of header that they add to others
	stranger bool            // they have no token although the server asks for one

	pid  int
	base int64 // bytes of memory before the attack

	sent int // points of the bystander that were acknowledged

	mayRefuse atomic.Bool // the bystander may be answered 503, but at once

	mu      sync.Mutex // guards all below while visitors come beside the bystander
	slowest time.Duration
	faults  []string
}

// skip skips a test where attacks are not measured.
func skip(t *testing.T) {
	t.Helper()
	process.SkipShort(t)
	if *attackFor == 0 {
		t.Skip("measures how fast others are served, so nothing else may run meanwhile: make hostile")
	}
}

// guard starts a server and waits until the bystander has been served once.
func guard(t *testing.T, flags ...string) *ward {
	t.Helper()
	skip(t)
	dir, flags := t.TempDir(), withStore(t, flags)
	return watch(t, process.Start(t, dir, flags...), dir, flags)
}

// withStore adds the flags of the store that the attacks are about.
func withStore(t *testing.T, flags []string) []string {
	t.Helper()
	if !*overCassandra {
		return flags
	}
	// On a busy machine the node may be slow without being away. stretch allows for that.
	return inKeyspace(t, originals.Cassandra(t), append([]string{"--tune=cassandra.stall_after=10s"}, flags...))
}

// inKeyspace adds the flags of a store in a keyspace of its own, over the node at an address.
func inKeyspace(t *testing.T, address string, flags []string) []string {
	t.Helper()
	config := cqltest.Config(originals.Cassandra(t))
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	return append([]string{"--store=cassandra", "--cassandra-hosts=" + address, "--cassandra-keyspace=" + config.Keyspace,
		"--cassandra-spool-linger=1s"}, flags...)
}

// watch returns the ward of a server that runs.
func watch(t *testing.T, s *process.Server, dir string, flags []string) *ward {
	t.Helper()
	w := &ward{Server: s, attacker: s, t: t, dir: dir, flags: flags, pid: s.Pid()}
	w.opens()
	w.round(t.Context())
	w.slowest = 0
	w.base = w.memory("VmRSS")
	return w
}

// again starts the server again, after its end.
func (w *ward) again() {
	w.t.Helper()
	w.Server = process.Start(w.t, w.dir, w.flags...)
	w.pid = w.Server.Pid()
	w.opens()
}

// opens waits until queries are answered. Over Cassandra a server answers others before it has
// opened its keyspace.
func (w *ward) opens() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := process.Until(ctx, "the store is open", func() (bool, error) {
		_, err := w.MetricNames(ctx, "")
		return err == nil, nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// settle lets the store move its samples from memory to files, or to Cassandra.
func (w *ward) settle(ctx context.Context) error {
	path := "/admin/compact"
	if *overCassandra {
		path = "/admin/flush"
	}
	_, err := w.Want(ctx, http.StatusNoContent, "POST", path, "")
	return err
}

// under runs attack, which has to end by itself once its context has, and
// judges the server beside it and after it. The process may grow by mayTake
// bytes.
func (w *ward) under(mayTake int64, attack func(ctx context.Context)) {
	w.t.Helper()
	w.beside(attack)
	w.rests()
	w.judge(mayTake)
}

// beside runs attack beside the bystander.
func (w *ward) beside(attack func(ctx context.Context)) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var bystander sync.WaitGroup
	bystander.Go(func() {
		for ctx.Err() == nil {
			w.round(ctx)
			pause(ctx, askEvery)
		}
	})
	attack(ctx)
	cancel()
	bystander.Wait()
}

// part is an attack of several on one server, as a test of its own.
func (w *ward) part(name string, mayTake int64, attack func(ctx context.Context)) {
	w.within(name, func() { w.under(mayTake, attack) })
}

// within runs a test of several on one server.
func (w *ward) within(name string, test func()) {
	all := w.t
	all.Run(name, func(t *testing.T) {
		w.t, w.slowest, w.faults = t, 0, nil
		defer func() { w.t = all }()
		// 5 resets the process's peak memory to its present memory.
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.pid), []byte("5"), 0); err != nil {
			t.Fatalf("the server has ended: %v\n%s", err, w.Log.Tail())
		}
		test()
	})
}

// round writes a point and asks for it.
func (w *ward) round(ctx context.Context) {
	n := w.sent
	if !w.timed(ctx, "write", func(ctx context.Context) error {
		_, err := w.Want(ctx, http.StatusNoContent, "POST", "/api/v1/datapoints",
			fmt.Sprintf(`[{"name":"bystander","tags":{"host":"a"},"timestamp":%d,"value":%d}]`, bystanderStart+n, n))
		return err
	}) {
		return
	}
	w.sent++
	w.timed(ctx, "question", func(ctx context.Context) error {
		results, err := w.Query(ctx, bystanderQuestion(n, n))
		if err != nil {
			return err
		}
		if len(results) != 1 || len(results[0].Values) != 1 || string(results[0].Values[0][1]) != strconv.Itoa(n) {
			return fmt.Errorf("point %d was acknowledged, the answer is %v", n, results)
		}
		return nil
	})
}

// bystanderQuestion asks for the bystander's points from first to last.
func bystanderQuestion(first, last int) string {
	return fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":"bystander"}]}`, bystanderStart+first, bystanderStart+last)
}

// bystanderStart is the time of the bystander's first point, in ms.
const bystanderStart = 1_700_000_000_000

// timed runs one request of the bystander, or of a visitor beside it, to its end, and reports
// whether it was served.
func (w *ward) timed(ctx context.Context, what string, f func(context.Context) error) bool {
	began := w.shares()
	err := f(context.WithoutCancel(ctx))
	took := time.Since(began.at)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slowest = max(w.slowest, took)
	if err != nil && !(w.mayRefuse.Load() && refused(err)) {
		w.faults = append(w.faults, fmt.Sprintf("the bystander's %s: %v", what, err))
	} else if took > servedWithin {
		if most := w.stretch(began, servedWithin); took > most {
			w.faults = append(w.faults, fmt.Sprintf("the bystander's %s took %v, want at most %v (%v)", what, took.Round(time.Millisecond), most.Round(time.Millisecond), err))
		}
	}
	return err == nil
}

// refused reports whether an error is the answer 503.
func refused(err error) bool {
	answer, ok := errors.AsType[*process.StatusError](err)
	return ok && answer.Got == http.StatusServiceUnavailable
}

// shares are how many seconds of CPU were used up to a time: by all processes of
// the machine, and by the server and its attackers.
type shares struct {
	at       time.Time
	all, own float64
}

func (w *ward) shares() shares {
	w.t.Helper()
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		w.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	s := shares{at: time.Now(), own: cpuOf(w.t, "self") + w.cpu()}
	for i, field := range strings.Fields(line)[1:] {
		const idle, iowait, guest = 3, 4, 8 // guests count as users too
		if n, err := strconv.ParseFloat(field, 64); err == nil && i != idle && i != iowait && i < guest {
			s.all += n / 100
		}
	}
	return s
}

// stretch returns how long something may take that takes limit on a machine of its
// own, beside what other processes have used of the CPUs since a time. Alone, that
// is limit: attackers and server make no excuse.
func (w *ward) stretch(since shares, limit time.Duration) time.Duration {
	now := w.shares()
	cpus := float64(runtime.NumCPU())
	strangers := ((now.all - since.all) - (now.own - since.own)) / now.at.Sub(since.at).Seconds()
	const least = 0.05 // of the machine is left in any case
	left := min(max(1-strangers/cpus, least), 1)
	return time.Duration(float64(limit) / left)
}

// rests waits until the process uses next to no CPU.
func (w *ward) rests() {
	w.t.Helper()
	const window = 5 * lookEvery
	var used float64
	for began := w.shares(); ; {
		before := w.cpu()
		time.Sleep(window)
		used = (w.cpu() - before) / window.Seconds()
		if used <= restCPU {
			return
		}
		if waited := time.Since(began.at); waited > restWithin && waited > w.stretch(began, restWithin) {
			break
		}
	}
	w.t.Errorf("%v after the attackers left the server still uses %.2f cores", restWithin, used)
}

// judge reports what the attack has done.
func (w *ward) judge(mayTake int64) {
	w.t.Helper()
	select {
	case <-w.Exited:
		w.t.Fatalf("the server ended: %v\n%s", w.Err, w.Log.Tail())
	default:
	}
	took := w.memory("VmHWM") - w.base
	w.t.Logf("the bystander was served %d times, at worst within %v; the process took %d MiB more", w.sent, w.slowest.Round(time.Millisecond), took/mib)
	for _, f := range w.faults[:min(len(w.faults), 3)] {
		w.t.Error(f)
	}
	if *overCassandra {
		mayTake += spoolMemory
	}
	if took > mayTake {
		w.t.Errorf("the process took %d MiB, want at most %d MiB", took/mib, mayTake/mib)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, err := w.Metrics(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if n := m.Sum("varve_server_panics_total") + m.Sum("varve_worker_panics_total"); n != 0 {
		w.t.Errorf("%.0f requests ended in a panic\n%s", n, w.Log.Tail())
	}
	results, err := w.Query(ctx, bystanderQuestion(0, w.sent))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(results) != 1 || len(results[0].Values) != w.sent {
		w.t.Errorf("%d points of the bystander were acknowledged, the answer is %.300v", w.sent, results)
	}
}

// memory returns a line of /proc/PID/status, in bytes.
func (w *ward) memory(name string) int64 {
	w.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		w.t.Fatalf("the server has ended: %v\n%s", err, w.Log.Tail())
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				w.t.Fatal(err)
			}
			return kib << 10
		}
	}
	w.t.Fatalf("no %s in the status of the process", name)
	return 0
}

// cpu returns the seconds of CPU that the process has used. A hundredth of a
// second is the unit of the kernel's counters.
func (w *ward) cpu() float64 {
	w.t.Helper()
	return cpuOf(w.t, strconv.Itoa(w.pid))
}

// cpuOf is cpu of a process.
func cpuOf(t *testing.T, pid string) float64 {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatalf("the process has ended: %v", err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

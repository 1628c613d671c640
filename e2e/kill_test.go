package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/e2e/process"
)

// Messages that tests look for.
const (
	checkpointBegins = "checkpoint begins"
	checkpointDone   = "checkpoint done"
	mergeBegins      = "merge begins"
	mergeDone        = "merge done"
	orphanRemoved    = "removing a block file that was never completed"
	replayed         = "replayed the write-ahead log"
)

// An ending is a way to end the server in a round of the loop.
type ending int

const (
	atRandom      ending = iota // kill -9 after a random time
	inCheckpoint                // kill -9 after a checkpoint has begun
	inMerge                     // kill -9 after a merge has begun
	inCompact                   // kill -9 shortly after POST /admin/compact
	inStart                     // kill -9 while it starts, before or after it is ready
	bySIGTERM                   // an orderly stop under load
	endingsNumber = iota
)

func (e ending) String() string {
	return [...]string{"at random", "in checkpoint", "in merge", "in compact", "in start", "SIGTERM"}[e]
}

// endingShares are the relative frequencies of endings.
var endingShares = [endingsNumber]int{atRandom: 6, inCheckpoint: 5, inMerge: 5, inCompact: 2, inStart: 2, bySIGTERM: 3}

// A killLoop repeatedly starts and ends the server on one data directory.
type killLoop struct {
	t       *testing.T
	random  *rand.Rand
	dir     string
	width   string // of the store's rows, chosen once
	writers []*writer

	round  int
	ending ending
	flags  []string
	owed   int // points that the last server has counted as stored by telnet, but that no writer knows to be stored
	tally  tally
}

// A tally is what the loop reports.
type tally struct {
	endings                      [endingsNumber]int
	kills, insideCkpt, insideMrg int
	orphans, replays, cutTails   int
	replayTook, ready, stopped   []time.Duration
	found, checks                int
}

// TestKillLoop ends a server under load in every way and at every moment. After
// each start, all acknowledged points exist with their values, no others do,
// and deleted points stay deleted.
func TestKillLoop(t *testing.T) {
	process.SkipShort(t)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -e2e.seed=%d", seed)
	k := newKillLoop(t, seed)
	began := time.Now()
	for k.round = 1; k.round <= *killsFlag; k.round++ {
		if limit, ok := t.Deadline(); ok && time.Until(limit) < time.Minute {
			t.Fatalf("no time left after %d rounds in %v; give more with -timeout", k.round-1, time.Since(began))
		}
		k.once()
	}
	k.ending, k.flags = bySIGTERM, k.settings()
	k.verify()
	k.report(time.Since(began))
}

func newKillLoop(t *testing.T, seed uint64) *killLoop {
	dir, err := os.MkdirTemp("", "varve-kill")
	if err != nil {
		t.Fatal(err)
	}
	k := &killLoop{t: t, dir: dir, random: rand.New(rand.NewPCG(seed, 0))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("round %d, %v, flags %q; the data directory is kept: %s", k.round, k.ending, k.flags, dir)
			return
		}
		os.RemoveAll(dir)
	})
	k.width = k.one("10m", "2h", "504h")
	for i := range 5 {
		k.writers = append(k.writers, newWriter(i, i >= 3, seed))
	}
	return k
}

func (k *killLoop) one(choices ...string) string { return choices[k.random.IntN(len(choices))] }

// settings makes checkpoints and merges frequent, in a different way in each
// round. In some rounds they happen only at intervals, so that much has to be
// replayed.
func (k *killLoop) settings() []string {
	head, limit, most := "1MiB", "2MiB", k.one("500", "4000", "15000", "15000", "6000000")
	if most == "6000000" {
		head, limit = "48MiB", "160MiB"
	}
	return []string{
		"--log-level=debug",
		"--embedded-row-width=" + k.width,
		"--embedded-log-durability=" + k.one("fsync", "fsync", "interval"),
		"--tune=embedded.log.segment_bytes=" + k.one("64KiB", "1MiB", "64MiB"),
		"--tune=embedded.log.recycle_segments=" + k.one("0", "3"),
		"--tune=embedded.head_bytes=" + head,
		"--embedded-head-bytes-max=" + limit,
		"--tune=embedded.checkpoint_samples=" + most,
		"--tune=embedded.checkpoint_interval=" + k.one("1s", "1s", "10m"),
		"--tune=embedded.merge_files=" + k.one("2", "2", "3", "4"),
		"--tune=embedded.maintenance_interval=" + k.one("10ms", "100ms", "1s"),
		"--embedded-page-cache-bytes=" + k.one("0", "1MiB", "32MiB"),
	}
}

// once runs one round: start, check, load, end.
func (k *killLoop) once() {
	k.ending, k.flags = k.choose(), k.settings()
	k.tally.endings[k.ending]++
	if k.ending == inStart {
		s := process.Launch(k.t, k.dir, k.flags...)
		time.Sleep(time.Duration(k.random.IntN(150)) * time.Millisecond)
		s.Kill()
		k.killed(s)
		return
	}
	k.load(k.verify())
}

func (k *killLoop) choose() ending {
	sum := 0
	for _, share := range endingShares {
		sum += share
	}
	dice := k.random.IntN(sum)
	for e, share := range endingShares {
		if dice -= share; dice < 0 {
			return ending(e)
		}
	}
	return atRandom
}

// verify starts the server and compares everything.
func (k *killLoop) verify() *process.Server {
	s := process.Start(k.t, k.dir, k.flags...)
	k.started(s)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var want []string
	for _, w := range k.writers {
		w.server = s
		if err := w.check(ctx); err != nil {
			k.t.Errorf("round %d, after a start: %v", k.round, err)
		}
		n := w.ledger.count()
		k.tally.found += n
		if n > 0 {
			want = append(want, w.ledger.metric)
		}
	}
	caught := 0
	for _, w := range k.writers {
		caught += w.ledger.caught
	}
	if caught < k.owed {
		k.t.Errorf("round %d: %d points of broken telnet streams are there, %d were counted as stored", k.round, caught, k.owed)
	}
	k.owed = 0
	got, err := s.MetricNames(ctx, "")
	if err != nil || !slices.Equal(got, want) {
		k.t.Errorf("round %d, after a start: metric names %q, want %q (%v)", k.round, got, want, err)
	}
	if k.t.Failed() {
		k.t.Fatalf("log of the start:\n%s", s.Log.Tail())
	}
	return s
}

func (k *killLoop) started(s *process.Server) {
	k.tally.ready = append(k.tally.ready, s.Ready)
	k.tally.orphans += s.Log.Count(orphanRemoved)
	if s.Log.Count(replayed) == 0 {
		return
	}
	k.tally.replays++
	if s.Log.Attribute(replayed, "cut_bytes") != "0" {
		k.tally.cutTails++
	}
	took, err := time.ParseDuration(s.Log.Attribute(replayed, "took"))
	if err != nil {
		k.t.Fatalf("time of the replay: %v", err)
	}
	k.tally.replayTook = append(k.tally.replayTook, took)
}

// load runs all writers against s and ends it.
func (k *killLoop) load(s *process.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	broken := make(chan error, len(k.writers)) // errors from before the server was being ended
	ends := make([]error, len(k.writers))
	for i, w := range k.writers {
		wg.Go(func() {
			ends[i] = w.run(ctx, s)
			if !s.Ending.Load() {
				broken <- ends[i]
			}
		})
	}
	watch := k.watchMetrics(ctx, s)
	k.end(ctx, s, broken)
	cancel()
	wg.Wait()
	last := <-watch
	if s.Log.Fault() != "" && (k.ending != bySIGTERM) {
		k.t.Errorf("round %d: the log has: %s", k.round, s.Log.Fault())
	}
	for _, err := range ends {
		if err != nil && !excusable(err, k.ending == bySIGTERM) {
			k.t.Errorf("round %d: %v", k.round, err)
		}
	}
	k.compareCounter(last)
	if k.t.Failed() {
		k.t.Fatalf("log:\n%s", s.Log.Tail())
	}
}

// end ends the server at the round's moment.
func (k *killLoop) end(ctx context.Context, s *process.Server, broken <-chan error) {
	wait := func(moment <-chan struct{}, atMost time.Duration) {
		select {
		case err := <-broken:
			k.t.Errorf("round %d: a writer ended before the server was: %v", k.round, err)
		case <-s.Exited:
			k.t.Errorf("round %d: the server ended by itself: %v", k.round, s.Err)
		case <-moment:
		case <-time.After(atMost):
		}
	}
	wait(nil, time.Duration(100+k.random.IntN(900))*time.Millisecond)
	// Short pauses are more frequent: most checkpoints take a few milliseconds.
	pause := time.Duration(k.random.IntN(110)*k.random.IntN(110)) * time.Microsecond
	var compacting sync.WaitGroup
	switch k.ending {
	case inCheckpoint:
		wait(s.Log.Next(checkpointBegins), 3*time.Second)
		time.Sleep(pause)
	case inMerge:
		wait(s.Log.Next(mergeBegins), 3*time.Second)
		time.Sleep(pause)
	case inCompact:
		compacting.Go(func() { s.Do(ctx, "POST", "/admin/compact", "") })
		time.Sleep(4 * pause)
	case bySIGTERM:
		k.tally.stopped = append(k.tally.stopped, s.Stop(k.t))
		return
	}
	s.Kill()
	compacting.Wait()
	k.killed(s)
}

// killed records what the server was doing when it was killed.
func (k *killLoop) killed(s *process.Server) {
	k.tally.kills++
	if s.Log.Count(checkpointBegins) > s.Log.Count(checkpointDone) {
		k.tally.insideCkpt++
	}
	if s.Log.Count(mergeBegins) > s.Log.Count(mergeDone) {
		k.tally.insideMrg++
	}
}

// watchMetrics reads the server's metrics until it ends, and then sends the
// last ones.
func (k *killLoop) watchMetrics(ctx context.Context, s *process.Server) <-chan process.Metrics {
	last := make(chan process.Metrics, 1)
	go func() {
		var m process.Metrics
		defer func() { last <- m }()
		for {
			next, err := s.Metrics(ctx)
			if err != nil {
				return
			}
			m = next
			time.Sleep(30 * time.Millisecond)
		}
	}()
	return last
}

// compareCounter reports a fault that the metrics show. It leaves it to the
// next check to find the samples that were counted as stored by telnet.
func (k *killLoop) compareCounter(m process.Metrics) {
	if err := m.Fault(); err != nil {
		k.t.Errorf("round %d: %v", k.round, err)
	}
	known, open := 0, 0
	for _, w := range k.writers {
		known += w.stored
		open += w.ledger.streamed.len()
	}
	counted := int(m[`varve_ingest_samples_total{protocol="telnet"}`])
	if counted > known+open {
		k.t.Errorf("round %d: %d samples counted as stored by telnet, only %d sent", k.round, counted, known+open)
	}
	k.owed = max(0, counted-known)
}

func (k *killLoop) report(took time.Duration) {
	a := &k.tally
	for _, w := range k.writers {
		a.checks += w.checks
	}
	var endings []string
	for e, n := range a.endings {
		endings = append(endings, fmt.Sprintf("%d %v", n, ending(e)))
	}
	k.t.Logf("%d rounds in %v: %s", *killsFlag, took.Round(time.Second), strings.Join(endings, ", "))
	k.t.Logf("%d kills: %d inside a checkpoint, %d inside a merge; %d unfinished block files removed at the next start", a.kills, a.insideCkpt, a.insideMrg, a.orphans)
	k.t.Logf("%d replays, %d of them cut a torn tail; replay %s; ready %s; SIGTERM to exit %s",
		a.replays, a.cutTails, spread(a.replayTook), spread(a.ready), spread(a.stopped))
	k.t.Logf("%d points compared after starts, %d comparisons in all", a.found, a.checks)
}

// spread describes durations by median and maximum.
func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "never"
	}
	slices.Sort(d)
	return fmt.Sprintf("median %v, max %v", d[len(d)/2].Round(time.Millisecond/10), d[len(d)-1].Round(time.Millisecond/10))
}

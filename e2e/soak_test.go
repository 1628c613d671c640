package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/e2e/process"
)

var soakFlag = flag.Duration("e2e.soak", 20*time.Second, "how long TestSoak loads the server")

const (
	soakWriters  = 5
	soakPause    = 10 * time.Millisecond // of a writer between two steps
	soakPoints   = 250_000               // points of a writer after which it begins another metric
	soakSegments = 6                     // at least; a segment is a minute at most
	soakTTL      = 5 * time.Second
)

// TestSoak loads a server for long: five writers that overwrite, delete, send late
// points, compare, and begin another metric now and then; points that expire; queries
// over all points; compactions on request. After each segment all points are compared
// exactly, all files are checked, and the resources of the process are recorded. In
// the first third the server is killed or stopped after each segment, in turn, and
// started again. Goroutines, open files and memory do not grow after that. At the end
// the server stops in order, its files are checked offline, and everything is
// compared once more after a start.
func TestSoak(t *testing.T) {
	process.SkipShort(t)
	dir := t.TempDir()
	flags := []string{"--log-level=debug", "--tune=embedded.head_bytes=2MiB", "--embedded-head-bytes-max=8MiB", "--tune=embedded.checkpoint_samples=60000",
		"--tune=embedded.checkpoint_interval=5s", "--tune=embedded.merge_files=3", "--tune=embedded.maintenance_interval=1s", "--embedded-row-width=1h",
		"--tune=embedded.log.segment_bytes=2MiB", "--embedded-page-cache-bytes=4MiB"}
	k := &soak{t: t, server: process.Start(t, dir, flags...)}
	start := func() { k.server = process.Start(t, dir, flags...) }
	for i := range soakWriters {
		k.writers = append(k.writers, k.newWriter(i))
	}
	segment := min(time.Minute, *soakFlag/soakSegments)
	began := time.Now()
	for time.Since(began) < *soakFlag && !t.Failed() {
		k.segment(segment)
		select {
		case <-k.server.Exited:
			t.Fatalf("the server ended by itself: %v; the first line that should not be in its log: %s\n%s", k.server.Err, k.server.Log.Fault(), k.server.Log.Tail())
		default:
		}
		k.rest()
		if time.Since(began) < *soakFlag/3 {
			k.restart(start)
		}
	}
	k.judge()
	took := k.server.Stop(t)
	k.checkFiles(dir)
	start()
	k.compare()
	m := k.measure()
	t.Logf("stopped in %v; after a start %d points in %d comparisons of all; %.0f checkpoints, %.0f merges before",
		took.Round(time.Millisecond), m.points, len(k.measured)+1, k.last().checkpoints, k.last().merges)
	k.server.Stop(t)
}

type soak struct {
	t        *testing.T
	server   *process.Server
	mu       sync.Mutex // guards writers while they write
	writers  []*writer
	made     int // writers so far
	expiring []expiring
	sent     int64 // points that expire
	measured []measure
}

// A measure is the resources of the process at one moment.
type measure struct {
	goroutines, files, megabytes float64
	checkpoints, merges          float64
	points                       int
}

func (k *soak) last() measure { return k.measured[len(k.measured)-1] }

// newWriter returns the writer for place i with a metric of its own.
func (k *soak) newWriter(i int) *writer {
	k.made++
	return newWriter(k.made, i >= soakWriters-2, uint64(k.made))
}

// segment loads the server for a while.
func (k *soak) segment(length time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), length+2*time.Minute)
	defer cancel()
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for i := range k.writers {
		wg.Go(func() {
			if err := k.write(ctx, i, end); err != nil {
				k.t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	wg.Go(func() { k.repeat(ctx, end, 200*time.Millisecond, "points that expire", k.expire) })
	wg.Go(func() { k.repeat(ctx, end, 150*time.Millisecond, "query", k.query) })
	wg.Go(func() {
		k.repeat(ctx, end, 7*time.Second, "compact", func(ctx context.Context) error {
			_, err := k.server.Want(ctx, http.StatusNoContent, "POST", "/admin/compact", "")
			return err
		})
	})
	wg.Wait()
}

func (k *soak) repeat(ctx context.Context, end time.Time, every time.Duration, what string, do func(context.Context) error) {
	for time.Now().Before(end) {
		if err := do(ctx); err != nil {
			k.t.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(min(every, max(0, time.Until(end))))
	}
}

func (k *soak) write(ctx context.Context, i int, end time.Time) error {
	w := k.writers[i]
	w.server = k.server
	defer func() { w.hangUp() }()
	for time.Now().Before(end) {
		if len(w.ledger.beliefs) > soakPoints {
			if err := errors.Join(w.barrier(ctx), w.drop(ctx)); err != nil {
				return err
			}
			w.hangUp()
			k.t.Logf("%s is deleted", w.ledger.metric)
			w = k.replace(i)
		}
		if err := w.step(ctx); err != nil {
			return err
		}
		time.Sleep(soakPause)
	}
	return w.barrier(ctx)
}

func (k *soak) replace(i int) *writer {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writers[i] = k.newWriter(i)
	k.writers[i].server = k.server
	return k.writers[i]
}

// An expiring batch lives soakTTL from its write, and is gone ttlUnit later: a
// store counts the age of a point in whole units.
type expiring struct {
	fromMS, toMS, storedMS int64 // times of its points, and of its acknowledgement
	count                  int
}

const ttlUnit = time.Second

// expire sends points that expire, and checks that earlier ones either all exist
// or are all gone.
func (k *soak) expire(ctx context.Context) error {
	const count = 50
	from := time.Now().UnixMilli()
	var points []string
	for i := range int64(count) {
		points = append(points, fmt.Sprintf("[%d,%d]", from-i, k.sent+i))
	}
	k.sent += count
	body := fmt.Sprintf(`[{"name":"e2e.expiring","tags":{"host":"e2e"},"ttl":%d,"datapoints":[%s]}]`, int(soakTTL.Seconds()), strings.Join(points, ","))
	if _, err := k.server.Want(ctx, http.StatusNoContent, "POST", "/api/v1/datapoints", body); err != nil {
		return err
	}
	k.expiring = append(k.expiring, expiring{from - count + 1, from, time.Now().UnixMilli(), count})
	for i := 0; i < len(k.expiring); i++ {
		if i > 0 && i < len(k.expiring)-1 {
			continue // the oldest and the newest one are enough
		}
		if err := k.seeExpiring(ctx, k.expiring[i]); err != nil {
			return err
		}
	}
	if time.Now().UnixMilli() > k.expiring[0].storedMS+2*soakTTL.Milliseconds() {
		k.expiring = k.expiring[1:]
	}
	return nil
}

func (k *soak) seeExpiring(ctx context.Context, e expiring) error {
	asked := time.Now().UnixMilli()
	results, err := k.server.Query(ctx, fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":"e2e.expiring"}]}`, e.fromMS, e.toMS))
	if err != nil {
		return err
	}
	answered, ttl, found := time.Now().UnixMilli(), soakTTL.Milliseconds(), 0
	for _, r := range results {
		found += len(r.Values)
	}
	switch {
	case answered < e.toMS+ttl && found != e.count:
		return fmt.Errorf("%d of %d points are there %d ms after they were sent", found, e.count, answered-e.toMS)
	case asked > e.storedMS+ttl+ttlUnit.Milliseconds() && found != 0:
		return fmt.Errorf("%d points are there %d ms after they expired", found, asked-e.storedMS-ttl)
	}
	return nil
}

// query asks for the count of each writer's points, by minutes.
func (k *soak) query(ctx context.Context) error {
	k.mu.Lock()
	metric := k.writers[int(time.Now().UnixMilli())%soakWriters].ledger.metric
	k.mu.Unlock()
	_, err := k.server.Query(ctx, fmt.Sprintf(
		`{"start_absolute":0,"metrics":[{"name":%q,"group_by":[{"name":"tag","tags":["series"]}],"aggregators":[{"name":"count","sampling":{"value":1,"unit":"minutes"}}]}]}`, metric))
	return err
}

// rest compares and measures while nobody writes.
func (k *soak) rest() {
	k.compare()
	if out, err := exec.Command(process.Binary, "check", "--http-addr="+k.server.HTTP).CombinedOutput(); err != nil {
		k.t.Errorf("check of the running server: %v\n%s", err, out)
	}
	k.measured = append(k.measured, k.measure())
	m := k.last()
	k.t.Logf("%2d: %.0f goroutines, %.0f files, %.0f MB; %d points; %.0f checkpoints, %.0f merges",
		len(k.measured), m.goroutines, m.files, m.megabytes, m.points, m.checkpoints, m.merges)
	if fault := k.server.Log.Fault(); fault != "" {
		k.t.Error("the log has:", fault)
	}
}

// restart ends the server, every other time without a warning, and compares after a start.
func (k *soak) restart(start func()) {
	how := "stopped"
	if len(k.measured)%2 == 1 {
		how = "killed"
		k.server.Kill()
	} else {
		k.server.Stop(k.t)
	}
	start()
	k.t.Logf("%s, and started again", how)
	k.expiring = nil // points that expired meanwhile were not checked
	k.compare()
}

func (k *soak) compare() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, w := range k.writers {
		w.server = k.server
		if err := w.check(ctx); err != nil {
			k.t.Errorf("%s: %v", w.ledger.metric, err)
		}
	}
}

func (k *soak) measure() measure {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := k.server.Metrics(ctx)
	if err == nil {
		err = m.Fault()
	}
	if err != nil {
		k.t.Error(err)
	}
	now := measure{
		goroutines: m["go_goroutines"], files: m["process_open_fds"], megabytes: m["process_resident_memory_bytes"] / 1e6,
		checkpoints: m["varve_store_checkpoints_total"], merges: m["varve_store_merges_total"],
	}
	for _, w := range k.writers {
		now.points += w.ledger.count()
	}
	return now
}

// judge compares the last third of the measures with the middle third.
func (k *soak) judge() {
	third := len(k.measured) / 3
	if third == 0 {
		return
	}
	for _, c := range []struct {
		what  string
		slack float64 // beside a quarter
		of    func(measure) float64
	}{
		{"goroutines", 10, func(m measure) float64 { return m.goroutines }},
		{"open files", 40, func(m measure) float64 { return m.files }},
		{"MB of memory", 40, func(m measure) float64 { return m.megabytes }},
	} {
		most := func(some []measure) (most float64) {
			for _, m := range some {
				most = max(most, c.of(m))
			}
			return most
		}
		before, after := most(k.measured[third:len(k.measured)-third]), most(k.measured[len(k.measured)-third:])
		if after > before*1.25+c.slack {
			k.t.Errorf("%.0f %s in the last third, %.0f in the one before", after, c.what, before)
		}
	}
}

func (k *soak) checkFiles(dir string) {
	out, err := exec.Command(process.Binary, "check", "--data-dir="+dir).CombinedOutput()
	if err != nil {
		k.t.Errorf("check: %v\n%s", err, out)
	}
	k.t.Logf("check: %s", lastLine(string(out)))
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

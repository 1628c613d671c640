package rollup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/ingest"
	"varve/internal/model"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// TestHistoriesOfNodes: several nodes share a store and a task. Whatever happens to them, once all
// have run undisturbed for a while, each bucket has one result, the right one: points of any age
// through each node, clocks that differ, kills and power cuts, suspensions, outages of the store for
// one node, answers that are lost, changes of the task, backfills and deletions.
func TestHistoriesOfNodes(t *testing.T) {
	seed := *historySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i := range *histories {
		t.Run(fmt.Sprint("rollup.seed=", seed+uint64(i)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newTown(t, seed+uint64(i)).live() })
		})
	}
}

// A town is some nodes that share a store.
type town struct {
	*testing.T
	random *rand.Rand
	shared *reference.Store
	nodes  []*resident
	leases leaseBoard
	ttl    int
	steps  []string

	points map[string]map[int64]int64 // by host and time
	frayed map[string]map[int64]bool  // buckets of which points were deleted, by host
}

func newTown(t *testing.T, seed uint64) *town {
	w := &town{
		T: t, random: rand.New(rand.NewPCG(seed, 3)), shared: reference.New(nil), ttl: 300_000_000,
		points: map[string]map[int64]int64{}, frayed: map[string]map[int64]bool{},
	}
	w.leases.held = map[string]*heldLease{}
	for _, host := range []string{"a", "b", "c"} {
		w.points[host], w.frayed[host] = map[int64]int64{}, map[int64]bool{}
	}
	for _, name := range []string{"a", "b", "c"}[:2+w.random.IntN(2)] {
		n := &resident{town: w, name: name, disk: crashfs.New(), skew: []time.Duration{0, 0, 40 * time.Second, -40 * time.Second}[w.random.IntN(4)]}
		if err := errors.Join(n.disk.MkdirAll("data", 0o755), safefile.SyncDir(n.disk, "")); err != nil {
			t.Fatal(err)
		}
		n.open(newOutage(w.shared))
		w.nodes = append(w.nodes, n)
	}
	return w
}

func (w *town) live() {
	time.Sleep(time.Second)
	w.put(w.nodes[0])
	time.Sleep(2*time.Hour + time.Minute) // no point is older than the task
	for range 120 {
		w.steps = append(w.steps, time.Now().Format("15:04:05 ")+w.step())
		time.Sleep(time.Duration(w.random.Int64N(int64([]time.Duration{time.Second, 20 * time.Second, 2 * time.Minute}[w.random.IntN(3)]))))
	}
	for _, n := range w.nodes {
		n.reach.mend()
	}
	time.Sleep(45 * time.Minute)
	w.check()
	for _, n := range w.nodes {
		n.h.stop()
	}
	if w.Failed() {
		w.Log("\n" + strings.Join(w.steps, "\n"))
	}
}

func (w *town) step() string {
	n := w.nodes[w.random.IntN(len(w.nodes))]
	span := time.Duration(w.random.Int64N(int64([]time.Duration{time.Second, 30 * time.Second, 3 * time.Minute}[w.random.IntN(3)])))
	switch p := w.random.IntN(100); {
	case p < 50:
		return w.send(n)
	case p < 58:
		n.restart()
		return n.name + " is killed and started"
	case p < 66:
		n.reach.suspend(span)
		return fmt.Sprint(n.name, " is suspended for ", span)
	case p < 74:
		n.reach.cut(span)
		return fmt.Sprint(n.name, " does not reach the store for ", span)
	case p < 82:
		n.reach.deafen(1 + w.random.IntN(20))
		return n.name + " loses an answer"
	case p < 88:
		return w.put(n)
	case p < 94:
		return w.fill(n)
	default:
		return w.erase(n)
	}
}

const nodesAggregators = "sum count max"

// task has, for each aggregator, one roll-up whose results have the time of their bucket, and one
// whose results have that of the first point, as in KairosDB.
func (w *town) task() string {
	var rollups []string
	for name := range strings.FieldsSeq(nodesAggregators) {
		for _, aligned := range []bool{true, false} {
			rollups = append(rollups, fmt.Sprintf(`{"save_as":"dst.%s.%v","ttl":%d,"query":{"start_absolute":1,"metrics":[{"name":"src","group_by":[{"name":"tag","tags":["host"]}],`+
				`"aggregators":[{"name":%q,"align_start_time":%v,"sampling":{"value":1,"unit":"minutes"}}]}]}}`, name, aligned, w.ttl, name, aligned))
		}
	}
	return `{"id":"t","name":"n","execution_interval":` + minute + `,"rollups":[` + strings.Join(rollups, ",") + `]}`
}

// put stores the task or a changed one, and repeats that until it succeeds.
func (w *town) put(n *resident) string {
	w.ttl++
	method, path := "PUT", "/api/v1/rollups/t"
	if w.ttl == 300_000_001 {
		method, path = "POST", "/api/v1/rollups"
	}
	for tries := 1; ; tries++ {
		answer := httptest.NewRecorder()
		n.h.mux.ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(w.task())))
		if answer.Code == 200 {
			return fmt.Sprint(n.name, ": changes the task, at attempt ", tries)
		}
		if tries == 500 {
			w.Fatal(answer.Code, answer.Body)
		}
		time.Sleep(time.Second)
	}
}

func (w *town) fill(n *resident) string {
	end := time.Now().Add(-time.Duration(w.random.Int64N(int64(time.Hour))))
	start := end.Add(-time.Duration(w.random.Int64N(int64(time.Hour))))
	form := func(at time.Time) string {
		return strings.Replace(at.UTC().Format("2006-01-02-15-04-05.000"), ".", "-", 1)
	}
	answer := httptest.NewRecorder()
	n.h.mux.ServeHTTP(answer, httptest.NewRequest("POST", "/api/v1/rollups/backfill/t?startTime="+form(start)+"&endTime="+form(end), nil))
	return fmt.Sprint(n.name, ": backfill: ", answer.Code)
}

func (w *town) send(n *resident) string {
	host := []string{"a", "b", "c"}[w.random.IntN(3)]
	sent := map[int64]int64{}
	for range 1 + w.random.IntN(5) {
		age := w.random.Int64N(int64([]time.Duration{5 * time.Second, 5 * time.Minute, 2 * time.Hour}[w.random.IntN(3)]))
		ms := time.Now().Add(-time.Duration(age)).UnixMilli()
		if w.random.IntN(3) == 0 {
			ms = model.Floor(ms, 60_000) - w.random.Int64N(2)
		}
		if _, taken := w.points[host][ms]; !taken {
			sent[ms] = w.random.Int64N(1000)
		}
	}
	n.reach.wait()
	writer := n.h.pipeline.NewWriter(n.h.pipeline.Protocol("test"), "", 0)
	_, err := writer.Ingest(w.Context(), len(sent), func() error {
		ref, err := writer.ResolveTyped(model.TypeLong, &ingest.Names{Metric: "src", Tags: []model.Tag{{Name: "host", Value: host}}})
		if err != nil {
			return err
		}
		for ms, v := range sent {
			if f := writer.AddLong(ref, ms, v, 0); f != nil {
				return f
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	var times []string
	for ms, v := range sent {
		w.points[host][ms] = v
		delete(w.frayed[host], model.Floor(ms, 60_000))
		times = append(times, time.UnixMilli(ms).UTC().Format("15:04:05.000"))
	}
	slices.Sort(times)
	return fmt.Sprintf("%s: points of %s at %v", n.name, host, times)
}

// erase deletes points. Until another point comes, results of their buckets may have any value.
func (w *town) erase(n *resident) string {
	host := []string{"a", "c"}[w.random.IntN(2)]
	from := time.Now().Add(-time.Duration(w.random.Int64N(int64(2 * time.Hour)))).UnixMilli()
	span := model.TimeRange{StartMS: from, EndMS: from + w.random.Int64N(300_000)}
	if err := w.shared.Delete(w.Context(), store.DeletionOf(model.Series{Metric: "src", Tags: model.MustTags("host", host), Type: model.TypeLong}, span)); err != nil {
		w.Fatal(err)
	}
	for ms := range w.points[host] {
		if span.Contains(ms) {
			delete(w.points[host], ms)
			w.frayed[host][model.Floor(ms, 60_000)] = true
		}
	}
	return fmt.Sprint("points of ", host, " are deleted")
}

// check compares all results with what the points say.
func (w *town) check() {
	for name := range strings.FieldsSeq(nodesAggregators) {
		for _, aligned := range []bool{true, false} {
			metric := fmt.Sprintf("dst.%s.%v", name, aligned)
			got := map[string]bool{}
			for line := range strings.Lines(w.nodes[0].h.exactPoints(metric)) {
				got[strings.TrimSpace(line)] = true
			}
			want := map[string]bool{}
			for host, points := range w.points {
				for _, line := range resultsOf(name, host, points, aligned) {
					want[line] = true
				}
			}
			for line := range want {
				if !got[line] && !w.isFrayed(line) {
					w.Errorf("%s lacks %s", metric, line)
				}
			}
			for line := range got {
				if !want[line] && !w.isFrayed(line) {
					w.Errorf("%s has %s", metric, line)
				}
			}
		}
	}
}

func (w *town) isFrayed(line string) bool {
	var host string
	var ms, v int64
	if _, err := fmt.Sscan(line, &host, &ms, &v); err != nil {
		w.Fatal(line, err)
	}
	return w.frayed[host][model.Floor(ms, 60_000)]
}

// resultsOf computes the results of a host: "host time value".
func resultsOf(name, host string, points map[int64]int64, aligned bool) (lines []string) {
	by := map[int64][]int64{} // times by bucket
	for ms := range points {
		by[model.Floor(ms, 60_000)] = append(by[model.Floor(ms, 60_000)], ms)
	}
	for start, times := range by {
		sum, most := int64(0), points[times[0]]
		for _, ms := range times {
			sum, most = sum+points[ms], max(most, points[ms])
		}
		at := start
		if !aligned {
			at = slices.Min(times)
		}
		lines = append(lines, fmt.Sprint(host, " ", at, " ", map[string]int64{"sum": sum, "count": int64(len(times)), "max": most}[name]))
	}
	return lines
}

// exactPoints lists the points of a metric: "host time value".
func (h *harness) exactPoints(metric string) string {
	h.Helper()
	view, err := h.store.View(context.Background())
	if err != nil {
		h.Fatal(err)
	}
	defer view.Close()
	var out strings.Builder
	for s, err := range view.Select(context.Background(), store.Selection{Metric: metric, Range: model.AllTime}) {
		if err != nil {
			h.Fatal(err)
		}
		host, _ := s.Tags.Get("host")
		cursor := view.Read(context.Background(), s, store.ReadOptions{Range: model.AllTime})
		for {
			b, err := cursor.Next()
			if err != nil {
				h.Fatal(err)
			}
			if b == nil {
				break
			}
			for i, ms := range b.Times {
				v := int64(b.Values[i])
				if s.Type == model.TypeDouble {
					v = int64(math.Float64frombits(b.Values[i]))
				}
				fmt.Fprintln(&out, host, ms, v)
			}
		}
		cursor.Close()
	}
	return out.String()
}

// A resident is a node.
type resident struct {
	town  *town
	name  string
	disk  *crashfs.FS
	skew  time.Duration // of its clock
	h     *harness
	reach *reach
	store *remote
}

func (n *resident) open(o *outage) {
	n.reach = &reach{}
	n.store = &remote{outage: o, reach: n.reach}
	o.fault = n.reach.begin
	o.restart()
	n.h = &harness{T: n.town.T, store: n.town.shared, front: n.store, node: n.name, notes: n.disk}
	n.h.now = func() time.Time { return time.Now().Add(n.skew) }
	reach := n.reach
	n.h.lease = func(ctx context.Context, name string, life time.Duration) (Lease, error) {
		return n.town.leases.acquire(reach, name, life)
	}
	n.h.restart(nil)
	n.h.start()
}

// restart ends the process as a power cut does: what it does from then on reaches nothing.
func (n *resident) restart() {
	disk := n.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: n.town.random.IntN(101), RNG: n.town.random})
	n.reach.die()
	n.h.stop()
	n.disk = disk
	again := newOutage(n.town.shared)
	again.log, again.hours, again.keys = n.store.log, n.store.hours, n.store.keys
	n.open(again)
}

// A reach says whether and when the calls of a process reach the store.
type reach struct {
	mu      sync.Mutex
	dead    bool
	resumes time.Time
	back    time.Time // the store is out of reach before
	deaf    int       // the answer of this call from now on is lost; 0: of none
}

func (r *reach) die() { r.mu.Lock(); defer r.mu.Unlock(); r.dead, r.resumes = true, time.Time{} }

func (r *reach) suspend(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumes = time.Now().Add(d)
}

func (r *reach) cut(d time.Duration) { r.mu.Lock(); defer r.mu.Unlock(); r.back = time.Now().Add(d) }

func (r *reach) deafen(n int) { r.mu.Lock(); defer r.mu.Unlock(); r.deaf = n }

func (r *reach) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumes, r.back, r.deaf = time.Time{}, time.Time{}, 0
}

// wait waits while the process is suspended.
func (r *reach) wait() {
	for {
		r.mu.Lock()
		left := time.Until(r.resumes)
		r.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// begin is called before a call.
func (r *reach) begin() error {
	r.wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead || time.Now().Before(r.back) {
		return errAway
	}
	return nil
}

// end is called after a call.
func (r *reach) end(err error) error {
	r.wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf > 0 {
		if r.deaf--; r.deaf == 0 {
			return errAway
		}
	}
	return err
}

// A remote store is that of a node: its points are always accepted, all else has to reach it.
type remote struct {
	*outage
	reach *reach
}

// Lookup introduces the series to the log of the node, which another one may have created.
func (r *remote) Lookup(key []byte) (store.Ref, bool) {
	ref, ok := r.outage.Lookup(key)
	if ok {
		r.outage.mu.Lock()
		defer r.outage.mu.Unlock()
		r.keys[ref] = string(key)
	}
	return ref, ok
}

func (r *remote) Set(ctx context.Context, service, key, name, text string) error {
	return r.reach.end(r.outage.Set(ctx, service, key, name, text))
}

func (r *remote) Unset(ctx context.Context, service, key, name string) error {
	return r.reach.end(r.outage.Unset(ctx, service, key, name))
}

func (r *remote) Delete(ctx context.Context, all ...store.Deletion) error {
	if err := r.reach.begin(); err != nil {
		return err
	}
	return r.reach.end(r.outage.Delete(ctx, all...))
}

func (r *remote) Append(ctx context.Context, b *store.Batch) error {
	r.reach.wait()
	r.reach.mu.Lock()
	dead := r.reach.dead
	r.reach.mu.Unlock()
	if dead {
		return errAway
	}
	return r.outage.Append(ctx, b)
}

// A leaseBoard has the leases of the nodes.
type leaseBoard struct {
	mu   sync.Mutex
	held map[string]*heldLease
}

type heldLease struct {
	board *leaseBoard
	reach *reach
	name  string
	life  time.Duration

	mu    sync.Mutex
	until time.Time // as the holder knows
	ends  time.Time // as is stored; board.mu
}

func (b *leaseBoard) acquire(r *reach, name string, life time.Duration) (Lease, error) {
	if err := r.begin(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if l := b.held[name]; l != nil && now.Before(l.ends.Add(5*time.Second)) {
		return nil, ErrHeld
	}
	l := &heldLease{board: b, reach: r, name: name, life: life, until: now.Add(life), ends: now.Add(life)}
	b.held[name] = l
	return l, nil
}

func (l *heldLease) Check() error {
	l.reach.wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		return errors.New("the lease is lost")
	}
	return nil
}

func (l *heldLease) renew() error {
	began := time.Now()
	if err := l.reach.begin(); err != nil {
		return l.Check()
	}
	l.board.mu.Lock()
	defer l.board.mu.Unlock()
	if l.board.held[l.name] != l || l.Check() != nil {
		return errors.New("the lease is lost")
	}
	l.ends = began.Add(l.life)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = began.Add(l.life)
	return nil
}

func (l *heldLease) Keep(ctx context.Context, f func(context.Context) error) error {
	ctx, lose := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(l.life / 4):
			}
			if err := l.renew(); err != nil {
				lose(err)
				return
			}
		}
	})
	err := f(ctx)
	close(ended)
	renewing.Wait()
	lose(nil)
	if l.reach.begin() == nil {
		l.board.mu.Lock()
		defer l.board.mu.Unlock()
		if l.board.held[l.name] == l {
			delete(l.board.held, l.name)
		}
	}
	return err
}

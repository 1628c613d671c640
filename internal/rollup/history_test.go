package rollup

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded"
	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/safefile"
	"varve/internal/store"
)

var (
	histories   = flag.Int("rollup.histories", 7, "histories of a task that are tried, over the embedded store and with several nodes")
	historySeed = flag.Uint64("rollup.seed", 0, "seed of all histories; 0: random ones")
)

// A history is what happens to a task over the embedded store: points of any age, runs
// and backfills that fail at any call of the store, changes of the task and of the
// stages, folds, deletions, restarts, power cuts, and a clock that is set forward and
// back.
type history struct {
	*testing.T
	random *rand.Rand
	scene  scene
	clock  atomic.Int64 // ms
	fs     *crashfs.FS
	shelf  *retention.Shelf
	store  *embedded.Store
	faults *nth
	h      *harness
	ttl    int

	points map[string]map[int64]point    // by host and time
	bucket map[string]map[int64]*outcome // by host and start of a bucket
}

// A point is what a client has sent: a long or a double, as the scene says.
type point struct {
	long   int64
	double float64
}

// An outcome is what may be stored for a bucket of a host. If points were deleted after
// the last one arrived, that is any result.
type outcome struct{ deleted bool }

// A scene is the setting of a history.
type scene struct {
	name     string
	start    time.Time // 40 days before the first point comes, which may be 30 days old
	zone     string
	sampling agg.Sampling
	stages   [2]string // of src and dst; empty: none
	doubles  bool
	apart    int64 // ms: times are multiples
	deletes  bool
	interval bool // a power cut may take points that were acknowledged
}

var scenes = []scene{
	{name: "minutes", start: time.Date(2024, 3, 31, 0, 20, 0, 0, time.UTC), zone: "UTC", sampling: agg.Sampling{Value: 1, Unit: agg.Minutes}, apart: 1, deletes: true},
	{name: "half days in Berlin", start: time.Date(2024, 3, 1, 20, 20, 0, 0, time.UTC), zone: "Europe/Berlin", sampling: agg.Sampling{Value: 12, Unit: agg.Hours}, apart: 1, doubles: true},
	{name: "days in Berlin", start: time.Date(2024, 9, 28, 20, 20, 0, 0, time.UTC), zone: "Europe/Berlin", sampling: agg.Sampling{Value: 1, Unit: agg.Days}, apart: 1, deletes: true},
	{name: "weeks around 1970 in New York", start: time.Date(1969, 12, 4, 20, 20, 0, 0, time.UTC), zone: "America/New_York", sampling: agg.Sampling{Value: 1, Unit: agg.Weeks}, apart: 1},
	{name: "minutes with rare syncs", start: time.Date(2024, 3, 31, 0, 20, 0, 0, time.UTC), zone: "UTC", sampling: agg.Sampling{Value: 1, Unit: agg.Minutes}, apart: 1, interval: true},
	{name: "results downsampled", start: time.Date(2024, 3, 31, 0, 20, 0, 0, time.UTC), zone: "UTC", sampling: agg.Sampling{Value: 1, Unit: agg.Minutes}, apart: 1, stages: [2]string{"", "60s:2h,1h:30y"}},
	{name: "points downsampled", start: time.Date(2024, 3, 31, 0, 20, 0, 0, time.UTC), zone: "UTC", sampling: agg.Sampling{Value: 1, Unit: agg.Minutes}, apart: 10_000, stages: [2]string{"10s:1h,60s:30y", ""}},
}

// historyAggregators are the roll-ups of the task, by what they save.
var historyAggregators = []string{"sum", "count", "min", "max", "last", "first", "avg", "dev", "percentile"}

func (y *history) task() string {
	var rollups []string
	for _, name := range historyAggregators {
		more := ""
		if name == "percentile" {
			more = `"percentile":0.75,`
		}
		rollups = append(rollups, fmt.Sprintf(`{"save_as":"dst.%s","time_zone":%q,"ttl":%d,"query":{"start_absolute":1,"metrics":[{"name":"src","group_by":[{"name":"tag","tags":["host"]}],`+
			`"aggregators":[{"name":%q,%s"sampling":{"value":%d,"unit":%q}}]}]}}`, name, y.scene.zone, y.ttl, name, more, y.scene.sampling.Value, y.scene.sampling.Unit))
	}
	return `{"id":"t","name":"n","execution_interval":` + minute + `,"rollups":[` + strings.Join(rollups, ",") + `]}`
}

func (y *history) now() time.Time { return time.UnixMilli(y.clock.Load()) }

func (y *history) book() *retention.Book {
	var policies []retention.PolicyConfig
	for i, metric := range []string{"src", "dst.*"} {
		if y.scene.stages[i] == "" {
			continue
		}
		var p retention.PolicyConfig
		p.SetDefaults()
		p.Name, p.Metric, p.Stages, p.Aggregation = metric, metric, y.scene.stages[i], "sum"
		policies = append(policies, p)
	}
	rules, err := retention.Config{Policies: policies}.Rules()
	if err != nil {
		y.Fatal(err)
	}
	return &retention.Book{Rules: rules, Enforced: true}
}

// open opens the store, and makes a scheduler that knows the tasks but runs none.
func (y *history) open() {
	c := embedded.DefaultConfig()
	c.MinFreeBytes, c.CheckpointSamples, c.LateHold = 0, 300, 0
	if y.scene.interval {
		c.Log.Durability, c.Log.SyncInterval = "interval", time.Minute
	}
	s, err := embedded.Open(y.fs, "data", c, embedded.Options{Book: y.shelf, Now: y.now})
	if err != nil {
		y.Fatal(err)
	}
	y.store, y.faults = s, &nth{breakable: &breakable{Store: s}}
	y.h = &harness{T: y.T, front: y.faults, now: y.now}
	y.h.restart(nil)
	y.h.scheduler.Load(y.Context())
}

func (y *history) close() {
	if err := y.store.Close(); err != nil {
		y.Error(err)
	}
}

// restart continues after a shutdown, or after a kill or power cut.
func (y *history) restart(crash bool) {
	if crash {
		percent := 100 // a kill: what was written is there
		if y.random.IntN(2) == 0 {
			percent = y.random.IntN(101)
		}
		after := y.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: y.random})
		y.close()
		y.fs = after
	} else {
		y.close()
	}
	y.open()
	if y.scene.interval {
		y.forgetLost()
	}
}

// forgetLost removes the points from the model that a power cut has removed from the
// store.
func (y *history) forgetLost() {
	stored := y.results("src")
	for host, points := range y.points {
		for ms := range points {
			if stored[host][ms] == "" {
				delete(points, ms)
			}
		}
	}
}

func (y *history) send() {
	host := []string{"a", "b", "c"}[y.random.IntN(3)]
	sent := map[int64]point{}
	for range 1 + y.random.IntN(6) {
		age := y.random.Int64N([]int64{20_000, 3_600_000, 7_200_000, 30 * 86_400_000}[y.random.IntN(4)]) - 10_000
		ms := model.Floor(y.clock.Load()-age, y.scene.apart)
		if y.random.IntN(3) == 0 { // at a border
			ms = y.grid().Start(ms)
			if y.scene.apart == 1 {
				ms -= y.random.Int64N(2)
			}
		}
		if _, taken := y.points[host][ms]; taken {
			continue
		}
		sent[ms] = point{y.value(host), y.double(host)}
	}
	w := y.h.pipeline.NewWriter(y.h.pipeline.Protocol("test"), "", 0)
	_, err := w.Ingest(y.Context(), len(sent), func() error {
		typ := model.TypeLong
		if y.scene.doubles {
			typ = model.TypeDouble
		}
		ref, err := w.ResolveTyped(typ, &ingest.Names{Metric: "src", Tags: []model.Tag{{Name: "host", Value: host}}})
		if err != nil {
			return err
		}
		for ms, p := range sent {
			var f *ingest.Fault
			if y.scene.doubles {
				f = w.AddDouble(ref, ms, p.double, 0)
			} else {
				f = w.AddLong(ref, ms, p.long, 0)
			}
			if f != nil {
				return f
			}
		}
		return nil
	})
	if err != nil {
		y.Fatal(err)
	}
	for ms, p := range sent {
		if y.points[host] == nil {
			y.points[host], y.bucket[host] = map[int64]point{}, map[int64]*outcome{}
		}
		y.points[host][ms] = p
		y.bucket[host][y.grid().Start(ms)] = &outcome{}
	}
}

// value is a moderate number, or for host b one of the ends if nothing turns it into a
// double.
func (y *history) value(host string) int64 {
	if host == "b" && y.scene.stages == [2]string{} && y.random.IntN(2) == 0 {
		return []int64{math.MaxInt64, math.MinInt64, 1<<53 + 1, -1<<53 - 1, 0}[y.random.IntN(5)]
	}
	return y.random.Int64N(1000) - 200
}

func (y *history) double(host string) float64 {
	if host == "b" {
		return []float64{math.MaxFloat64, -math.MaxFloat64, math.Copysign(0, -1), 0, math.SmallestNonzeroFloat64, 1<<53 + 2, 0.1}[y.random.IntN(7)]
	}
	return float64(y.random.Int64N(100_000)) / 100
}

func (y *history) grid() *agg.Grid {
	zone, err := time.LoadLocation(y.scene.zone)
	if err != nil {
		y.Fatal(err)
	}
	return agg.NewGrid(y.scene.sampling, zone)
}

// fault mostly makes one of the next calls of the store fail.
func (y *history) fault() {
	y.faults.left = 0
	if y.random.IntN(3) > 0 {
		y.faults.left = 1 + y.random.IntN(1<<y.random.IntN(10))
	}
}

func (y *history) run() error {
	s := y.h.scheduler
	s.mu.Lock()
	j := s.mu.jobs["t"]
	s.mu.Unlock()
	return s.run(y.Context(), j.task, func() bool { return true }, func(bool) time.Time { return y.now() })
}

func (y *history) fill() {
	end := y.clock.Load() - y.random.Int64N(10*86_400_000)
	start := max(end-y.random.Int64N(2*86_400_000), 0)
	text := func(ms int64) string {
		return strings.Replace(time.UnixMilli(ms).UTC().Format("2006-01-02-15-04-05.000"), ".", "-", 1)
	}
	if end < start {
		return
	}
	y.h.mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/api/v1/rollups/backfill/t?startTime="+text(start)+"&endTime="+text(end), nil))
}

func (y *history) delete() {
	host := []string{"a", "c"}[y.random.IntN(2)]
	from := y.clock.Load() - y.random.Int64N(86_400_000)
	span := model.TimeRange{StartMS: from, EndMS: from + y.random.Int64N(3_600_000)}
	d := store.DeletionOf(model.Series{Metric: "src", Tags: model.MustTags("host", host), Type: model.TypeLong}, span)
	if err := y.store.Delete(y.Context(), d); err != nil {
		y.Fatal(err)
	}
	for ms := range y.points[host] {
		if span.Contains(ms) {
			delete(y.points[host], ms)
			if o := y.bucket[host][y.grid().Start(ms)]; o != nil {
				o.deleted = true
			}
		}
	}
}

func (y *history) put() error {
	y.ttl = 300_000_000 + y.random.IntN(4)
	w := httptest.NewRecorder()
	y.h.mux.ServeHTTP(w, httptest.NewRequest("PUT", "/api/v1/rollups/t", strings.NewReader(y.task())))
	if w.Code != 200 {
		return errors.New(w.Body.String())
	}
	return nil
}

func (y *history) step() string {
	defer func() { y.faults.left = 0 }()
	switch n := y.random.IntN(100); {
	case n < 35:
		y.send()
		return "send"
	case n < 55:
		y.clock.Add(1000 + y.random.Int64N([]int64{60_000, 7_200_000}[y.random.IntN(2)]))
		return "wait"
	case n < 75:
		y.fault()
		err := y.run()
		if y.faults.failed != "" && y.random.IntN(3) == 0 {
			y.faults.left = 0
			y.restart(true)
		}
		y.faults.failed = ""
		return fmt.Sprint("run: ", err)
	case n < 80:
		y.fault()
		y.fill()
		if y.faults.failed != "" && y.random.IntN(3) == 0 {
			y.faults.left = 0
			y.restart(true)
		}
		y.faults.failed = ""
		return "backfill"
	case n < 83:
		y.fault()
		err := y.put()
		y.faults.left = 0
		if err != nil { // the client sends it again
			if err := y.put(); err != nil {
				y.Fatal(err)
			}
		}
		return fmt.Sprint("put: ", err)
	case n < 86:
		y.restart(false)
		return "restart"
	case n < 89:
		y.restart(true)
		return "crash"
	case n < 93:
		if err := y.store.Compact(y.Context()); err != nil {
			y.Fatal(err)
		}
		return "compact"
	case n < 95:
		if y.scene.deletes {
			y.delete()
		}
		return "delete"
	case n < 97:
		y.clock.Add(-y.random.Int64N(20 * 3_600_000))
		if err := y.run(); err != nil { // as dispatch does at once
			y.Fatal(err)
		}
		return "clock put back"
	case n < 98:
		y.clock.Add(y.random.Int64N(20 * 3_600_000))
		return "clock put forward"
	default:
		if y.scene.stages[1] != "" {
			y.scene.stages[1] = []string{"60s:2h,1h:30y", "60s:1d,1h:30y", "60s:2h,10m:4h,1h:30y", "60s:3h,1h:2d,1d:30y"}[y.random.IntN(4)]
		}
		if y.scene.stages[0] != "" {
			y.scene.stages[0] = []string{"10s:1h,60s:30y", "10s:5h,60s:30y"}[y.random.IntN(2)]
		}
		y.shelf.Put(y.book())
		return "stages: " + y.scene.stages[0] + " " + y.scene.stages[1]
	}
}

// results are the stored numbers of a metric by host and time; longs are written "long
// N". If results are downsampled, they are sum and count per day.
func (y *history) results(metric string) map[string]map[int64]string {
	view, err := y.store.View(y.Context())
	if err != nil {
		y.Fatal(err)
	}
	defer view.Close()
	all := map[string]map[int64]string{}
	type total struct {
		sum   float64
		count int64
	}
	totals := map[string]map[int64]total{}
	for s, err := range view.Select(y.Context(), store.Selection{Metric: metric, Range: model.AllTime}) {
		if err != nil {
			y.Fatal(err)
		}
		host, _ := s.Tags.Get("host")
		if all[host] == nil {
			all[host], totals[host] = map[int64]string{}, map[int64]total{}
		}
		add := func(ms int64, sum float64, count int64) {
			day := model.Floor(ms, 86_400_000)
			was := totals[host][day]
			totals[host][day] = total{was.sum + sum, was.count + count}
		}
		cursor := view.Read(y.Context(), s, store.ReadOptions{Range: model.AllTime, Buckets: store.WithoutBuckets})
		for {
			b, err := cursor.Next()
			if err != nil {
				y.Fatal(err)
			}
			if b == nil {
				break
			}
			for i, ms := range b.Times {
				text, v := fmt.Sprint("long ", int64(b.Values[i])), float64(int64(b.Values[i]))
				if s.Type == model.TypeDouble {
					v = math.Float64frombits(b.Values[i])
					text = fmt.Sprint(v)
				}
				if was := all[host][ms]; was != "" {
					text = was + " and " + text
				}
				all[host][ms] = text
				add(ms, v, 1)
			}
		}
		cursor.Close()
		cursor = view.Read(y.Context(), s, store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.AllStats})
		for {
			b, err := cursor.Next()
			if err != nil {
				y.Fatal(err)
			}
			if b == nil {
				break
			}
			for i := range b.Buckets.Len() {
				one := b.Buckets.At(i)
				add(one.StartMS, one.Sum, one.Count)
			}
		}
		cursor.Close()
	}
	if y.scene.stages[1] == "" {
		return all
	}
	for host, days := range totals {
		all[host] = map[int64]string{}
		for day, t := range days {
			all[host][day] = fmt.Sprintf("%v/%d", t.sum, t.count)
		}
	}
	return all
}

// expected computes an aggregator over the points of the model.
func (y *history) expected(name, host string) map[int64]string {
	by := map[int64][]int64{}
	for ms := range y.points[host] {
		start := y.grid().Start(ms)
		by[start] = append(by[start], ms)
	}
	want := map[int64]string{}
	type total struct {
		sum   float64
		count int
	}
	totals := map[int64]total{}
	for start, times := range by {
		slices.Sort(times)
		var longs []int64
		var doubles []float64
		sum, dsum := int64(0), 0.0
		for _, ms := range times {
			p := y.points[host][ms]
			longs, doubles = append(longs, p.long), append(doubles, p.double)
			sum, dsum = sum+p.long, dsum+p.double
		}
		text := ""
		number := func(l int64, d float64) {
			text = fmt.Sprint("long ", l)
			if y.scene.doubles {
				text = fmt.Sprint(d)
			}
		}
		switch name {
		case "sum":
			number(sum, dsum)
		case "count":
			text = fmt.Sprint("long ", len(longs))
		case "min":
			number(slices.Min(longs), slices.Min(doubles))
		case "max":
			number(slices.Max(longs), slices.Max(doubles))
		case "last":
			number(longs[len(longs)-1], doubles[len(doubles)-1])
		case "first":
			number(longs[0], doubles[0])
		case "avg":
			text = fmt.Sprint(float64(sum) / float64(len(longs)))
			if y.scene.doubles {
				text = fmt.Sprint(dsum / float64(len(longs)))
			}
		case "dev", "percentile":
			values := doubles
			if !y.scene.doubles {
				values = nil
				for _, v := range longs {
					values = append(values, float64(v))
				}
			}
			text = fmt.Sprint(statistics[name](values))
		}
		want[start] = text
		day := model.Floor(start, 86_400_000)
		totals[day] = total{totals[day].sum + float64(sum), totals[day].count + 1}
	}
	if y.scene.stages[1] != "" {
		clear(want)
		for day, t := range totals {
			want[day] = fmt.Sprintf("%v/%d", t.sum, t.count)
		}
	}
	return want
}

// statistics are computed in the plainest way.
var statistics = map[string]func(values []float64) float64{
	"dev": func(values []float64) float64 { // of a sample, 0 for a single value
		mean, sum := 0.0, 0.0
		for _, v := range values {
			mean += v / float64(len(values))
		}
		for _, v := range values {
			sum += (v - mean) * (v - mean)
		}
		return math.Sqrt(sum / float64(max(len(values)-1, 1)))
	},
	"percentile": func(values []float64) float64 { // 75 %, interpolated as in KairosDB
		values = slices.Sorted(slices.Values(values))
		at := 0.75 * float64(len(values)+1)
		i := int(at)
		if i < 1 {
			return values[0]
		}
		if i >= len(values) {
			return values[len(values)-1]
		}
		return values[i-1] + (at-float64(i))*(values[i]-values[i-1])
	},
}

// sameResult reports whether two results are the same number, except for the order in
// which doubles were added. A whole number may be stored as a double if that is exact.
func sameResult(got, want string) bool {
	var x, y float64
	if n, ok := strings.CutPrefix(want, "long "); ok {
		long, err := strconv.ParseInt(n, 10, 64)
		return err == nil && (got == want || got == fmt.Sprint(float64(long)))
	}
	if _, err := fmt.Sscan(got, &x); err != nil {
		return got == want
	}
	if _, err := fmt.Sscan(want, &y); err != nil {
		return false
	}
	return got == want || math.Abs(x-y) <= 1e-9*(1+math.Abs(x))
}

func (y *history) check() {
	names := historyAggregators
	if y.scene.stages[1] != "" {
		names = []string{"sum"}
	}
	if y.scene.stages[0] != "" {
		names = []string{"sum", "count", "max", "min", "avg"}
	}
	for _, name := range names {
		got := y.results("dst." + name)
		for host := range y.points {
			if host == "b" && slices.Contains([]string{"sum", "avg", "dev", "percentile"}, name) && y.scene.stages == [2]string{} {
				continue // it overflows, or is not exact
			}
			want := y.expected(name, host)
			for start, value := range want {
				if !sameResult(got[host][start], value) && (y.scene.stages[1] != "" || !y.bucket[host][start].deleted) {
					y.Errorf("%s of host %s at %s: %q, want %q", name, host, time.UnixMilli(start).UTC(), got[host][start], value)
				}
			}
			for start, value := range got[host] {
				if o := y.bucket[host][start]; want[start] == "" && (o == nil || !o.deleted) {
					y.Errorf("%s of host %s at %s: %q, and there are no points", name, host, time.UnixMilli(start).UTC(), value)
				}
			}
		}
	}
}

// Whatever happens to a task and its store: once nothing fails any more, each result is
// what its query computes from the existing points.
func TestHistories(t *testing.T) {
	for i := range *histories {
		seed := rand.Uint64()
		if *historySeed != 0 {
			seed = *historySeed
		}
		scene := scenes[i%len(scenes)]
		t.Run(scene.name, func(t *testing.T) { tryHistory(t, scene, seed) })
		if t.Failed() {
			return
		}
	}
}

func tryHistory(t *testing.T, scene scene, seed uint64) {
	y := &history{
		T: t, random: rand.New(rand.NewPCG(seed, 2)), scene: scene, fs: crashfs.New(), ttl: 300_000_000,
		points: map[string]map[int64]point{}, bucket: map[string]map[int64]*outcome{},
	}
	y.clock.Store(scene.start.UnixMilli())
	if err := errors.Join(y.fs.MkdirAll("data", 0o755), safefile.SyncDir(y.fs, "")); err != nil {
		t.Fatal(err)
	}
	y.shelf = retention.NewShelf(y.book())
	y.open()
	defer func() { y.close() }()
	y.h.do(200, "POST", "/api/v1/rollups", y.task())
	if err := y.run(); err != nil {
		t.Fatal(err)
	}
	y.clock.Add(40 * 86_400_000) // no point is older than the task
	if err := y.run(); err != nil {
		t.Fatal(err)
	}
	var steps []string
	for range 250 {
		steps = append(steps, y.step())
		if t.Failed() {
			break
		}
	}
	for _, points := range y.points { // some lie ahead of a clock that was put back
		for ms := range points {
			y.clock.Store(max(y.clock.Load(), ms))
		}
	}
	for range 2 {
		y.clock.Add(3 * 3_600_000)
		if err := y.run(); err != nil {
			t.Error(err)
		}
	}
	y.check()
	if t.Failed() {
		t.Logf("seed %d:\n%s", seed, strings.Join(steps, "\n"))
	}
}

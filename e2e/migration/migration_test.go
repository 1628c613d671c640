package migration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// queued is a metric that KairosDB accepts just before it is stopped.
const queued = "queued"

// Results of the two roll-up tasks: as KairosDB stamps them, and at the bucket's start.
var rolledUp = []string{"live.sum", "live.sum.aligned"}

func task(id, saveAs, align string) string {
	return fmt.Sprintf(`{"id":%q,"name":%q,"execution_interval":{"value":5,"unit":"SECONDS"},"rollups":[{"save_as":%q,"query":{
		"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":%q,"group_by":[{"name":"tag","tags":["host"]}],
		"aggregators":[{"name":"sum","sampling":{"value":%d,"unit":"seconds"}%s}]}]}}]}`, id, id, saveAs, source, bucketMS/1000, align)
}

// history is points of two months, long, double and text.
func history() (list []sent) {
	random := rand.New(rand.NewPCG(1, 1))
	now := time.Now().UnixMilli()
	for m := range 4 {
		for s := range 8 {
			one := sent{Name: fmt.Sprint("history", m), Tags: map[string]string{"host": fmt.Sprint("h", s), "dc": fmt.Sprint("d", s%3)}}
			for range 200 {
				var v any = random.IntN(1000)
				switch m {
				case 1:
					v = random.NormFloat64() * 1000
				case 2:
					v = fmt.Sprint("state ", random.IntN(4))
				}
				one.Points = append(one.Points, [2]any{now - random.Int64N(60*86_400_000), v})
			}
			list = append(list, one)
		}
	}
	return list
}

// A journey is a keyspace in the course of the migration.
type journey struct {
	t        *testing.T
	flags    []string // of all varve commands
	dir      string
	original *originals.KairosDB
	kairos   client
	live     *stream
}

// TestMigration follows the page, to Varve and back.
func TestMigration(t *testing.T) {
	process.SkipShort(t)
	if !*migrationFlag {
		t.Skip("takes some five minutes; run with -migration: make test-migration")
	}
	address := originals.Cassandra(t)
	config := cqltest.Config(address)
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	j := &journey{t: t, dir: t.TempDir()}
	j.original = originals.StartKairosDB(t, originals.KairosDBOptions{
		Cassandra: []string{address}, Keyspace: config.Keyspace, CompactStorage: true, TagIndex: `["*"]`, Rollups: true,
		// This is KairosDB's default. After a start, it repeats all writes since a
		// checkpoint.
		Settings: map[string]string{
			"queue_processor.class":      `"org.kairosdb.core.queue.FileQueueProcessor"`,
			"queue_processor.queue_path": `"queue"`,
		},
	})
	j.kairos = client{"KairosDB", j.original.URL}
	j.flags = []string{"--kairosdb-conf=" + filepath.Join(j.original.Dir, "conf", "kairosdb.conf")}
	j.fill()
	v := j.beside()
	j.deletes(v)
	j.alone(v)
	j.back(v)
}

// fill sends points to KairosDB, which rolls them up.
func (j *journey) fill() {
	for _, one := range history() {
		if err := j.kairos.put(j.t.Context(), one); err != nil {
			j.t.Fatal(err)
		}
	}
	j.live = begin(j.t, j.kairos)
	for i, saveAs := range rolledUp {
		j.kairos.must(j.t, http.MethodPost, "/api/v1/rollups", task(fmt.Sprint("task", i), saveAs, []string{"", `,"align_start_time":true`}[i]))
	}
	j.awaitResults("KairosDB rolls up", j.kairos, time.Now().UnixMilli()+2*bucketMS, never)
}

// never is the time from which on results that KairosDB computes must be right: it
// misses points that become visible after its run.
const never = int64(1) << 62

// awaitResults waits until each bucket up to a time has one result, and from exactMS on
// the right one.
func (j *journey) awaitResults(stage string, c client, untilMS, exactMS int64) {
	j.t.Helper()
	began := time.Now()
	for {
		fault, least := "", 1<<30
		for _, metric := range rolledUp {
			n, bad := j.live.checkResults(j.t, c, metric, exactMS, untilMS)
			if least = min(least, n); bad != "" {
				fault = bad
			}
			for _, h := range hosts {
				if last := lastOf(c.results(j.t, metric)[h]); last < untilMS {
					fault = fmt.Sprintf("the last result of %s of %s is of %d, want one from %d on", metric, h, last, untilMS)
				}
			}
		}
		if fault == "" {
			j.t.Logf("%s: after %v, %d buckets have one result each", stage, time.Since(began).Round(time.Second), least)
			return
		}
		if time.Since(began) > 4*time.Minute {
			j.t.Fatalf("%s: %s", stage, fault)
		}
		time.Sleep(time.Second)
	}
}

func lastOf(points [][2]int64) (ms int64) {
	for _, p := range points {
		ms = max(ms, p[0])
	}
	return ms
}

// start starts Varve on the keyspace.
func (j *journey) start() (*process.Server, client) {
	s := process.Start(j.t, j.dir, append([]string{"--cassandra-spool-linger=200ms",
		"--tune=cassandra.read.postings_cache_age=1s", "--tune=rollups.retry_interval=1s"}, j.flags...)...)
	c := client{"Varve", "http://" + s.HTTP}
	err := process.Until(j.t.Context(), "Varve opens the keyspace", func() (bool, error) {
		_, err := c.do(j.t.Context(), http.MethodGet, "/api/v1/metricnames", "")
		return err == nil, nil
	})
	if err != nil {
		j.t.Fatalf("%v\n%s", err, s.Log.Tail())
	}
	return s, c
}

// beside starts Varve on the keyspace while KairosDB continues.
func (j *journey) beside() *process.Server {
	status, out := varve(j.t, append([]string{"inspect", "--preflight"}, j.flags...)...)
	if status != 0 || !strings.Contains(out, "KairosDB     nodes: kairos-test") {
		j.t.Errorf("the preflight, status %d:\n%s", status, out)
	}
	s, v := j.start()
	same(j.t, "beside", j.kairos, v, 1)
	j.live.turnTo(v)
	for _, c := range []client{j.kairos, v} {
		if err := c.put(j.t.Context(), sent{"history0", map[string]string{"host": "h0", "by": c.name}, [][2]any{{time.Now().UnixMilli() - 1000, 1}}}); err != nil {
			j.t.Fatal(err)
		}
	}
	same(j.t, "beside, both write", j.kairos, v, 2)
	return s
}

// deletes makes both servers delete while both run.
func (j *journey) deletes(s *process.Server) {
	v := client{"Varve", "http://" + s.HTTP}
	v.must(j.t, http.MethodPost, "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"history0","tags":{"host":"h1"}}]}`)
	j.kairos.must(j.t, http.MethodPost, "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"history3"}]}`)
	j.kairos.must(j.t, http.MethodPost, "/api/v1/datapoints/delete",
		fmt.Sprintf(`{"start_absolute":%d,"metrics":[{"name":"history1","tags":{"host":"h2"}}]}`, time.Now().Add(-10*24*time.Hour).UnixMilli()))
	same(j.t, "after deletes by both", j.kairos, v, 3)
}

// alone stops KairosDB. Varve takes over the roll-ups, also of late points, and deletes.
func (j *journey) alone(s *process.Server) {
	v := client{"Varve", "http://" + s.HTTP}
	if err := j.kairos.put(j.t.Context(), sent{queued, map[string]string{"host": "a"}, [][2]any{{time.Now().UnixMilli() - 1000, 1}}}); err != nil {
		j.t.Fatal(err)
	}
	err := process.Until(j.t.Context(), "the last point to KairosDB is in Cassandra", func() (bool, error) {
		return len(v.results(j.t, queued)["a"]) == 1, nil
	})
	if err != nil {
		j.t.Fatal(err)
	}
	j.original.Stop()
	stopped := time.Now().UnixMilli()
	j.live.send(stopped-3*bucketMS, 5) // between others of its bucket
	first := j.firstOf(stopped - 2*bucketMS)
	j.live.send(first, 7) // before the first one of its bucket
	// The first run that covers the last hour is the second one. It computes every
	// bucket that KairosDB had.
	j.awaitResults("Varve has taken over", v, stopped+bucketMS, j.begun())
	status, out := varve(j.t, append([]string{"repair", "--data-dir", j.t.TempDir()}, j.flags...)...)
	if status != 0 {
		j.t.Errorf("repair, status %d:\n%s", status, out)
	}
	v.must(j.t, http.MethodPost, "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"history0","tags":{"host":"h4"}}]}`)
	v.must(j.t, http.MethodPost, "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"`+queued+`"}]}`)
}

// begun is the first bucket whose points were all sent.
func (j *journey) begun() int64 {
	j.live.mu.Lock()
	defer j.live.mu.Unlock()
	first := int64(1<<63 - 1)
	for b := range j.live.sums[hosts[0]] {
		first = min(first, b)
	}
	return first
}

// firstOf is the beginning of the bucket of a time, where no point is.
func (j *journey) firstOf(ms int64) int64 { return ms/bucketMS*bucketMS + 1 }

// back stops Varve and starts KairosDB, which must find all points and continue the
// roll-ups.
func (j *journey) back(s *process.Server) {
	v := client{"Varve", "http://" + s.HTTP}
	j.live.mu.Lock() // clients wait
	v.must(j.t, http.MethodPost, "/admin/flush", "")
	s.Stop(j.t)
	// Otherwise KairosDB writes its last points and results of roll-ups again.
	if err := os.RemoveAll(filepath.Join(j.original.Dir, "queue")); err != nil {
		j.t.Fatal(err)
	}
	j.original.Start()
	j.live.to = j.kairos
	j.live.mu.Unlock()
	returned := time.Now().UnixMilli()
	j.awaitResults("KairosDB is back", j.kairos, returned+bucketMS, never)
	// Varve's results stay right, up to the bucket that was open.
	if _, fault := j.live.checkResults(j.t, j.kairos, rolledUp[0], j.begun(), returned-2*bucketMS); fault != "" {
		j.t.Errorf("KairosDB is back: %s", fault)
	}
	if got := j.kairos.results(j.t, queued)["a"]; len(got) > 0 {
		j.t.Errorf("KairosDB is back, and so is what was deleted: %v", got)
	}
	s, v = j.start()
	same(j.t, "KairosDB is back", j.kairos, v, 4)
	if names := j.kairos.must(j.t, http.MethodGet, "/api/v1/rollups", ""); !json.Valid(names) || strings.Count(string(names), `"save_as"`) != 2 {
		j.t.Errorf("tasks: %s", names)
	}
	s.Stop(j.t)
	if err := j.live.failed(); err != nil {
		j.t.Errorf("a client could not write: %v", err)
	}
}

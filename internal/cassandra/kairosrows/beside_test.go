package kairosrows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
)

// kairos is the original, asked over HTTP.
type kairos struct {
	t   testing.TB
	url string
}

func (k kairos) do(method, path, body string) string {
	k.t.Helper()
	request, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		k.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode/100 != 2 {
		k.t.Fatalf("%s %s: %s %s %v", method, path, response.Status, answer, err)
	}
	return string(answer)
}

// values returns what KairosDB finds of a metric, as "time=value".
func (k kairos) values(metric, tags string) []string {
	k.t.Helper()
	answer := k.do("POST", "/api/v1/datapoints/query", fmt.Sprintf(`{"start_absolute": -4000000000, "end_absolute": 4000000000000, "metrics": [{"name": %q, "tags": %s}]}`, metric, tags))
	var parsed struct {
		Queries []struct {
			Results []struct{ Values [][]json.Number }
		}
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(answer)))
	decoder.UseNumber()
	if err := decoder.Decode(&parsed); err != nil {
		k.t.Fatalf("%s: %v", answer, err)
	}
	var all []string
	for _, v := range parsed.Queries[0].Results[0].Values {
		all = append(all, fmt.Sprintf("%s=%s", v[0], v[1]))
	}
	slices.Sort(all)
	return all
}

// eventually waits until KairosDB, whose writes are queued, has caught up.
func (k kairos) eventually(what string, want []string, got func() []string) {
	k.t.Helper()
	var last []string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if last = got(); slices.Equal(last, want) {
			return
		}
	}
	k.t.Errorf("%s: %q, want %q", what, last, want)
}

// TestBesideKairosDB: each reads what the other wrote and sees what it deleted,
// on one keyspace that Varve made.
func TestBesideKairosDB(t *testing.T) {
	w := write.DefaultConfig()
	w.TagIndex = []string{"include prefix=TestBesideKairosDB"}
	c := schema.DefaultConfig()
	c.IndexShards = 2 // a keyspace of its own: KairosDB lists itself there
	b := newBench(t, c, w, "")
	metric := b.Name("load")
	process := originals.StartKairosDB(t, originals.KairosDBOptions{
		Cassandra: []string{originals.Cassandra(t)}, Keyspace: b.KS.Name, TagIndex: fmt.Sprintf("[%q]", metric)})
	k := kairos{t, process.URL}
	d := b.deleter(remove.DefaultConfig(), time.Now)
	reader := lookup.Reader(b.Bench)
	now := time.Now().UnixMilli()
	old := int64(keyspacetest.SomeTime)
	lookup := func() (series []string) {
		found, err := reader.Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range found {
			series = append(series, fmt.Sprintf("%s %d", s.Series.Tags, len(s.Rows)))
		}
		slices.Sort(series)
		return series
	}

	// We write, it reads: all, and by its tag index.
	a, emoji := keyspacetest.LongSeries(metric, "host", "a", "città", "Zürich"), keyspacetest.LongSeries(metric, "host", "b", "\U0001f600", "x", "\ufffd", "y")
	b.write(new(keyspacetest.Memory).Longs(a, 0, -1000, old, old+1, now).Longs(emoji, 3600, now))
	point := func(ms int64) string { return fmt.Sprintf("%d=%d", ms, ms) }
	all := []string{point(-1000), point(old), point(old + 1), point(now), point(now)}
	if got := k.values(metric, "{}"); !slices.Equal(got, all) {
		t.Errorf("KairosDB reads %q, want %q", got, all)
	}
	if got := k.values(metric, `{"host": ["b"]}`); !slices.Equal(got, all[3:4]) {
		t.Errorf("by its tag index: %q, want %q", got, all[3:4])
	}

	// It deletes, we see the rows gone, and write again.
	k.do("DELETE", "/api/v1/metric/"+metric, "")
	k.eventually("samples after its delete", nil, func() []string { return slices.Repeat([]string{"left"}, b.Count("data_points")) })
	if n := b.Count("row_keys"); n != 0 {
		t.Errorf("%d row keys are left after its delete", n)
	}
	keyspacetest.NextMillisecond() // a delete wins over a write of its millisecond
	b.write(new(keyspacetest.Memory).Longs(a, 0, old, now))
	b.watch(d).Look(b.Ctx, 0) // as it does each index_refresh
	if got := k.values(metric, "{}"); !slices.Equal(got, []string{point(old), point(now)}) {
		t.Errorf("after its delete we wrote: KairosDB reads %q", got)
	}

	// It writes, we read and delete while it runs.
	put := func(ms int64) {
		t.Helper()
		k.do("POST", "/api/v1/datapoints", fmt.Sprintf(`[{"name": %q, "tags": {"host": "k"}, "datapoints": [[%d, %d]]}]`, metric, ms, ms))
	}
	put(now + 1)
	put(old + 7)
	k.eventually("its samples", []string{point(old), point(old + 7), point(now), point(now + 1)}, func() []string { return k.values(metric, "{}") })
	if got := lookup(); !slices.Equal(got, []string{"{città=Zürich,host=a} 2", "{host=k} 2"}) {
		t.Errorf("we find %q", got)
	}
	b.delete(d, store.Deletion{Metric: metric, Range: model.AllTime})
	if got := k.values(metric, "{}"); len(got) != 0 {
		t.Errorf("after our delete KairosDB reads %q", got)
	}
	// The index rows of the current row stay, since it would not write them again;
	// those of the old one go.
	if got := b.TableCounts(); got[:8] != "0 2 1 1 " {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
	keyspacetest.NextMillisecond()
	put(now + 2)
	k.eventually("what it writes next", []string{point(now + 2)}, func() []string { return k.values(metric, "{}") })
	if got := lookup(); !slices.Contains(got, "{host=k} 1") || b.Count("data_points") != 1 {
		t.Errorf("we find %q and %d samples", got, b.Count("data_points"))
	}
}

// TestEmptiedBesideKairosDB: what docs/cassandra.md says of KairosDB nodes and TRUNCATE, which also holds
// for restored snapshots. A node that ran meanwhile writes samples without index rows. Once it was
// restarted, and a repair has run, all its samples are found.
func TestEmptiedBesideKairosDB(t *testing.T) {
	c := schema.DefaultConfig()
	c.IndexShards = 2 // a keyspace of its own: KairosDB lists itself there
	b := newBench(t, c, write.DefaultConfig(), "")
	metric := b.Name("load")
	process := originals.StartKairosDB(t, originals.KairosDBOptions{Cassandra: []string{originals.Cassandra(t)}, Keyspace: b.KS.Name})
	k := kairos{t, process.URL}
	now := time.Now().UnixMilli()
	put := func(host string, ms int64) {
		t.Helper()
		k.do("POST", "/api/v1/datapoints", fmt.Sprintf(`[{"name": %q, "tags": {"host": %q}, "datapoints": [[%d, %d]]}]`, metric, host, ms, ms))
	}
	values := func() []string { return k.values(metric, "{}") }
	point := func(ms int64) string { return fmt.Sprintf("%d=%d", ms, ms) }
	put("a", now)
	put("b", now)
	k.eventually("its samples", []string{point(now), point(now)}, values)
	for _, table := range []string{"data_points", "row_keys", "row_key_time_index", "string_index", "varve_row_index", "varve_row_state"} {
		b.Exec("TRUNCATE " + table)
	}

	put("a", now+1)
	k.eventually("a sample that it writes then", []string{"stored"}, func() []string { return slices.Repeat([]string{"stored"}, b.Count("data_points")) })
	if got := values(); len(got) != 0 || b.Count("row_keys") != 0 {
		t.Errorf("KairosDB wrote index rows again, which the documentation denies: it reads %q", got)
	}
	process.Stop()
	process.Start()
	repaired, err := b.deleter(remove.DefaultConfig(), time.Now).Repair(b.Ctx, remove.RepairOptions{})
	if err != nil || repaired.Unindexed == 0 { // KairosDB has metrics of its own
		t.Fatalf("repair: %+v %v", repaired, err)
	}
	put("b", now+2)
	k.eventually("all samples since then", []string{point(now + 1), point(now + 2)}, values)
	found, err := lookup.Reader(b.Bench).Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime})
	if err != nil || len(found) != 2 {
		t.Errorf("we find %v %v, want both series", found, err)
	}
}

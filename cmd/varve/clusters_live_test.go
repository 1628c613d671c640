package main

import (
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/originals"
)

// TestSeveralClustersBesideKairosDB runs the original and Varve with one
// configuration, with a read cluster that has old points and the metadata: both
// answer the same, and what either deletes there the other does not find.
func TestSeveralClustersBesideKairosDB(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	old := cqltest.Keyspace(t, cqltest.Config(config.Hosts...), cql.Options{})
	kairosrowstest.Load(t, old, "milliseconds")
	written := cqltest.Keyspace(t, config, cql.Options{})
	common := `keyspace: "` + old.KeyspaceName() + `", cql_host_list: ["` + config.Hosts[0] + `"], protocol_compression: NONE, read_consistency_level: ONE, write_consistency_level: ONE }`
	k := originals.StartKairosDB(t, originals.KairosDBOptions{
		Cassandra: config.Hosts, Keyspace: written.KeyspaceName(),
		Settings: map[string]string{
			"datastore.cassandra.write_cluster.name": "new",
			"datastore.cassandra.read_clusters":      `[{ name: old, end_time: "2035-07-04T12:08-0700", ` + common + "]",
			"datastore.cassandra.meta_cluster":       "{ name: notes, " + common,
		},
	})
	p := start(t, t.TempDir(), "--kairosdb-conf", filepath.Join(k.Dir, "conf", "kairosdb.conf"),
		"--tune=cassandra.read.chunk_cache_age=200ms", "--tune=cassandra.read.postings_cache_age=200ms")
	defer p.stop(syscall.SIGTERM)

	theirs := func(method, path, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequest(method, k.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	ours := func(method, path, body string) (int, string) { return p.do(method, path, body) }
	type server = func(method, path, body string) (int, string)
	do := func(on server, method, path, body string) {
		t.Helper()
		if code, text := on(method, path, body); code != 204 {
			t.Fatalf("%s %s: %d %s", method, path, code, text)
		}
	}
	query := func(metric, more string) string {
		return `{"start_absolute":0,"end_absolute":1900000000000,"time_zone":"UTC","metrics":[{"name":"` + metric + `"` + more + `}]}`
	}
	questions := []string{
		query("fix.long", ""), query("fix.long", `,"order":"desc"`), query("fix.long", `,"tags":{"host":["a"]}`),
		query("fix.long", `,"group_by":[{"name":"tag","tags":["host"]}],"aggregators":[{"name":"sum","sampling":{"value":3,"unit":"weeks"},"align_start_time":true}]`),
		query("fix.double", ""), query("fix.string", ""), query("fix.rows", ""), query("new.metric", ""),
		`{"start_absolute":1600000000000,"end_absolute":1900000000000,"metrics":[{"name":"fix.long"}]}`,
	}
	// agree asks both until they answer the same: what was sent or deleted a
	// moment ago may take its time.
	agree := func(when string) {
		t.Helper()
		for _, q := range questions {
			until := time.Now().Add(2 * time.Minute)
			for {
				code, want := theirs("POST", "/api/v1/datapoints/query", q)
				status, got := ours("POST", "/api/v1/datapoints/query", q)
				diff := ""
				if code == 200 && status == 200 {
					diff = cmp.Diff(normal(t, []byte(want)), normal(t, []byte(got)), sameNumber)
				}
				if code == 200 && status == 200 && diff == "" {
					break
				}
				if time.Now().After(until) {
					t.Errorf("%s: %s\n%d and %d: KairosDB's answer is - and Varve's +:\n%.2000s", when, q, code, status, diff)
					break
				}
				time.Sleep(200 * time.Millisecond)
			}
		}
	}
	has := func(on server, metric, part string) {
		t.Helper()
		if _, text := on("POST", "/api/v1/datapoints/query", query(metric, "")); !strings.Contains(text, part) {
			t.Errorf("%s: %.300s, want %s", metric, text, part)
		}
	}
	until := time.Now().Add(time.Minute)
	for { // the keyspaces are open
		if code, _ := ours("GET", "/api/v1/metricnames", ""); code == 200 {
			break
		} else if time.Now().After(until) {
			t.Fatal(ours("GET", "/admin/cassandra", ""))
		}
		time.Sleep(100 * time.Millisecond)
	}
	agree("old points")
	has(ours, "fix.long", `"sample_size":21`)
	words := regexp.MustCompile(`"fix\.[^"]*"|[a-z]+`) // in any order
	for _, path := range []string{"/api/v1/metricnames?prefix=fix", "/api/v1/metadata/dash/home", "/api/v1/metadata/dash/home/json"} {
		_, want := theirs("GET", path, "")
		_, got := ours("GET", path, "")
		if diff := cmp.Diff(slices.Sorted(slices.Values(words.FindAllString(want, -1))), slices.Sorted(slices.Values(words.FindAllString(got, -1)))); diff != "" {
			t.Errorf("%s: KairosDB's answer is - and Varve's +: %s", path, diff)
		}
	}

	do(theirs, "POST", "/api/v1/datapoints", `[{"name":"fix.long","tags":{"host":"a","dc":"lga"},"datapoints":[[1700000000000,5]]},{"name":"new.metric","tags":{"host":"a"},"datapoints":[[1700000000000,1]]}]`)
	do(ours, "POST", "/api/v1/datapoints", `[{"name":"fix.long","tags":{"host":"a","dc":"lga"},"datapoints":[[1700000060000,6]]},{"name":"new.metric","tags":{"host":"b"},"datapoints":[[1700000060000,2]]}]`)
	do(ours, "POST", "/admin/flush", "")
	agree("new points beside them")
	has(theirs, "fix.long", "[1700000060000,6]")

	do(theirs, "DELETE", "/api/v1/metric/fix.double", "")
	agree("after a delete by KairosDB")
	has(ours, "fix.double", `"sample_size":0`)
	do(ours, "DELETE", "/api/v1/metric/fix.string", "")
	do(ours, "POST", "/api/v1/datapoints/delete", `{"start_absolute":0,"end_absolute":1505000000000,"metrics":[{"name":"fix.long"}]}`)
	agree("after deletes by Varve")
	has(theirs, "fix.string", `"sample_size":0`)
	has(theirs, "fix.long", "[1700000060000,6]")
}

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/originals"
)

// TestSeveralClusters serves with a configuration of KairosDB that has read
// clusters and a cluster for metadata. One keyspace of a node stands for each.
func TestSeveralClusters(t *testing.T) {
	address := originals.Cassandra(t)
	old := cqltest.Keyspace(t, cqltest.Config(address), cql.Options{})
	kairosrowstest.Load(t, old, "narrow")
	config, meta := cqltest.Config(address), cqltest.Config(address)
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	cqltest.Drop(t, cqltest.Open(t, meta, cql.Options{}))
	dir := t.TempDir()
	conf := filepath.Join(dir, "kairosdb.conf")
	hosts := `cql_host_list: ["` + address + `"], read_consistency_level: ONE, write_consistency_level: ONE`
	text := `kairosdb {
		service.datastore: "org.kairosdb.datastore.cassandra.CassandraModule"
		jetty.port: 1
		datastore.cassandra {
			write_cluster { name: new, keyspace: "` + config.Keyspace + `", replication: "{'class': 'SimpleStrategy','replication_factor' : 1}", ` + hosts + ` }
			meta_cluster { name: notes, keyspace: "` + meta.Keyspace + `", ` + hosts + ` }
			read_clusters: [
				{ name: old, keyspace: "` + old.KeyspaceName() + `", end_time: "2030-07-04T12:08-0700", ` + hosts + ` }
				{ name: gone, keyspace: "` + cqltest.Name() + `", end_time: "1999-07-04T12:08-0700", ` + hosts + ` }
			]
		}
	}`
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--kairosdb-conf", conf)
	defer p.stop(syscall.SIGTERM)
	want := func(part, method, path, body string) {
		t.Helper()
		for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			code, answer := p.do(method, path, body)
			if code < 300 && strings.Contains(answer, part) {
				return
			}
			if time.Now().After(until) {
				t.Fatalf("%s %s: %d %s, want %s", method, path, code, answer, part)
			}
		}
	}
	want(`"keyspace":{"name":"`+config.Keyspace, "GET", "/admin/cassandra", "")
	want(`"cluster":{"name":"write_cluster","connected":true,`, "GET", "/admin/cassandra", "")
	want(`"meta_cluster":{"name":"meta_cluster","connected":true,`, "GET", "/admin/cassandra", "")
	want(`"keyspace":{"name":"`+old.KeyspaceName()+`","layout":"kairosdb","row_time_unit":"MILLISECONDS",`, "GET", "/admin/cassandra", "")
	want(`"waiting":"keyspace `, "GET", "/admin/cassandra", "")
	want(`"Datastore-Cassandra-gone: FAIL"`, "GET", "/api/v1/health/status", "")
	want("", "GET", "/api/v1/health/check", "")

	at := strconv.FormatInt(time.Now().UnixMilli(), 10)
	want("", "POST", "/api/v1/datapoints", `[{"name":"new.metric","tags":{"host":"a"},"datapoints":[[`+at+`,1]]}]`)
	want(`"values":[[`+at+`,1]]`, "POST", "/api/v1/datapoints/query", `{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"new.metric"}]}`)
	if code, answer := p.do("GET", "/api/v1/metricnames", ""); code != 503 { // all clusters have names, and one is not there
		t.Errorf("%d %s", code, answer)
	}
	want("", "POST", "/api/v1/metadata/service/key/name", "text")
	want("", "POST", "/admin/flush", "")
	want(`varve_cql_connected{cluster="old"} 1`, "GET", "/internal/metrics", "")

	inspect := func(status int, wants []string, words ...string) {
		t.Helper()
		wantRun(t, status, wants, append([]string{"inspect", "--kairosdb-conf", conf}, words...)...)
	}
	inspect(0, []string{"keyspace " + config.Keyspace, "inverted, 4 shards"})
	inspect(0, []string{"keyspace " + old.KeyspaceName(), "none of Varve's"}, "--cluster", "old")
	inspect(0, []string{"new.metric"}, "metrics", "--cluster", "write_cluster")
	inspect(0, []string{"name", "text"}, "service", "service", "--cluster", "meta_cluster")
	inspect(0, []string{"it is for metadata"}, "--cluster", "meta_cluster")
	inspect(2, []string{"has metadata only"}, "metrics", "--cluster", "meta_cluster")
	inspect(2, []string{"there is no such cluster", "write_cluster, meta_cluster, old, gone"}, "--cluster", "nowhere")
	wantRun(t, 0, []string{"1  row keys"}, "repair", "--kairosdb-conf", conf, "--dry-run", "--state", filepath.Join(dir, "state"))
}

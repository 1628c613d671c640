package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"varve/internal/admin"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// TestKeyspaceIsLookedAfter serves over Cassandra, with the configuration of a
// KairosDB server, and looks at the keyspace with the other commands.
func TestKeyspaceIsLookedAfter(t *testing.T) {
	address := originals.Cassandra(t)
	config := cqltest.Config(address)
	session := cqltest.Open(t, config, cql.Options{})
	cqltest.Drop(t, session)
	dir := t.TempDir()
	conf := filepath.Join(dir, "kairosdb.conf")
	write := func(tagIndex string) {
		text := `kairosdb {
			service.datastore: "org.kairosdb.datastore.cassandra.CassandraModule"
			jetty.port: 1
			datastore.cassandra.write_cluster {
				keyspace: "` + config.Keyspace + `"
				cql_host_list: ["` + address + `"]
				replication: "{'class': 'SimpleStrategy','replication_factor' : 1}"
				read_consistency_level: "ONE"
				write_consistency_level: "ONE"
				tag_indexed_row_key_lookup_metrics: [` + tagIndex + `]
			}
			nonsense: 1
		}`
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	p := start(t, dir, "--kairosdb-conf", conf)
	defer p.stop(syscall.SIGTERM)
	until := time.Now().Add(time.Minute)
	want := func(status int, part, method, path, body string) string {
		t.Helper()
		code, answer := p.do(method, path, body)
		if code != status || !strings.Contains(answer, part) {
			t.Fatalf("%s %s: %d %s, want %d %s", method, path, code, answer, status, part)
		}
		return answer
	}
	for {
		if _, answer := p.do("GET", "/admin/cassandra", ""); strings.Contains(answer, `"keyspace":{"name":"`+config.Keyspace) {
			break
		} else if time.Now().After(until) {
			t.Fatal(answer)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if log := p.stderr.String(); !strings.Contains(log, "kairosdb.nonsense") {
		t.Errorf("the unknown key is not told:\n%s", log)
	}
	want(204, "", "POST", "/api/v1/datapoints", `[
		{"name":"load","tags":{"host":"a"},"datapoints":[[1700000000000,1],[1700000060000,7]],"ttl":4000000},
		{"name":"load","tags":{"host":"b"},"datapoints":[[1700000000000,2.5]]},
		{"name":"note","type":"string","tags":{"host":"a"},"datapoints":[[1700000000000,"hi"]]}]`)
	want(204, "", "POST", "/admin/flush", "")
	status := want(200, `"samples":0,`, "GET", "/admin/cassandra", "")
	status = strings.NewReplacer("MILLISECONDS", "", "T", "", "Z", "").Replace(status) // unit, times
	if strings.ToLower(status) != status || !json.Valid([]byte(status)) {
		t.Errorf("not in snake_case: %s", status)
	}
	want(200, `"jobs":[]`, "GET", "/admin/deletes", "")
	want(200, `"store":{"lookups":1,`, "POST", "/api/v1/datapoints/query?trace=1", `{"start_absolute":1700000000000,"metrics":[{"name":"load"}]}`)

	for path, method := range map[string]string{"/admin/check": "POST", "/admin/stats": "GET", "/admin/backup": "POST", "/admin/compact": "POST"} {
		want(501, "nodetool", method, path, "")
	}
	want(200, `"top_metrics":[{"metric":"load","series":2}`, "GET", "/admin/cardinality", "")

	want(200, `"applied":[]`, "POST", "/admin/reload", "")
	write(`"load"`)
	want(200, `"applied":["cassandra.write.tag_index"]`, "POST", "/admin/reload", "")
	if got := want(200, "varve_store_writable 1", "GET", "/internal/metrics", ""); !strings.Contains(got, "varve_store_disk_free_bytes ") {
		t.Error("the metrics do not have the free space of the spool's disk")
	}
	write(`"load`)
	want(400, "a quote is not closed", "POST", "/admin/reload", "")
	write(`"load"`)

	at := []string{"--kairosdb-conf", conf}
	inspect := func(wants []string, words ...string) {
		t.Helper()
		wantRun(t, 0, wants, append(append([]string{"inspect"}, at...), words...)...)
	}
	inspect([]string{"keyspace " + config.Keyspace, "unit MILLISECONDS, width 1814400000: 504h0m0s each", "inverted, 4 shards", "data_points"})
	inspect([]string{"load\t1 row times\t1698278400000 (2023-10-26T00:00:00.000Z)"}, "metrics", "lo")
	inspect([]string{"load{host=b} (kairos_double)", "row 1698278400000", "key 0x6c6f616400", "2.5 (0x4004000000000000)", "for ever"}, "rows", "load", "host=b")
	inspect([]string{fmt.Sprintf("until %d-", time.Now().Add(4_000_000*time.Second).UTC().Year())}, "rows", "load", "host=a")
	inspect([]string{"no rows"}, "rows", "load", "host=c")
	inspect([]string{`"hi" (0x00026869)`}, "rows", "note", "--cells", "1")
	inspect([]string{"row_keys         2 map[kairos_double:1 kairos_long:1]", "from Varve nodes only", "covered          yes"}, "index", "load", "--start", "1700000000000")
	inspect([]string{"nothing is stored"}, "service", "nothing")
	inspect([]string{"ok    nodes", "ok    clocks", "may read and write all tables", "ok    repair"}, "--preflight")
	wantRun(t, 2, []string{"unexpected argument"}, append([]string{"inspect", "--preflight", "metrics"}, at...)...)
	wantRun(t, 1, []string{"bad   keyspace     nope is missing", "do:  check the spelling"}, append([]string{"inspect", "--preflight", "--cassandra-keyspace=nope", "--cassandra-schema-create=nothing"}, at...)...)
	wantRun(t, 2, []string{"want metrics"}, append([]string{"inspect", "rows"}, at...)...)

	repair := append([]string{"repair"}, at...)
	wantRun(t, 0, []string{"3  rows of data_points", "0  rows without index"}, append(repair, "--dry-run")...)
	// With a timestamp in milliseconds, as all writes have: a delete in
	// microseconds would hide for ever what is written there.
	cqltest.Must(t, session, fmt.Sprintf("DELETE FROM %s.row_keys USING TIMESTAMP %d WHERE metric = 'note' AND table_name = 'data_points' AND row_time = 1698278400000 AND data_type = 'kairos_string'",
		config.Keyspace, time.Now().UnixMilli()))
	wantRun(t, 1, []string{"1  rows without index: would be added", "nothing was changed"}, append(repair, "--dry-run")...)
	wantRun(t, 0, []string{"1  rows without index: added"}, append(repair, "--rate", "1000")...)
	wantRun(t, 0, []string{"0  rows without index"}, append(repair, "--dry-run")...)
	// What is told as removed is gone, however young it is.
	cqltest.Must(t, session, fmt.Sprintf("DELETE FROM %s.data_points USING TIMESTAMP %d WHERE key = 0x6c6f6164000000018b6947e000000d6b6169726f735f646f75626c65686f73743d623a",
		config.Keyspace, time.Now().UnixMilli()))
	wantRun(t, 1, []string{"1  row keys without samples: would be removed"}, append(repair, "--dry-run")...)
	wantRun(t, 0, []string{"1  row keys without samples: removed"}, repair...)
	wantRun(t, 0, []string{"0  row keys without samples\n"}, append(repair, "--dry-run")...)
	wantRun(t, 2, []string{"--http-addr"}, append([]string{"export"}, "--config", yamlOf(t, dir))...)
}

func yamlOf(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "varve.yaml")
	if err := os.WriteFile(name, []byte("store: cassandra\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestInspectDecode(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"0x6c6f6164000000018b6947e000000d6b6169726f735f646f75626c65686f73743d613a", "metric    load\n  row time  1698278400000 (2023-10-26T00:00:00.000Z)\n  type      kairos_double\n  tag       host = a\n"},
		{"669e7260 --row-time 2023-10-26T00:00:00Z", "time      1700000060000 (2023-11-14T22:14:20.000Z)"},
		{"00000010 --row-time 1000 --unit SECONDS", "time      17000 "},
		{"02", "as long    1 (0x02)"},
		{"4004000000000000", "as double  2.5"},
		{"00026869", `as string  "hi"`},
		{"00030102", "not of a built-in type"},
	} {
		wantRun(t, 0, []string{test.want}, append([]string{"inspect", "decode"}, strings.Fields(test.args)...)...)
	}
	for args, want := range map[string]string{
		"":                    "one word",
		"0x1":                 "even number",
		"zz":                  "hexadecimal",
		"02 --unit WEEKS":     "flag --unit",
		"02 --row-time never": "flag --row-time",
	} {
		wantRun(t, 2, []string{want}, append([]string{"inspect", "decode"}, strings.Fields(args)...)...)
	}
}

func TestOnlyEmbedded(t *testing.T) {
	name := yamlOf(t, t.TempDir())
	for command, instead := range map[string]string{"check": admin.InsteadOfCheck, "stats": admin.InsteadOfStats} {
		wantRun(t, 2, []string{"this is for the embedded store. Over Cassandra " + instead + "\n"}, command, "--config", name)
		for _, flags := range [][]string{{"--store=cassandra"}, {"--store", "cassandra"}, {"--cassandra-hosts=10.0.0.1"}} {
			wantRun(t, 2, []string{"this is for the embedded store", "nodetool"}, append([]string{command}, flags...)...)
		}
	}
	wantRun(t, 2, []string{"this is for the embedded store", "snapshot"}, "backup", "--store=cassandra", "dir")
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/doctor"
	"varve/internal/originals"
)

// TestKeyspaceThatIsAway: the server over two keyspaces, of which one cannot be reached,
// serves the other, and says in health, status and metrics which one it is.
func TestKeyspaceThatIsAway(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	first := cqltest.Keyspace(t, config, cql.Options{})
	dir := t.TempDir()
	file := filepath.Join(dir, "varve.yaml")
	settings := "store: cassandra\ncassandra:\n  hosts: [\"" + config.Hosts[0] + "\"]\n  keyspace: " + first.KeyspaceName() + "\n" +
		"  spool: {linger: 50ms}\n" +
		"  keyspaces:\n    - {name: bills, metrics: [\"prefix=bill.\"], hosts: [\"" + cqltest.ClosedPort(t) + "\"], keyspace: bills}\n"
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--config", file)
	defer p.stop(syscall.SIGTERM)
	for _, metric := range []string{"load", "bill.sum"} {
		if code, text := p.do("POST", "/api/v1/datapoints", `{"name":"`+metric+`","timestamp":1700000000000,"value":1,"tags":{"host":"a"}}`); code != 204 {
			t.Fatalf("%s: %d %s", metric, code, text)
		}
	}
	query := func(metric string) (int, string) {
		return p.do("POST", "/api/v1/datapoints/query", `{"start_absolute":1600000000000,"metrics":[{"name":"`+metric+`"}]}`)
	}
	drained := func() bool {
		_, text := p.do("GET", "/metrics", "")
		return strings.Contains(text, `varve_spool_drained_samples_total{cluster="write_cluster"} 1`) &&
			strings.Contains(text, `varve_spool_samples{cluster="bills"} 1`)
	}
	for end := time.Now().Add(time.Minute); !drained(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(p.do("GET", "/admin/cassandra", ""))
		}
	}
	for _, x := range []struct {
		what, path string
		code       int
		parts      []string
	}{
		{"health", "/api/v1/health/check", 204, nil},
		{"health status", "/api/v1/health/status", 200, []string{`"Datastore-Cassandra-bills: FAIL"`}},
		{"status", "/admin/cassandra", 200, []string{`"keyspaces":[{"metrics":["prefix=bill."],`, `"degraded":"Cassandra does not accept samples; 1 wait for it`, `"cluster":{"name":"bills","connected":false`}},
	} {
		code, text := p.do("GET", x.path, "")
		if code != x.code {
			t.Errorf("%s: %d %s", x.what, code, text)
		}
		for _, part := range x.parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %s, want %s", x.what, text, part)
			}
		}
	}
	if code, text := query("load"); code != 200 || !strings.Contains(text, `"sample_size":1`) {
		t.Errorf("a query of the first keyspace: %d %s", code, text)
	}
	if code, text := query("bill.sum"); code != 503 || !strings.Contains(text, "keyspace bills: ") {
		t.Errorf("a query of the other: %d %s", code, text)
	}
	d := diagnosed(t, 1, "doctor", "--json", "--config", file, "--data-dir", t.TempDir(), "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0", "--carbon-addr=", "--pickle-addr=")
	for check, want := range map[string]doctor.Grade{"Cassandra: nodes": doctor.OK, "Cassandra, keyspace bills": doctor.Fault} {
		if !slices.ContainsFunc(d.Findings, func(f doctor.Finding) bool { return strings.HasPrefix(f.Check, check) && f.Grade == want }) {
			t.Errorf("no %s that is %v in %+v", check, want, d.Findings)
		}
	}
}

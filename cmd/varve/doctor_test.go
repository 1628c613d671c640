package main

import (
	"encoding/json"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"varve/internal/doctor"
)

// TestDoctor: a fault makes the exit status, beside a server that runs all is well, and
// settings that are wrong are all told.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := []string{"--data-dir", dir, "--telnet-addr=127.0.0.1:0", "--carbon-addr=", "--pickle-addr="}
	wantRun(t, 1, []string{"fault     ports: server.http_addr: another program listens at " + taken.Addr().String(), "do: stop it", "1 fault\n"},
		append([]string{"doctor", "--http-addr", taken.Addr().String()}, free...)...)

	d := diagnosed(t, 1, "doctor", "--json", "--server-http-addr=nowhere", "--ingest-max-series=-5")
	if d.Faults != 2 || !strings.Contains(d.Findings[0].Text+d.Findings[1].Text, "ingest.max_series") {
		t.Errorf("of two wrong settings: %+v", d)
	}

	p := start(t, dir)
	args := []string{"doctor", "--json", "--data-dir", dir, "--http-addr", p.http, "--telnet-addr", p.telnet, "--carbon-addr=", "--pickle-addr="}
	d = diagnosed(t, 0, args...)
	in := 0
	for _, f := range d.Findings {
		if f.Check == "ports" && f.Grade == doctor.OK && strings.Contains(f.Text, "a server holds the data directory") {
			in++
		}
	}
	if in != 2 || !slices.ContainsFunc(d.Findings, func(f doctor.Finding) bool { return f.Check == "data directory" && f.Grade != doctor.Fault }) {
		t.Errorf("beside the server: %+v", d)
	}
	wantRun(t, 2, []string{"unknown"}, "doctor", "--jsn")
	wantRun(t, 2, []string{"unexpected argument"}, "doctor", "words")
}

// diagnosed runs doctor --json and decodes what it prints.
func diagnosed(t *testing.T, status int, args ...string) (d diagnosis) {
	t.Helper()
	got, stdout, stderr := once(t, nil, args...)
	if got != status {
		t.Errorf("varve %v: status %d, want %d\n%s%s", args, got, status, stdout, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	return d
}

// TestDoctorOverCassandra: the checks of the preflight are among those of the doctor, and
// a cluster that is away is a fault.
func TestDoctorOverCassandra(t *testing.T) {
	addr := os.Getenv("VARVE_TEST_CASSANDRA")
	if addr == "" {
		t.Skip("DOCTOR NOT TRIED OVER CASSANDRA: set VARVE_TEST_CASSANDRA=host:port")
	}
	d := diagnosed(t, 0, "doctor", "--json", "--data-dir", t.TempDir(), "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0", "--carbon-addr=", "--pickle-addr=",
		"--store=cassandra", "--cassandra-hosts="+addr, "--cassandra-keyspace=doctor_has_none")
	for _, check := range []string{"Cassandra: nodes", "Cassandra: release", "Cassandra: clocks", "Cassandra: keyspace"} {
		if !slices.ContainsFunc(d.Findings, func(f doctor.Finding) bool { return f.Check == check }) {
			t.Errorf("no %s in %+v", check, d.Findings)
		}
	}
}

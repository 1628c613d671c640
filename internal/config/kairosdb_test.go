package config

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const kairosFile = `kairosdb {
	service.datastore: "org.kairosdb.datastore.cassandra.CassandraModule"
	jetty.port: 9090
	telnetserver.port: 4243
	datastore.cassandra {
		datapoint_ttl: 3600
		write_cluster {
			cql_host_list: ["c1:9043", c2]
			keyspace: metrics
			read_consistency_level: ${?LEVEL}
		}
	}
	demo.ttl: 0
	nonsense: 1
}`

func loadKairosDB(t *testing.T, kairosdb, yaml string, environment []string, args ...string) (*Loaded, error) {
	t.Helper()
	return Load(Sources{
		Args: args, Environment: append(environment, "VARVE_KAIROSDB_CONF=/etc/kairosdb.conf", "VARVE_CONFIG=/etc/varve.yaml"),
		ReadFile: readFrom(map[string]string{
			"/etc/kairosdb.conf": kairosdb, "/etc/varve.yaml": yaml, "other.properties": "kairosdb.jetty.port=1\n",
		}),
	})
}

func TestKairosDBLayer(t *testing.T) {
	got, err := loadKairosDB(t, kairosFile, "server: {telnet_addr: ':1'}", []string{"VARVE_CASSANDRA_KEYSPACE=mine", "LEVEL=one"}, "--ingest-default-ttl", "1m")
	if err != nil {
		t.Fatal(err)
	}
	c := got.Config
	have := []any{c.Store, c.Server.HTTPAddr, c.Server.TelnetAddr, c.Cassandra.Hosts, c.Cassandra.Keyspace, c.Cassandra.ReadConsistency, c.Ingest.DefaultTTL.String()}
	want := []any{"cassandra", "0.0.0.0:9090", ":1", []string{"c1:9043", "c2"}, "mine", "ONE", "1m0s"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	var b strings.Builder
	if err := got.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"http_addr: 0.0.0.0:9090  # set by file kairosdb.conf: kairosdb.jetty.port, default 127.0.0.1:8080",
		"  hosts: [c1:9043, c2]  # set by file kairosdb.conf: kairosdb.datastore.cassandra.write_cluster.cql_host_list, default [127.0.0.1]",
		"#   Varve does not know these keys and ignores them:\n#     kairosdb.nonsense\n",
		"#   Varve has no such part:\n#     kairosdb.demo.ttl\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("%q is not in\n%s", line, b.String())
		}
	}
	if _, err := loadKairosDB(t, "", b.String(), nil); err != nil {
		t.Errorf("what varve config prints is no configuration: %v", err)
	}
}

func TestKairosDBLayerFaults(t *testing.T) {
	for _, test := range []struct {
		name, kairosdb, want string
		args                 []string
	}{
		{"not HOCON", "kairosdb {", "file /etc/kairosdb.conf: line 1: a { is not closed", nil},
		{"a value of another kind", "kairosdb.datastore.cassandra.write_cluster.row_width: wide",
			"file kairosdb.conf: kairosdb.datastore.cassandra.write_cluster.row_width: cassandra.schema.row_width: \"wide\": want a whole number", nil},
		{"a value that cannot be", "kairosdb.datastore.cassandra.write_cluster.read_consistency_level: MOST",
			"file kairosdb.conf: kairosdb.datastore.cassandra.write_cluster.read_consistency_level: cassandra.read_consistency: ", nil},
		{"a value that cannot be mapped", "kairosdb.datastore.cassandra.datapoint_ttl: x", `file kairosdb.conf: kairosdb.datastore.cassandra.datapoint_ttl: "x"`, nil},
		{"no such file", "", "read KairosDB's configuration named by flag --kairosdb-conf: ", []string{"--kairosdb-conf", "gone"}},
		{"a flag with a slip", "", "flag --kairos-conf: unknown; did you mean --kairosdb-conf?", []string{"--kairos-conf", "gone"}},
	} {
		_, err := loadKairosDB(t, test.kairosdb, "", nil, test.args...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	got, err := loadKairosDB(t, "", "", nil, "--kairosdb-conf=other.properties")
	if err != nil || got.Config.Server.HTTPAddr != "0.0.0.0:1" {
		t.Errorf("the flag does not win: %v", err)
	}
}

// TestKairosDBMapsToSettings loads the shipped file, and one with every key that is mapped: there
// is such a setting, and it takes the value.
func TestKairosDBMapsToSettings(t *testing.T) {
	for _, name := range []string{"kairosdb-1.3.0.conf", "every-key.conf"} {
		data, err := os.ReadFile("../kairosconf/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loadKairosDB(t, string(data), "", nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoKairosDB(t *testing.T) {
	got, err := Load(Sources{})
	if err != nil || got.Foreign != nil {
		t.Error(err, got.Foreign)
	}
	if _, err := Load(Sources{Args: []string{"-h"}}); !errors.Is(err, ErrHelp) {
		t.Error(err)
	}
}

func TestSplit(t *testing.T) {
	for _, test := range []struct{ args, settings, rest string }{
		{"", "", ""},
		{"rows load host=a", "", "rows load host=a"},
		{"--store cassandra rows -cassandra-keyspace=k m --from 1", "--store cassandra -cassandra-keyspace=k", "rows m --from 1"},
		{"--cassandra-compression rows", "--cassandra-compression", "rows"},
		{"--kairosdb-conf x --config", "--kairosdb-conf x --config", ""},
		{"--dry-run --data-dir d", "--data-dir d", "--dry-run"},
		{"--dryrun --from 1 word", "", "--dryrun --from 1 word"},
		{"--datadir d rows --cells=3", "--datadir d", "rows --cells=3"},
		{"--datadir --from 1", "--datadir", "--from 1"},
	} {
		settings, rest := Split(strings.Fields(test.args), "from", "cells", "dry-run")
		if got := strings.Join(settings, " ") + "|" + strings.Join(rest, " "); got != test.settings+"|"+test.rest {
			t.Errorf("%q: %s", test.args, got)
		}
	}
}

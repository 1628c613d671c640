package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const twoClusters = `cassandra:
  read_clusters:
    - name: old
      hosts: [10.0.0.1, "10.0.0.2:9043"]
      end_time: 2024-01-31
      tls: {enabled: true, server_name: c}
    - {name: older, hosts: [10.1.0.1], keyspace: k}
`

func loadItems(t *testing.T, kairosDB, yaml string) (*Loaded, error) {
	t.Helper()
	return Load(Sources{
		Args:     []string{"--config", "v.yaml", "--kairosdb-conf", "k.conf"},
		ReadFile: readFrom(map[string]string{"v.yaml": yaml, "k.conf": kairosDB}),
	})
}

func TestListOfSections(t *testing.T) {
	got, err := loadItems(t, "", twoClusters)
	if err != nil {
		t.Fatal(err)
	}
	clusters := got.Config.Cassandra.ReadClusters
	if len(clusters) != 2 || clusters[0].Hosts[1] != "10.0.0.2:9043" || !clusters[0].TLS.Enabled || clusters[0].TLS.ServerName != "c" || clusters[1].TLS.Enabled ||
		clusters[0].Keyspace != "kairosdb" || clusters[1].Keyspace != "k" || clusters[0].ReadConsistency != "LOCAL_QUORUM" {
		t.Errorf("%+v", clusters)
	}
	var b strings.Builder
	if err := got.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\n  read_clusters:  # set by file v.yaml:2, default []\n    -\n      # ", "\n      name: old  # set by file v.yaml:3, default \"\"\n",
		"\n      tls:\n        # Encrypt", "\n        enabled: true  # set by file v.yaml:6, default false\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("%q is not in\n%s", line, b.String())
		}
	}
	again, err := loadItems(t, "", b.String())
	if err != nil {
		t.Fatalf("what varve config prints is no configuration: %v", err)
	}
	if diff := cmp.Diff(got.Config, again.Config); diff != "" {
		t.Error(diff)
	}
}

// TestListIsReplaced puts two lists above another: the later one is the list,
// and nothing is left of the earlier one, its faults neither.
func TestListIsReplaced(t *testing.T) {
	kairosDB := `kairosdb.datastore.cassandra.read_clusters: [{ name: a, cql_host_list: [x] }, { name: b, read_consistency_level: NONSENSE }, {}]`
	_, err := loadItems(t, kairosDB, "")
	if err == nil || !strings.Contains(err.Error(), "file k.conf: kairosdb.datastore.cassandra.read_clusters[1].read_consistency_level: cassandra.read_clusters[1].read_consistency: ") {
		t.Errorf("%v", err)
	}
	got, err := loadItems(t, kairosDB, twoClusters)
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Config.Cassandra.ReadClusters; len(c) != 2 || c[0].Name != "old" || c[1].Name != "older" {
		t.Errorf("%+v", c)
	}
	if got, err = loadItems(t, kairosDB, "cassandra: {read_clusters: []}"); err != nil || got.Config.Cassandra.ReadClusters != nil {
		t.Errorf("%v, %+v", err, got)
	}
}

func TestListFaults(t *testing.T) {
	for _, test := range []struct{ yaml, want string }{
		{"read_clusters: {name: a}", "v.yaml:1: cassandra.read_clusters: want a list, each item with keys and values"},
		{"read_clusters: a", "want a list, each item"},
		{"read_clusters: [a]", "v.yaml:1: cassandra.read_clusters[0]: want keys and values"},
		{"read_clusters: [{name: a, host: b}]", "unknown key cassandra.read_clusters[0].host; did you mean cassandra.read_clusters[0].hosts?"},
		{"read_clusters: [{name: a}]", "cassandra.read_clusters[0].hosts: empty; name at least one node"},
		{"read_clusters: [{hosts: [a]}]", "cassandra.read_clusters[0].name: empty"},
		{"read_clusters: [{name: write_cluster, hosts: [a]}]", `cassandra.read_clusters[0].name: "write_cluster": another cluster has this name`},
		{"read_clusters: [{name: a, hosts: [a]}, {name: a, hosts: [a]}]", `cassandra.read_clusters[1].name: "a": another cluster has this name`},
		{"read_clusters: [{name: a, hosts: [a], layout: biggraphite}]", `cassandra.read_clusters[0].layout: "biggraphite": there is no such layout of tables; want kairosdb`},
		{"keyspaces: [{name: a, metrics: [name=a], keyspace: b, layout: packed}]", `cassandra.keyspaces[0].layout: "packed": there is no such layout of tables; want kairosdb`},
		{"read_clusters: [{name: a, hosts: [a], start_time: soon}]", `file v.yaml:1: cassandra.read_clusters[0].start_time: "soon": want a time like`},
		{"read_clusters: [{name: a, hosts: [a], start_time: 2024-02-01, end_time: 2024-01-01}]", "cassandra.read_clusters[0].end_time: 2024-01-01: want a time after start_time"},
		{"meta_cluster: {keyspace: x}", "cassandra.meta_cluster.hosts: empty, although"},
		{"meta_cluster: {hosts: [a]}, read_clusters: [{name: meta_cluster, hosts: [b]}]", `cassandra.read_clusters[0].name: "meta_cluster": another cluster has this name`},
		{"tls: {server_name: a}", "cassandra.tls.enabled: false, although other settings of tls are given"},
		{"read_clusters: [{name: a, hosts: [a], tls: {server_name: a}}]", "cassandra.read_clusters[0].tls.enabled: false, although other settings of tls are given"},
		{"read_clusters: [{name: a, hosts: [a], tls: {ca_file: a}}]", "file v.yaml:1: unknown key cassandra.read_clusters[0].tls.ca_file; it was removed: cassandra.tls.ca_file may have"},
	} {
		_, err := loadItems(t, "", "cassandra: {"+test.yaml+"}")
		if err == nil || strings.Count(err.Error(), test.want) != 1 {
			t.Errorf("%s: %v, want once %s", test.yaml, err, test.want)
		}
	}
}

// An item that is not a section is one fault: its missing keys are not reported in addition.
func TestItemThatIsNoSection(t *testing.T) {
	for yaml, want := range map[string][]string{ // how the lines of the error begin
		"retention: {policies: [foo]}":    {"file v.yaml:1: retention.policies[0]: want keys and values"},
		"cassandra: {read_clusters: [a]}": {"file v.yaml:1: cassandra.read_clusters[0]: want keys and values"},
		"tenants: [a]":                    {"file v.yaml:1: tenants[0]: want keys and values"},
		"retention: {policies: [foo, {name: a, stages: x, path: b}]}": {
			"file v.yaml:1: retention.policies[0]: want keys and values", "file v.yaml:1: retention.policies[1].stages: "},
	} {
		_, err := loadItems(t, "", yaml)
		if err == nil {
			t.Errorf("%s: no error", yaml)
			continue
		}
		if lines := strings.Split(err.Error(), "\n"); !slices.EqualFunc(lines, want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", yaml, lines, want)
		}
	}
}

// An unknown key of an item is compared with the keys of that item alone, so that a slip in each of many
// items costs no more than the items.
func TestUnknownKeysOfItems(t *testing.T) {
	const items = 1000
	root := Default()
	l := newLayers(&root)
	candidates := func(key string) int { return len(l.keysLike(key, &yaml.Node{Kind: yaml.ScalarNode})) }
	none := candidates("retention.policies[999].metrics")
	l.applyFile("v.yaml", []byte("retention:\n  policies:\n"+strings.Repeat("    - {name: a, stages: forever, metrics: x}\n", items)))
	if n := candidates("retention.policies[999].metrics") - none; n < 5 || n > 50 {
		t.Errorf("%d keys of items are compared with one", n)
	}
	for _, key := range []string{"metrics", "retention.policies[1000].x", "retention.policies[-1].x", "retention.policies[x", "retention[0].x", "[0]"} {
		if n := candidates(key); n != none {
			t.Errorf("%d keys of items are compared with %s", n-none, key)
		}
	}
	text := l.err().Error()
	for _, want := range []string{
		"unknown key retention.policies[0].metrics; did you mean retention.policies[0].metric?",
		"unknown key retention.policies[999].metrics; did you mean retention.policies[999].metric?",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %.300s", want, text)
		}
	}
}

// A list of sections is known, but no variable or flag can set it.
func TestListOutsideFile(t *testing.T) {
	got := Default()
	_, err := load(&got, sources("", "VARVE_TENANTS=a VARVE_CASSANDRA_KEYSPACES=b", "--retention-policies=c"))
	if want := "environment: unknown variable VARVE_CASSANDRA_KEYSPACES; cassandra.keyspaces is a list of sections, which only a file can set (--config)\n" +
		"environment: unknown variable VARVE_TENANTS; tenants is a list of sections, which only a file can set (--config)\n" +
		"flag --retention-policies: unknown; retention.policies is a list of sections, which only a file can set (--config)"; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// The flags that help shows first exist, and have a line each.
func TestFirstFlags(t *testing.T) {
	var b strings.Builder
	if err := WriteFirstFlags(&b); err != nil {
		t.Fatal(err)
	}
	root := Default()
	known := newLayers(&root).byKey
	for _, first := range firstFlags {
		if f, ok := known[first.key]; !ok || f.section {
			t.Errorf("%s is no setting", first.key)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != len(firstFlags) {
		t.Errorf("%d lines", n)
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > 101 {
			t.Errorf("too wide: %s", line)
		}
	}
}

// TestSettingsBeforeSections wants the settings of a section before the sections in
// it: in the reference, in a file and in the help, what follows a heading belongs to
// it.
func TestSettingsBeforeSections(t *testing.T) {
	defaults := Default()
	last := ""
	for _, f := range fields(&defaults) {
		section := f.key[:max(strings.LastIndexByte(f.key, '.'), 0)]
		if f.section {
			last = f.key
		} else if section != last {
			t.Errorf("%s stands in the section %q", f.key, last)
		}
	}
}

// TestValuesInErrors sets values that are refused, and wants them as people write
// them.
func TestValuesInErrors(t *testing.T) {
	for flag, want := range map[string]string{
		"--log-level=verbose":                `log.level: "verbose": want debug, info, warn or error`,
		"--query-timeout=-5s":                "query.timeout: -5s is not greater than 0",
		"--query-max-memory=-1MiB":           "query.max_memory: -1MiB is not greater than 0",
		"--tune=ingest.busy_wait=-5s":        "ingest.busy_wait: -5s is not greater than 0",
		"--tune=rollups.poll_interval=-5s":   "rollups.poll_interval: -5s is not greater than 0",
		"--query-slow=-5s":                   "query.slow: -5s is negative",
		"--tune=kairos.max_query_size=-1KiB": "kairos.max_query_size: -1KiB is not greater than 0",
	} {
		if _, err := Load(Sources{Args: []string{flag}}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want ... %s", flag, err, want)
		}
	}
}

func TestTabInYAML(t *testing.T) {
	for text, want := range map[string]string{
		"server:\n\thttp_addr: 1.2.3.4:80\n":                      "file f.yaml:2: indented with a tab; YAML takes spaces only",
		"\n# a comment\nserver:\n  \thttp_addr: 1.2.3.4:80\nx: [": "file f.yaml:4: indented with a tab; YAML takes spaces only",
		"server:\n  http_addr: 1.2.3.4:80\n\t\nquery:\n":          "file f.yaml:3: indented with a tab; YAML takes spaces only",
		"server:\n  http_addr: |\n    x\n    \t\n  y: [1\n":       "file f.yaml:4: did not find expected",
		"server: [\n": "file f.yaml:",
	} {
		root := Default()
		l := newLayers(&root)
		l.applyFile("f.yaml", []byte(text))
		if err := errors.Join(l.errs...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

package cassandra

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
)

func TestWithin(t *testing.T) {
	const day = 86_400_000
	for _, test := range []struct {
		start, end string
		want       model.TimeRange // zero: refused
	}{
		{"", "", model.AllTime},
		{"1970-01-02", "1970-01-02", model.TimeRange{StartMS: day, EndMS: 2*day - 1}},
		{"1970-01-02T00:00Z", "1970-01-03T01:00+0100", model.TimeRange{StartMS: day, EndMS: 2 * day}},
		{"1970-01-02T12:08-0700", "", model.TimeRange{StartMS: day + (19*60+8)*60_000, EndMS: model.AllTime.EndMS}},
		{"", "1970-01-01T00:00:01Z", model.TimeRange{StartMS: model.AllTime.StartMS, EndMS: 1000}},
		{"", "1970-01-01T00:00:01+00:00", model.TimeRange{StartMS: model.AllTime.StartMS, EndMS: 1000}},
		{"1970-01-02T00:00Z", "1970-01-02T00:00Z", model.TimeRange{}},
		{"1970-01-03", "1970-01-02", model.TimeRange{}},
		{"yesterday", "", model.TimeRange{}},
		{"", "1970-02-30", model.TimeRange{}},
	} {
		got, err := ReadCluster{StartTime: test.start, EndTime: test.end}.within()
		if refused := test.want == (model.TimeRange{}); (err != nil) != refused || !refused && got != test.want {
			t.Errorf("%q to %q: %v, %v", test.start, test.end, got, err)
		}
	}
}

// Settings of a meta cluster without hosts would have no effect.
func TestMetaClusterWithoutHosts(t *testing.T) {
	if err := defaultMetaConfig().Validate(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*MetaConfig){
		"keyspace":          func(c *MetaConfig) { c.Keyspace = "other" },
		"read_consistency":  func(c *MetaConfig) { c.ReadConsistency = "ONE" },
		"write_consistency": func(c *MetaConfig) { c.WriteConsistency = "ONE" },
		"password_file":     func(c *MetaConfig) { c.PasswordFile = "/run/secrets/meta" },
	} {
		c := defaultMetaConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), "hosts: empty, although") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTLSOfFurtherClusters: a further cluster says whether connections to it are encrypted,
// and which name its nodes have. Files and the check of names are those of the store, also if
// the cluster that is written to is not encrypted itself.
func TestTLSOfFurtherClusters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.TLS = cql.TLSConfig{CAFile: file, CertFile: file, KeyFile: file, VerifyHost: true}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "tls.enabled: false, although other settings of tls are given") {
		t.Errorf("files that nothing uses: %v", err)
	}
	plain, secured := ReadCluster{Name: "plain"}, ReadCluster{Name: "secured"}
	plain.SetDefaults()
	secured.ClusterConfig = defaultClusterConfig()
	plain.Name, plain.Hosts, secured.Hosts = "plain", []string{"a"}, []string{"b"}
	secured.TLS = ClusterTLS{Enabled: true, ServerName: "nodes"}
	c.ReadClusters = []ReadCluster{plain, secured}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if got, _, err := c.Cluster("plain"); err != nil || got.TLS != (cql.TLSConfig{}) {
		t.Errorf("plain: %+v, %v", got.TLS, err)
	}
	want := cql.TLSConfig{Enabled: true, CAFile: file, CertFile: file, KeyFile: file, VerifyHost: true, ServerName: "nodes"}
	if got, _, err := c.Cluster("secured"); err != nil || got.TLS != want {
		t.Errorf("secured: %+v, %v; want %+v", got.TLS, err, want)
	}
}

// TestConsistencyOfFurtherClusters: deletes in read clusters count as writes of the store do,
// a meta cluster has a consistency of its own.
func TestConsistencyOfFurtherClusters(t *testing.T) {
	c := DefaultConfig()
	c.WriteConsistency, c.MetaCluster.WriteConsistency = "ALL", "ONE"
	old := ReadCluster{Name: "old", ClusterConfig: defaultClusterConfig()}
	old.Hosts, c.MetaCluster.Hosts, c.ReadClusters = []string{"a"}, []string{"b"}, []ReadCluster{old}
	for name, want := range map[string]string{WriteClusterName: "ALL", "old": "ALL", MetaClusterName: "ONE"} {
		if got, _, err := c.Cluster(name); err != nil || got.WriteConsistency != want {
			t.Errorf("%s: %s, %v; want %s", name, got.WriteConsistency, err, want)
		}
	}
}

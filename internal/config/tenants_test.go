package config

import (
	"strings"
	"testing"

	"varve/internal/cassandra"
	"varve/internal/tenant"
)

// TestTenantKeyspaces: no tenant gets a keyspace from which the default tenant reads.
func TestTenantKeyspaces(t *testing.T) {
	t.Parallel()
	at := func(host string) cassandra.ClusterConfig {
		return cassandra.ClusterConfig{Hosts: []string{"10.0.0.9", host}, Keyspace: "Kairosdb_acme"}
	}
	for name, c := range map[string]struct {
		change func(*CassandraConfig)
		taken  string
	}{
		"nothing else": {change: func(*CassandraConfig) {}},
		"a read cluster": {func(c *CassandraConfig) {
			c.ReadClusters = []cassandra.ReadCluster{{Name: "old", ClusterConfig: at("10.0.0.1")}}
		}, "cassandra.read_clusters[0].keyspace"},
		"a read cluster, with its port": {func(c *CassandraConfig) {
			c.ReadClusters = []cassandra.ReadCluster{{Name: "old", ClusterConfig: at("10.0.0.1:9042")}}
		}, "cassandra.read_clusters[0].keyspace"},
		"a read cluster, in upper case": {func(c *CassandraConfig) {
			c.Hosts = []string{"db1:9042"}
			c.ReadClusters = []cassandra.ReadCluster{{Name: "old", ClusterConfig: at("DB1")}}
		}, "cassandra.read_clusters[0].keyspace"},
		"a read cluster at another port": {func(c *CassandraConfig) {
			c.ReadClusters = []cassandra.ReadCluster{{Name: "old", ClusterConfig: at("10.0.0.1:9043")}}
		}, ""},
		"a read cluster elsewhere": {func(c *CassandraConfig) {
			c.ReadClusters = []cassandra.ReadCluster{{Name: "old", ClusterConfig: at("10.0.0.8")}}
		}, ""},
		"the meta cluster": {func(c *CassandraConfig) { c.MetaCluster.ClusterConfig = at("10.0.0.1") }, "cassandra.meta_cluster.keyspace"},
		"a further keyspace": {func(c *CassandraConfig) {
			c.Keyspaces = []cassandra.KeyspaceConfig{{Name: "more", ClusterConfig: cassandra.ClusterConfig{Keyspace: "kairosdb_acme"}}}
		}, "cassandra.keyspaces[0].keyspace"},
		"a further keyspace, with hosts": {func(c *CassandraConfig) {
			c.Keyspaces = []cassandra.KeyspaceConfig{{Name: "more", ClusterConfig: at("10.0.0.1")}}
		}, "cassandra.keyspaces[0].keyspace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := Default()
			config.Store, config.Tenants = Cassandra, []tenant.Config{{Name: "acme"}}
			config.Cassandra.Hosts, config.Cassandra.Keyspace = []string{"10.0.0.1"}, "kairosdb"
			c.change(&config.Cassandra)
			switch err := config.checkKeyspaces(); {
			case c.taken == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.taken != "" && (err == nil || !strings.Contains(err.Error(), `tenants[0].keyspace: "kairosdb_acme" already belongs to `+c.taken)):
				t.Errorf("%v, want that it belongs to %s", err, c.taken)
			}
		})
	}
}

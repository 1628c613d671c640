package cassandra

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"varve/internal/cassandra/cql"
)

// maxKeyspaces is the maximum number of keyspaces for samples in addition to
// cassandra.keyspace. Each has its own spool, caches and limits.
const maxKeyspaces = 16

// KeyspaceConfig holds the settings of a further keyspace for samples, and which metrics are
// stored there.
type KeyspaceConfig struct {
	Name             string   `yaml:"name" doc:"name of the keyspace in metrics, health, errors, in data_dir/spools and for varve inspect --cluster: letters, digits, - and _; no other keyspace and no read cluster has the same"`
	Metrics          []string `yaml:"metrics" doc:"Metrics that are stored there: name=, prefix=, or regex= for the whole name."`
	Layout           string   `yaml:"layout" default:"kairosdb" doc:"layout of the tables there: kairosdb, the only one so far; cassandra.keyspace and meta_cluster always have that one"`
	AlsoRead         []string `yaml:"also_read" doc:"Names of other keyspaces in this list that have older samples of these metrics; write_cluster stands for cassandra.keyspace. Queries and deletes go to these keyspaces too."`
	Replication      string   `yaml:"replication" doc:"replication of a new keyspace there; empty is as in cassandra.schema"`
	WriteConsistency string   `yaml:"write_consistency" doc:"replicas that must acknowledge what is written there; empty is as in cassandra"`
	ClusterConfig
}

// over returns the settings of a session with the keyspace. Without hosts it is in the
// cluster of base.
func (c KeyspaceConfig) over(base cql.Config) cql.Config {
	read, write := cmp.Or(c.ReadConsistency, base.ReadConsistency), cmp.Or(c.WriteConsistency, base.WriteConsistency)
	if len(c.Hosts) > 0 {
		base = c.ClusterConfig.over(base)
	}
	base.Keyspace, base.Datacenter = c.Keyspace, cmp.Or(c.Datacenter, base.Datacenter)
	base.ReadConsistency, base.WriteConsistency = read, write
	return base
}

// Validate reports all settings that cannot be.
func (c KeyspaceConfig) Validate() error {
	var errs []error
	if err := checkFileName(c.Name); err != nil {
		errs = append(errs, err)
	}
	if _, err := parseMetricRule(c.Metrics); err != nil {
		errs = append(errs, err)
	}
	if c.Keyspace == "" {
		errs = append(errs, errors.New("keyspace: empty; name the keyspace"))
		return errors.Join(errs...)
	}
	if len(c.Hosts) == 0 && (c.Username != "" || c.Password != "" || c.PasswordFile != "" || c.TLS != (ClusterTLS{})) {
		errs = append(errs, errors.New("hosts: empty, although a user, a password or tls is given; without hosts those of cassandra are used. Name at least one node"))
	}
	errs = append(errs, checkSession(c.over(cql.DefaultConfig())))
	return errors.Join(errs...)
}

// checkFileName refuses names that cannot be used as a label, and names that are not valid for
// directories on all systems.
func checkFileName(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	odd := strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && r != '-' && r != '_'
	})
	if odd {
		return fmt.Errorf("name: %q: want letters, digits, - and _", name)
	}
	return nil
}

// store returns the settings of the store over a further keyspace. That store uses the
// connections to read-only clusters of the store over the first keyspace.
func (c Config) store(k KeyspaceConfig) Config {
	c.Config = k.over(c.Config)
	c.MetaCluster, c.ReadClusters, c.Keyspaces = defaultMetaConfig(), nil, nil
	return c
}

// checkKeyspaces reports contradictions between keyspaces of the list and with the first one.
func (c Config) checkKeyspaces() error {
	var errs []error
	if n := len(c.Keyspaces); n > maxKeyspaces {
		errs = append(errs, fmt.Errorf("keyspaces: %d: want at most %d", n, maxKeyspaces))
	}
	taken := map[string]string{identity(c.Config, c.Keyspace): "that of all other metrics"}
	for i, k := range c.Keyspaces {
		key := fmt.Sprintf("keyspaces[%d]", i)
		id := identity(k.over(c.Config), k.Keyspace)
		if by, is := taken[id]; is {
			errs = append(errs, fmt.Errorf("%s.keyspace: %q is also %s; give all of its metrics to one of the two", key, k.Keyspace, by))
		}
		taken[id] = key + ".keyspace"
		for _, other := range c.Keyspaces[:i] {
			if k.Name != other.Name && strings.EqualFold(k.Name, other.Name) {
				errs = append(errs, fmt.Errorf("%s.name: %q: differs from %q in case only, and is the name of a directory", key, k.Name, other.Name))
			}
		}
		for j, name := range k.AlsoRead {
			other := slices.ContainsFunc(c.Keyspaces, func(o KeyspaceConfig) bool { return o.Name == name && name != k.Name })
			if name != WriteClusterName && !other {
				errs = append(errs, fmt.Errorf("%s.also_read[%d]: %q: want %s or the name of another of cassandra.keyspaces", key, j, name, WriteClusterName))
			}
			if slices.Contains(k.AlsoRead[:j], name) {
				errs = append(errs, fmt.Errorf("%s.also_read[%d]: %q is named twice", key, j, name))
			}
		}
	}
	return errors.Join(errs...)
}

// identity is equal for two keyspaces that are evidently the same. Two clusters with different
// hosts may be the same without having the same identity.
func identity(c cql.Config, keyspace string) string {
	hosts := slices.Sorted(slices.Values(c.Hosts))
	return strings.ToLower(strings.Join(hosts, ",") + "/" + keyspace)
}

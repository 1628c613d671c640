package cassandra

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
)

// Names of clusters in metrics, health and errors, and for varve inspect --cluster.
const (
	WriteClusterName = "write_cluster"
	MetaClusterName  = "meta_cluster"
)

// ClusterConfig holds the settings of a further cluster. It uses the store's limits, timeouts
// and attempts, its client certificate, and its trusted authorities.
type ClusterConfig struct {
	Hosts           []string   `yaml:"hosts" doc:"addresses of some nodes of the cluster, each with :port if it is not 9042"`
	Keyspace        string     `yaml:"keyspace" doc:"name of the keyspace there"`
	Datacenter      string     `yaml:"datacenter" doc:"name of the data centre whose nodes are used; empty uses all"`
	ReadConsistency string     `yaml:"read_consistency" doc:"replicas that must answer a read"`
	Username        string     `yaml:"username" doc:"user name for that cluster; empty connects without a login"`
	Password        cql.Secret `yaml:"password" doc:"password of that user; password_file is safer"`
	PasswordFile    string     `yaml:"password_file" doc:"file that holds the password, read again at each connection"`
	TLS             ClusterTLS `yaml:"tls" doc:"Encryption of the connections to that cluster. Settings that are not here are as in cassandra.tls."`
}

// ClusterTLS holds the settings of encrypted connections to a further cluster.
type ClusterTLS struct {
	Enabled    bool   `yaml:"enabled" doc:"encrypts connections to that cluster"`
	ServerName string `yaml:"server_name" doc:"name that the certificate of every node there must contain, instead of the node's address"`
}

// over returns base with the settings of t.
func (t ClusterTLS) over(base cql.TLSConfig) cql.TLSConfig {
	if !t.Enabled {
		return cql.TLSConfig{ServerName: t.ServerName}
	}
	base.Enabled, base.ServerName = true, t.ServerName
	return base
}

func defaultClusterConfig() ClusterConfig {
	d := cql.DefaultConfig()
	return ClusterConfig{Keyspace: d.Keyspace, ReadConsistency: d.ReadConsistency}
}

// over returns base with the settings of c.
func (c ClusterConfig) over(base cql.Config) cql.Config {
	base.Hosts, base.Keyspace, base.Datacenter = c.Hosts, c.Keyspace, c.Datacenter
	base.ReadConsistency = c.ReadConsistency
	base.Username, base.Password, base.PasswordFile, base.TLS = c.Username, c.Password, c.PasswordFile, c.TLS.over(base.TLS)
	return base
}

// checkSession validates the settings of a session with a further cluster.
func checkSession(c cql.Config) error { return errors.Join(c.Validate(), c.TLS.Unused()) }

// checkName refuses names that cannot be used as a label.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("name: empty; give the cluster a name of its own")
	case len(name) > 64 || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("name: %q: want at most 64 bytes without control characters", name)
	}
	return nil
}

// ReadCluster holds the settings of a cluster that is read in addition to the one that is
// written to.
type ReadCluster struct {
	Name      string `yaml:"name" doc:"name of the cluster in metrics, health, errors and for varve inspect --cluster; no two clusters have the same"`
	StartTime string `yaml:"start_time" doc:"Start of the samples in the cluster: 2026-01-31T12:00Z, or a day. Queries that end before it do not read this cluster. Empty: no start."`
	EndTime   string `yaml:"end_time" doc:"End of the samples in the cluster, in the same form; a day counts to its end. Queries that begin later do not read this cluster. Empty: no end."`
	Layout    string `yaml:"layout" doc:"layout of the tables there: kairosdb, the only one so far"`
	ClusterConfig
}

// SetDefaults sets defaults that are not the zero value.
func (c *ReadCluster) SetDefaults() {
	*c = ReadCluster{Layout: layout.Default, ClusterConfig: defaultClusterConfig()}
}

// Validate reports all invalid settings.
func (c ReadCluster) Validate() error {
	_, err := c.within()
	return errors.Join(checkName(c.Name), checkSession(c.over(cql.DefaultConfig())), err)
}

// within returns the time range of the cluster's samples, both ends included.
func (c ReadCluster) within() (model.TimeRange, error) {
	r := model.AllTime
	var errs []error
	for _, x := range []struct {
		key, text string
		to        *int64
	}{{"start_time", c.StartTime, &r.StartMS}, {"end_time", c.EndTime, &r.EndMS}} {
		if x.text == "" {
			continue
		}
		at, err := parseTime(x.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", x.key, err))
			continue
		}
		*x.to = at.UnixMilli()
		if _, err := time.Parse(time.DateOnly, x.text); err == nil && x.to == &r.EndMS {
			*x.to = at.AddDate(0, 0, 1).UnixMilli() - 1
		}
	}
	if errs == nil && r.StartMS >= r.EndMS {
		errs = append(errs, fmt.Errorf("end_time: %s: want a time after start_time, %s", c.EndTime, c.StartTime))
	}
	return r, errors.Join(errs...)
}

// timeForms are the accepted forms of start_time and end_time; the first is KairosDB's.
var timeForms = []string{"2006-01-02T15:04Z0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z0700", time.RFC3339, time.DateOnly}

func parseTime(text string) (time.Time, error) {
	for _, form := range timeForms {
		if at, err := time.Parse(form, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: want a time like 2026-01-31T12:00Z, 2026-01-31T12:00+0200 or 2026-01-31", text)
}

// MetaConfig holds the settings of a cluster for metadata.
type MetaConfig struct {
	Replication      string `yaml:"replication" doc:"replication of a new keyspace there; empty is as in cassandra.schema"`
	WriteConsistency string `yaml:"write_consistency" doc:"replicas that must acknowledge what is written there"`
	ClusterConfig
}

// SetDefaults sets what is not the zero value.
func (c *MetaConfig) SetDefaults() { *c = defaultMetaConfig() }

func defaultMetaConfig() MetaConfig {
	return MetaConfig{WriteConsistency: cql.DefaultConfig().WriteConsistency, ClusterConfig: defaultClusterConfig()}
}

// over returns base with the settings of c.
func (c MetaConfig) over(base cql.Config) cql.Config {
	base = c.ClusterConfig.over(base)
	base.WriteConsistency = c.WriteConsistency
	return base
}

// Used reports whether there is such a cluster.
func (c MetaConfig) Used() bool { return len(c.Hosts) > 0 }

// Validate reports all invalid settings.
func (c MetaConfig) Validate() error {
	if c.Used() {
		return checkSession(c.over(cql.DefaultConfig()))
	}
	unused := defaultMetaConfig()
	unused.Hosts = c.Hosts // none, whether nil or not
	if !reflect.DeepEqual(c, unused) {
		return errors.New("hosts: empty, although other settings of the meta cluster are given; name at least one node")
	}
	return nil
}

// A namedCluster is a further cluster of the settings with samples.
type namedCluster struct {
	key          string // of its settings
	name, layout string
	session      cql.Config
}

// further lists the further clusters with samples.
func (c Config) further() (all []namedCluster) {
	for i, r := range c.ReadClusters {
		all = append(all, namedCluster{fmt.Sprintf("read_clusters[%d]", i), r.Name, cmp.Or(r.Layout, layout.Default), r.over(c.Config)})
	}
	for i, k := range c.Keyspaces {
		all = append(all, namedCluster{fmt.Sprintf("keyspaces[%d]", i), k.Name, cmp.Or(k.Layout, layout.Default), k.over(c.Config)})
	}
	return all
}

// Beside yields the keyspaces of further clusters that evidently are in the first cluster, by the
// key of their settings. Another store over one of them would share its data with this store.
func (c Config) Beside() iter.Seq2[string, string] {
	return func(yield func(key, keyspace string) bool) {
		if c.MetaCluster.Used() && cql.ShareHost(c.MetaCluster.Hosts, c.Hosts) && !yield("meta_cluster", c.MetaCluster.Keyspace) {
			return
		}
		for _, f := range c.further() {
			if cql.ShareHost(f.session.Hosts, c.Hosts) && !yield(f.key, f.session.Keyspace) {
				return
			}
		}
	}
}

// furtherTLS reports whether connections to a further cluster are encrypted.
func (c Config) furtherTLS() bool {
	return c.MetaCluster.Used() && c.MetaCluster.TLS.Enabled || slices.ContainsFunc(c.further(), func(f namedCluster) bool { return f.session.TLS.Enabled })
}

// checkClusters reports names that are used for two clusters.
func (c Config) checkClusters() error {
	var errs []error
	known := map[string]bool{WriteClusterName: true, MetaClusterName: c.MetaCluster.Used()}
	for _, f := range c.further() {
		if f.name != "" && known[f.name] {
			errs = append(errs, fmt.Errorf("%s.name: %q: another cluster has this name", f.key, f.name))
		}
		known[f.name] = true
	}
	return errors.Join(errs...)
}

// CheckLayouts reports keyspaces whose layout is not among known.
func (c Config) CheckLayouts(known layout.Layouts) error {
	var errs []error
	for _, f := range c.further() {
		if _, err := known.Named(f.layout); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", f.key, err))
		}
	}
	return errors.Join(errs...)
}

// LayoutOf returns the name of the layout of a cluster's keyspace.
func (c Config) LayoutOf(name string) string {
	for _, f := range c.further() {
		if f.name == name {
			return f.layout
		}
	}
	return layout.Default
}

// CheckLayout refuses settings in which the first keyspace is also one of the further ones, and
// that one has another layout. This happens if a command for the first keyspace is given the
// address and name of a further keyspace.
func (c Config) CheckLayout() error {
	for _, f := range c.further() {
		same := f.session.Keyspace == c.Keyspace && cql.ShareHost(f.session.Hosts, c.Hosts)
		if same && f.layout != layout.Default {
			return fmt.Errorf("keyspace %s belongs to %s in the settings, whose tables have layout %s; this command supports only layout %s", c.Keyspace, f.name, f.layout, layout.Default)
		}
	}
	return nil
}

// Cluster returns the settings of a session with the named cluster, and the role in which
// commands open its keyspace.
func (c Config) Cluster(name string) (config cql.Config, role string, err error) {
	known := []string{WriteClusterName}
	switch {
	case name == WriteClusterName:
		return c.Config, layout.RoleRead, nil
	case name == MetaClusterName && c.MetaCluster.Used():
		return c.MetaCluster.over(c.Config), layout.RoleMeta, nil
	case c.MetaCluster.Used():
		known = append(known, MetaClusterName)
	}
	for _, f := range c.further() {
		if f.name == name {
			return f.session, layout.RoleRead, nil
		}
		known = append(known, f.name)
	}
	return config, "", fmt.Errorf("%q: there is no such cluster in the configuration, only %s", name, strings.Join(known, ", "))
}

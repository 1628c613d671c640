package config

import (
	"errors"
	"fmt"
	"reflect"

	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/cassandra"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/layout"
	"varve/internal/embedded"
	"varve/internal/graphite"
	"varve/internal/ingest"
	"varve/internal/ingest/carbon"
	"varve/internal/ingest/telnet"
	"varve/internal/kairos"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/rollup"
	"varve/internal/server"
	"varve/internal/tenant"
	"varve/internal/timeline"
	"varve/internal/transfer"
	"varve/internal/units"
)

// Values of Config.Store.
const (
	Embedded  = "embedded"
	Cassandra = "cassandra"
)

// Config is everything that can be set.
type Config struct {
	Store     string           `yaml:"store" default:"embedded" doc:"Where points are stored: embedded stores them in files below data_dir, cassandra in a keyspace."`
	DataDir   string           `yaml:"data_dir" default:"./varve-data" doc:"Directory of the embedded store or, with store: cassandra, of samples that are not in Cassandra yet. It is created if it does not exist. Only one process at a time can use it."`
	Server    server.Config    `yaml:"server" doc:"Listeners, HTTP connections and stopping."`
	Auth      auth.Config      `yaml:"auth" doc:"Who may do what. docs/security.md explains it."`
	Audit     audit.Config     `yaml:"audit" doc:"The audit log: who did what."`
	Ingest    ingest.Config    `yaml:"ingest" doc:"Limits of ingest, for all protocols."`
	Telnet    telnet.Config    `yaml:"telnet" doc:"Lines on the telnet port."`
	Carbon    carbon.Config    `yaml:"carbon" doc:"Lines and pickles on the ports of Graphite's carbon."`
	Query     query.Config     `yaml:"query" doc:"Limits of queries."`
	Kairos    kairos.Config    `yaml:"kairos" doc:"KairosDB's REST API."`
	Graphite  graphite.Config  `yaml:"graphite" doc:"Graphite's API."`
	Retention retention.Config `yaml:"retention" doc:"How long samples are kept, and at what resolution."`
	Rollups   rollup.Config    `yaml:"rollups" doc:"Roll-up tasks."`
	Transfer  transfer.Config  `yaml:"transfer" doc:"Imports and exports."`
	Timeline  timeline.Config  `yaml:"timeline" doc:"Event timelines."`
	Embedded  embedded.Config  `yaml:"embedded" doc:"The embedded store: its memory and files."`
	Cassandra CassandraConfig  `yaml:"cassandra" doc:"The store in an Apache Cassandra cluster: where it is and how it is used."`
	Tenants   []tenant.Config  `yaml:"tenants" doc:"Tenants in addition to the default one. Each tenant has its own store and cannot see another tenant's data."`
	Log       Log              `yaml:"log" doc:"Messages of the server, written to standard error."`
}

// CassandraConfig are the settings of the store over Cassandra, and of its layout.
type CassandraConfig struct {
	cassandra.Config
	kairosrows.Settings
}

// Layouts returns the layouts of tables that a keyspace can have, with their settings.
// To add a layout, add a line here, and a field above for its settings.
func (c CassandraConfig) Layouts() layout.Layouts {
	return layout.Layouts{layout.Default: kairosrows.NewLayout(c.Settings)}
}

// Validate reports all invalid settings.
func (c CassandraConfig) Validate() error {
	return errors.Join(c.Config.Validate(), c.CheckLayouts(c.Layouts()))
}

// Default returns the configuration of a server without any settings.
func Default() Config { return units.Defaults[Config]() }

// Validate reports what is wrong with the settings that belong to no section.
// Load validates the sections too.
func (c *Config) Validate() error {
	var errs []error
	if c.Store != Embedded && c.Store != Cassandra {
		errs = append(errs, fmt.Errorf("store: %q: want %s or %s", c.Store, Embedded, Cassandra))
	}
	if c.DataDir == "" {
		errs = append(errs, errors.New("data_dir: empty; name a directory"))
	}
	if c.Retention.Enforce && c.Store == Cassandra {
		errs = append(errs, errors.New("retention.enforce: only the embedded store downsamples and expires samples by policy; with store: cassandra leave it out, and set ingest.default_ttl for how long points are kept"))
	}
	if c.Auth.Enabled && c.Server.CarbonUDPAddr != "" && c.Auth.Validate() == nil && !c.Auth.TakesDatagrams("carbon_udp") {
		errs = append(errs, errors.New("server.carbon_udp_addr: with auth.enabled all datagrams would be dropped, because no entry of auth.rules admits any. "+
			"Add a rule with address= and stream=carbon_udp for a network in which nobody forges addresses, or set server.carbon_udp_addr to nothing and let senders use TCP"))
	}
	for _, err := range append(c.Auth.CheckStreams(server.StreamNames()), c.Auth.CheckTenants(c.HasTenant)...) {
		errs = append(errs, fmt.Errorf("auth.%w", err))
	}
	errs = append(errs, tenant.Validate(c.Tenants), c.checkKeyspaces(), c.checkPolicies(), c.checkBackups())
	return errors.Join(errs...)
}

// Keys lists the settings of c in the order of the reference.
func Keys(c *Config) []string {
	var keys []string
	for _, f := range fields(c) {
		if !f.section || f.items {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// Changed returns the settings in which running and next differ, by key, each with a
// function that copies it from next to running.
func Changed(running, next *Config) map[string]func() {
	changed := map[string]func(){}
	theirs := fields(next)
	for i, f := range fields(running) {
		if (!f.section || f.items) && !reflect.DeepEqual(f.value.Interface(), theirs[i].value.Interface()) {
			changed[f.key] = func() { f.value.Set(theirs[i].value) }
		}
	}
	return changed
}

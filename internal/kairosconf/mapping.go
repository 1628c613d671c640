package kairosconf

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/foreign"
)

// translate converts a value of KairosDB to one of Varve. "" leaves the setting at its
// default.
type translate func(value string) (string, error)

func same(value string) (string, error) { return value, nil }

func upper(value string) (string, error) { return strings.ToUpper(value), nil }

// ttlFrom translates align_datapoint_ttl_with_timestamp into ingest.ttl_from.
func ttlFrom(value string) (string, error) {
	switch strings.ToLower(value) {
	case "true", "yes", "on":
		return "timestamp", nil
	case "false", "no", "off", "":
		return "write", nil
	}
	return "", fmt.Errorf("%q: want true or false", value)
}

// unitOf converts a number of units to a duration.
func unitOf(unit time.Duration) translate {
	return func(value string) (string, error) {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return "", fmt.Errorf("%q: want a whole number", value)
		}
		return (time.Duration(n) * unit).String(), nil
	}
}

// unlessZero is to, except that for 0, which is no limit in KairosDB, the setting keeps
// Varve's default.
func unlessZero(to translate) translate {
	return func(value string) (string, error) {
		if value == "0" || value == "" {
			return "", nil
		}
		return to(value)
	}
}

// A rule maps a key to one setting of Varve.
type rule struct {
	key string
	to  translate
}

var rules = map[string]rule{
	"telnetserver.max_command_size":                          {"telnet.max_line", same},
	"jetty.socket_idle_timeout":                              {"server.idle_timeout", unitOf(time.Millisecond)},
	"server.type":                                            {"kairos.server_type", upper},
	"queries.regex_prefix":                                   {"kairos.regex_prefix", same},
	"log.queries.greater_than":                               {"query.slow", unitOf(time.Second)},
	"datastore.cassandra.query_time_limit_sec":               {"query.timeout", unlessZero(unitOf(time.Second))},
	"datastore.cassandra.query_limit":                        {"query.max_samples", unlessZero(same)},
	"datastore.cassandra.datapoint_ttl":                      {"ingest.default_ttl", unitOf(time.Second)},
	"datastore.cassandra.force_default_datapoint_ttl":        {"ingest.force_default_ttl", same},
	"datastore.cassandra.align_datapoint_ttl_with_timestamp": {"ingest.ttl_from", ttlFrom},
}

// cluster maps keys of the write cluster: below write_cluster. since KairosDB 1.3, directly
// below cassandraPrefix before.
var cluster = map[string]rule{
	"keyspace":                {"cassandra.keyspace", same},
	"local_dc_name":           {"cassandra.datacenter", same},
	"local_datacenter":        {"cassandra.datacenter", same},
	"read_consistency_level":  {"cassandra.read_consistency", upper},
	"write_consistency_level": {"cassandra.write_consistency", upper},
	"auth.user_name":          {"cassandra.username", same},
	"auth.username":           {"cassandra.username", same},
	"auth.password":           {"cassandra.password", same},
	"use_ssl":                 {"cassandra.tls.enabled", same},
	"row_time_unit":           {"cassandra.schema.row_time_unit", upper},
	"row_width":               {"cassandra.schema.row_width", same},
}

// A remark is a pattern of keys without a counterpart, and the reason.
type remark struct {
	pattern *regexp.Regexp
	why     string
}

func remarks(pairs ...string) []remark {
	var all []remark
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, remark{regexp.MustCompile(pairs[i]), pairs[i+1]})
	}
	return all
}

const (
	noSuchPart = "Varve has no such part"
	notNeeded  = "Varve needs no such setting"
)

// warnings are checked before notes. In each list the first match wins.
var (
	warnings = remarks(
		`^jetty\.(ssl|auth_module_name|basic_auth)`, "not taken over: set server.tls.cert_file and server.tls.key_file for TLS, and auth.enabled to require tokens",
		`^service\.(oauth|filter|demo|blast|carbon|qos)$|^(oauth|qos|carbon)\.`, noSuchPart,
		`^(filter|metric_index_filter)\.`, "Varve does not drop or hide metrics by name; drop them at the sender",
		`^service\.(telnet|http|health)$`, "it is turned off by server.telnet_addr, or cannot be turned off",
		`^datastore\.h2\.`, "H2 is not read: export its points with KairosDB's -c export, and import the file with varve import",
		`^datastore\.remote\.`, noSuchPart,
		`^health\.healthyResponseCode$`, "the health check answers 204",
		`^queries\.return_query_in_response$`, "answers do not repeat the query; clients that read it from there find nothing",
	)
	notes = remarks(
		`^service\.(telnet|http|health|reporter)$`, "it is always on",
		`^service\.rollups$`, "roll-ups run where no KairosDB node does, or as rollups.participate says",
		`^rollups\.server_assignment\.check_update_delay_millseconds$`, "Varve checks every 10s",
		`^service\.`, noSuchPart,
		`^(queue_processor|ingest_executor)\.`, "points are acknowledged by Varve's own log: cassandra.spool, embedded.log",
		`^(reporter\.|metric-prefix|metrics\.|queries\.aggregate_stats)`, "Varve's own metrics are at /internal/metrics",
		`^query_cache\.`, "the query cache is in memory: kairos.query_cache",
		`^(demo|blast|eventbus)\.`, noSuchPart,
		`^jetty\.`, notNeeded,
		`^datapoints\.factory\.`, "data types are built in; others are carried byte for byte",
		`^datastore\.concurrentQueryThreads$`, "Varve has a limit of its own: query.max_concurrent",
		`simultaneous_cql_queries|connections_per_host|max_requests_per_connection|max_queue_size|request_retry_count|query_reader_threads`,
		"Varve limits statements in flight itself: cassandra.reads_in_flight, cassandra.writes_in_flight",
		`^datastore\.cassandra\.read_clusters_not\b`, "it is only an example in the shipped file",
		`protocol_compression$`, "frames are not compressed unless cassandra.compression says so, which is useful between data centres",
		`^datastore\.cassandra\.(row_key_cache_size|string_cache_size|start_async)$`, notNeeded,
		`^datastore\.cassandra\.(write_cluster\.)?name$`, "metrics and health call it write_cluster",
		`^datastore\.cassandra\.write_cluster\.(start|end)_time$`, "the cluster that is written to is asked by every query",
		`^datastore\.cassandra\.(hector\.|write_delay|write_buffer|single_row|multi_row|max_row_keys|(metric|tag)_\w+_cache|increase_buffer|write_cluster\.auth\.$)`, notNeeded,
		`^(log\.queries|host_service_manager|hostname|host_ip|server\.guid|queries\.return)`, notNeeded,
	)
)

const (
	cassandraPrefix = "datastore.cassandra."
	writePrefix     = cassandraPrefix + "write_cluster."
)

// Map maps the configuration to settings of Varve.
func (f *File) Map() foreign.Mapping {
	m := mapper{Mapping: foreign.Mapping{Root: root}, file: f, used: map[string]bool{}}
	m.listeners()
	m.services()
	m.hosts()
	m.clusters()
	m.keyspace()
	m.tables()
	m.tagIndex()
	for _, key := range f.keys() {
		m.key(key)
	}
	m.Unknown = append(m.Unknown, f.foreign...)
	m.Sort()
	return m.Mapping
}

type mapper struct {
	foreign.Mapping
	file *File
	used map[string]bool
}

// take returns the value of a key and marks the key as used.
func (m *mapper) take(key string) string {
	m.used[key] = true
	return m.file.values[key]
}

// listeners maps addresses and ports to listeners.
func (m *mapper) listeners() {
	for _, l := range []struct{ section, key, port string }{
		{"telnetserver", "server.telnet_addr", "4242"},
		{"jetty", "server.http_addr", "8080"},
	} {
		address, port := m.take(l.section+".address"), m.take(l.section+".port")
		if address == "" && port == "" {
			continue
		}
		if port == "0" && l.section == "jetty" {
			m.Warn("jetty.port", "the HTTP port cannot be turned off; server.http_addr is its address")
			continue
		}
		m.Set(l.section+".port", l.key, net.JoinHostPort(cmp.Or(address, "0.0.0.0"), cmp.Or(port, l.port)))
	}
}

// disabled reports whether a service is turned off.
func disabled(module string) bool { return module == "" || module == "<disabled>" }

// services maps service.datastore to the kind of store, and handles services that are
// turned off.
func (m *mapper) services() {
	if module := m.take("service.datastore"); strings.Contains(module, "Cassandra") {
		m.Set("service.datastore", "store", "cassandra")
	} else if strings.Contains(module, "H2") {
		m.Set("service.datastore", "store", "embedded")
	} else if module != "" {
		m.Warn("service.datastore", module+" is neither H2 nor Cassandra: store is not set")
	}
	for _, name := range []string{"filter", "oauth", "demo", "blast", "carbon", "qos", "rollups", "reporter", "http", "health", "telnet"} {
		key := "service." + name
		if module, given := m.file.values[key]; given && disabled(module) {
			m.used[key] = true
			switch name {
			case "telnet":
				m.Settings = slices.DeleteFunc(m.Settings, func(s foreign.Setting) bool { return s.Key == "server.telnet_addr" })
				m.Set(key, "server.telnet_addr", "")
			case "http", "health":
				m.Warn(key, "it cannot be turned off")
			}
		} else if given && slices.Contains([]string{"telnet", "http", "health"}, name) {
			m.plugIn(key)
			m.used[key] = true
		}
	}
}

// thriftPort is Cassandra's port for KairosDB before 1.2.
const thriftPort = ":9160"

func (m *mapper) hosts() {
	keys := []string{writePrefix + "cql_host_list", cassandraPrefix + "cql_host_list", cassandraPrefix + "host_list"}
	for _, key := range keys {
		m.used[key] = true
	}
	for _, key := range keys {
		hosts, ok := m.file.list(key)
		if !ok {
			continue
		}
		for i := range hosts {
			hosts[i] = strings.TrimSuffix(hosts[i], thriftPort)
		}
		m.SetList(key, "cassandra.hosts", hosts)
		return
	}
}

// keyspace maps the replication of a new keyspace.
func (m *mapper) keyspace() {
	for _, key := range []string{writePrefix + "replication", cassandraPrefix + "replication"} {
		if text := m.take(key); text != "" {
			m.Set(key, "cassandra.schema.replication", text)
			m.newKeyspace(key)
			return
		}
	}
	key := cassandraPrefix + "replication_factor"
	text := m.take(key)
	if text == "" {
		return
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n == 0 {
		m.Fail(key, "%q: want a whole number from 1 on", text)
		return
	}
	m.Set(key, "cassandra.schema.replication", fmt.Sprintf("{'class': 'SimpleStrategy', 'replication_factor': '%d'}", n))
	m.newKeyspace(key)
}

var compactStorage = regexp.MustCompile(`(?i)\s*\bCOMPACT\s+STORAGE\b\s*(AND\b)?`)

// tables maps the options of new tables.
func (m *mapper) tables() {
	const prefix = cassandraPrefix + "table_create_with."
	var lines []string
	for _, key := range m.file.keys() {
		table, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		options := strings.TrimSpace(m.take(key))
		if compactStorage.MatchString(options) {
			m.Note(key, "new tables are made without COMPACT STORAGE, which KairosDB reads as well")
			options = compactStorage.ReplaceAllString(options, " ")
		}
		options = strings.TrimSpace(options)
		if rest := regexp.MustCompile(`(?i)^WITH\b`).ReplaceAllString(options, ""); rest != options {
			options = strings.TrimSpace(regexp.MustCompile(`(?i)^\s*AND\b|\bAND\s*$`).ReplaceAllString(rest, ""))
		}
		lower := strings.ToLower(options)
		switch {
		case options == "":
		case strings.Contains(lower, "timewindowcompactionstrategy") && !strings.Contains(lower, "milliseconds"):
			m.Warn(key, "not used for new tables: it lacks 'timestamp_resolution': 'MILLISECONDS', without which the windows are wrong. See cassandra.schema.table_options")
		default:
			lines = append(lines, table+": "+options)
		}
	}
	if len(lines) > 0 {
		m.SetList(strings.TrimSuffix(prefix, "."), "cassandra.schema.table_options", lines)
	}
}

// tagIndex maps which metrics have rows in tag_indexed_row_keys: a list of
// metrics, or the tags of each metric.
func (m *mapper) tagIndex() {
	for _, key := range []string{writePrefix + "tag_indexed_row_key_lookup_metrics", cassandraPrefix + "tag_indexed_row_key_lookup_metrics"} {
		var lines []string
		if metrics, ok := m.file.list(key); ok {
			m.used[key] = true
			for _, metric := range metrics {
				lines = append(lines, "include "+metricRule(metric))
			}
		}
		for _, k := range m.file.keys() {
			metric, ok := strings.CutPrefix(k, key+".")
			if !ok {
				continue
			}
			m.used[k] = true
			tags, _ := m.file.list(k)
			line := "include " + metricRule(metric)
			if len(tags) > 0 && !slices.Contains(tags, "*") {
				line += " tags=" + strings.Join(tags, ",")
			}
			if slices.ContainsFunc(tags, func(tag string) bool { return strings.ContainsAny(tag, ", \t") }) {
				m.Fail(k, "tags with commas or blanks cannot be named in cassandra.write.tag_index; leave the tags out for all of them")
				continue
			}
			lines = append(lines, line)
		}
		if len(lines) > 0 {
			m.SetList(key, "cassandra.write.tag_index", lines)
			return
		}
	}
}

// metricRule returns the selector of a metric in a rule of cassandra.write.tag_index.
func metricRule(metric string) string {
	switch {
	case metric == "*":
		return "all"
	case strings.ContainsAny(metric, " \t"):
		return "regex=" + strings.NewReplacer(" ", `\x20`, "\t", `\t`).Replace(regexp.QuoteMeta(metric))
	}
	return "name=" + metric
}

// key maps a key that is not used yet.
func (m *mapper) key(key string) {
	if m.used[key] {
		return
	}
	if r, ok := ruleOf(key); ok {
		value, err := r.to(strings.TrimSpace(m.file.values[key]))
		switch {
		case err != nil:
			m.Fail(key, "%v", err)
		case value != "" || r.key == "kairos.regex_prefix":
			m.Set(key, r.key, value)
		}
		if r.key == "cassandra.tls.enabled" && value == "true" {
			m.Warn(key, noKeystores)
		}
		return
	}
	if m.plugIn(key) {
		return
	}
	for _, r := range warnings {
		if r.pattern.MatchString(key) && !m.empty(key) {
			m.Warn(key, r.why)
			return
		}
	}
	for _, r := range notes {
		if r.pattern.MatchString(key) {
			m.Note(key, r.why)
			return
		}
	}
	if m.empty(key) {
		return
	}
	m.Unknown = append(m.Unknown, root+key)
}

// empty reports whether a key has no value, or one that changes nothing.
func (m *mapper) empty(key string) bool {
	value, list := m.file.values[key], m.file.lists[key]
	return value == "" && len(list) == 0 ||
		key == "health.healthyResponseCode" && value == "204" ||
		key == "queries.return_query_in_response" && strings.EqualFold(value, "false") ||
		strings.HasPrefix(key, "datastore.h2.") && strings.Contains(m.file.values["service.datastore"], "Cassandra")
}

const (
	noPlugIns   = "Varve loads no Java classes: replace what this plug-in did"
	noFactories = "Varve does not know this type: points that name it are refused, and stored ones are answered as base64"
)

// builtInTypes are KairosDB's data types that Varve also has.
var builtInTypes = []string{"long", "double", "string", "complex", "null", "legacy"}

// plugIn reports whether a key names a service or a data type that is not part of
// KairosDB, and warns about it.
func (m *mapper) plugIn(key string) bool {
	value := m.file.values[key]
	own := strings.HasPrefix(value, "org.kairosdb.")
	switch name, isType := strings.CutPrefix(key, "datapoints.factory."); {
	case isType && value != "" && !slices.Contains(builtInTypes, name):
		m.Warn(key, noFactories)
		return true
	case isType && value != "" && !own:
		m.Warn(key, noPlugIns)
		return true
	}
	if strings.HasPrefix(key, "service.") && !disabled(value) && !own {
		m.Warn(key, noPlugIns)
		return true
	}
	return false
}

const noKeystores = "Java's keystores are not read: cassandra.tls.ca_file, and cert_file and key_file if Cassandra asks for a certificate, name PEM files. The names in the nodes' certificates are checked"

func ruleOf(key string) (rule, bool) {
	if r, ok := rules[key]; ok {
		return r, true
	}
	name, ok := strings.CutPrefix(key, cassandraPrefix)
	if !ok {
		return rule{}, false
	}
	r, ok := cluster[strings.TrimPrefix(name, "write_cluster.")]
	return r, ok
}

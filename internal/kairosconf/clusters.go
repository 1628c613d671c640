package kairosconf

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"varve/internal/foreign"
)

const (
	metaPrefix = cassandraPrefix + "meta_cluster."
	readPrefix = cassandraPrefix + "read_clusters"

	metaTarget = "cassandra.meta_cluster."
	readTarget = "cassandra.read_clusters"
)

// onlyWritten are keys that KairosDB reads only for the write cluster.
var onlyWritten = []string{"row_time_unit", "row_width"}

var readItem = regexp.MustCompile(`^` + regexp.QuoteMeta(readPrefix) + `\[\d+\]\.`)

// clusters maps the read clusters and the metadata cluster.
func (m *mapper) clusters() {
	var prefixes []string
	for _, key := range m.file.keys() {
		if item := readItem.FindString(key); item != "" && !slices.Contains(prefixes, item) {
			prefixes = append(prefixes, item)
		}
	}
	slices.SortStableFunc(prefixes, func(a, b string) int { return len(a) - len(b) }) // 10 after 9
	for i, prefix := range prefixes {
		m.cluster(prefix, fmt.Sprintf("%s[%d].", readTarget, i))
		if _, named := m.file.values[prefix+"name"]; !named {
			m.Set(strings.TrimSuffix(prefix, "."), fmt.Sprintf("%s[%d].name", readTarget, i), "default") // KairosDB's
		}
	}
	if slices.ContainsFunc(m.file.keys(), func(key string) bool { return strings.HasPrefix(key, metaPrefix) }) {
		m.cluster(metaPrefix, metaTarget)
	}
}

// cluster maps the keys of one cluster.
func (m *mapper) cluster(prefix, target string) {
	hosts, ok := m.file.list(prefix + "cql_host_list")
	if !ok || len(hosts) == 0 {
		hosts = []string{"localhost"} // KairosDB's default
	}
	m.used[prefix+"cql_host_list"] = true
	m.SetList(prefix+"cql_host_list", target+"hosts", hosts)
	for _, key := range m.file.keys() {
		if name, ok := strings.CutPrefix(key, prefix); ok && !m.used[key] {
			m.clusterKey(key, name, target)
		}
	}
}

func (m *mapper) clusterKey(key, name, target string) {
	read := target != metaTarget
	value := strings.TrimSpace(m.file.values[key])
	r, known := cluster[name]
	lookups := strings.HasPrefix(name, "tag_indexed_row_key_lookup_metrics")
	switch {
	case read && name == "name":
		m.Set(key, target+name, value)
	case name == "name":
		m.Note(key, "metrics and health call it meta_cluster")
	case read && name == "write_consistency_level":
		m.Note(key, "deletes there use cassandra.write_consistency")
	case slices.Contains(onlyWritten, name), read && name == "replication":
		m.Note(key, "it is for new tables, and none are created in this cluster")
	case name == "replication":
		if value != "" {
			m.Set(key, target+name, value)
			m.newKeyspace(key)
		}
	case read && (name == "start_time" || name == "end_time"):
		m.Set(key, target+name, value)
	case name == "start_time", name == "end_time":
		m.Note(key, "metadata has no time")
	case lookups:
		m.Note(key, "tag_indexed_row_keys is not read: Varve finds series by its own index where there is one, otherwise by row_keys")
	case known:
		text, err := r.to(value)
		_, setting, _ := strings.Cut(r.key, ".")
		switch {
		case err != nil:
			m.Fail(key, "%v", err)
		case text != "":
			m.Set(key, target+setting, text)
		}
		if name == "use_ssl" && value == "true" {
			m.Warn(key, noKeystores)
		}
	default:
		return // key maps it later
	}
	m.used[key] = true
}

// newKeyspace lets Varve create keyspaces, unless another key did so already.
func (m *mapper) newKeyspace(from string) {
	const key = "cassandra.schema.create"
	if !slices.ContainsFunc(m.Settings, func(s foreign.Setting) bool { return s.Key == key }) {
		m.Set(from, key, "keyspace")
	}
}

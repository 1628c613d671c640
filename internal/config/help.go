package config

import (
	"fmt"
	"io"
	"strings"
)

// shortFlags are second names of the flags that people type.
var shortFlags = []struct{ flag, key string }{
	{"data-dir", "data_dir"},
	{"http-addr", "server.http_addr"},
	{"telnet-addr", "server.telnet_addr"},
	{"carbon-addr", "server.carbon_addr"},
	{"pickle-addr", "server.pickle_addr"},
	{"storage-schemas", "graphite.storage_schemas"},
	{"storage-aggregation", "graphite.storage_aggregation"},
}

// firstFlags are the settings that people need first. Each meaning fits a line.
var firstFlags = []struct{ key, meaning string }{
	{"data_dir", "data directory; created if it does not exist"},
	{"server.http_addr", "HTTP; 0.0.0.0:8080 and auth.enabled to serve other hosts"},
	{"server.telnet_addr", "telnet; empty turns it off"},
	{"server.carbon_addr", "Graphite's lines; empty turns them off"},
	{"server.pickle_addr", "Graphite's pickles; empty turns them off"},
	{"store", "embedded, or cassandra for a keyspace of KairosDB"},
	{"cassandra.hosts", "some nodes of the cluster, separated by commas"},
	{"cassandra.keyspace", "KairosDB's keyspace"},
	{"cassandra.datacenter", "data centre to use; empty uses all"},
	{"ingest.default_ttl", "how long points live, such as 720h; 0s keeps them"},
	{"ingest.max_series", "most series; at the limit new ones are refused"},
	{"query.timeout", "longest time that a query may take"},
	{"query.max_memory", "most memory that one query may hold"},
	{"embedded.min_free_bytes", "free disk space below which writes are refused"},
	{"embedded.backup_dir", "where varve backup writes; empty: in the data directory"},
	{"auth.enabled", "require tokens; varve token create creates one"},
	{"server.tls.cert_file", "certificate; with server.tls.key_file for TLS"},
	{"log.level", "debug, info, warn or error"},
}

// WriteFirstFlags lists the flags of the settings that people need first, a line
// each.
func WriteFirstFlags(w io.Writer) error {
	defaults := Default()
	var b strings.Builder
	byKey := map[string]field{}
	for _, f := range settings(&defaults) {
		byKey[f.key] = f
	}
	for _, first := range firstFlags {
		f := byKey[first.key]
		name := f.flag()
		for _, short := range shortFlags {
			if short.key == first.key {
				name = short.flag
			}
		}
		fmt.Fprintf(&b, "  %-40s %s\n", "--"+name+"="+formatText(f.value), first.meaning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Count returns the number of settings.
func Count() int {
	defaults := Default()
	return len(settings(&defaults))
}

// WriteFlags lists the flags of all settings, with default and meaning.
func WriteFlags(w io.Writer) error {
	defaults := Default()
	var b strings.Builder
	for _, f := range settings(&defaults) {
		fmt.Fprintf(&b, "  --%s=%s\n", f.flag(), formatText(f.value))
		writeWrapped(&b, "       ", f.doc)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

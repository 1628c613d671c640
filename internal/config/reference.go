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

const referenceHead = `# Configuration

This page is generated from the code. After changing a setting, run
` + "`go test ./internal/config -run TestReferencePage -update`" + `.

Varve runs without a configuration. Settings come from these places; a later one overrides an earlier one:

1. the defaults below,
2. an unchanged configuration of a KairosDB server, named by ` + "`--kairosdb-conf`" + ` or ` + "`VARVE_KAIROSDB_CONF`" + `:
   [which settings Varve reads](migrating-from-kairosdb.md#kairosdbconf),
3. an unchanged carbon.conf of a Graphite installation, named by ` + "`--carbon-conf`" + ` or ` + "`VARVE_CARBON_CONF`" + `:
   [which settings Varve reads](graphite.md#carbonconf),
4. a YAML file named by ` + "`--config`" + ` or ` + "`VARVE_CONFIG`" + `,
5. environment variables: ` + "`VARVE_`" + ` and the key in capitals, with underscores instead of dots,
6. flags: the key with dashes instead of dots and underscores.

For example, these set the key ` + "`server.http_addr`" + ` in the file, by a variable, and by a flag:

` + "```" + `
server:
  http_addr: 127.0.0.1:9090
` + "```" + `
` + "```" + `
VARVE_SERVER_HTTP_ADDR=127.0.0.1:9090
` + "```" + `
` + "```" + `
varve serve --server-http-addr=127.0.0.1:9090
` + "```" + `

Short flags: %s.

An unknown key is an error. The error names the file and line, the variable or the flag, and the nearest existing key.
All problems are reported at once. The variables that Kubernetes sets for a service called varve
(` + "`VARVE_PORT`, `VARVE_SERVICE_HOST`" + ` and others) are ignored.

Write a list as ` + "`[a, b]`" + ` in the file and as ` + "`a,b`" + ` in a variable or flag. A list of sections, such as ` + "`cassandra.read_clusters`" + `,
can only be set in a file.

A size is a whole number of bytes, optionally with KiB, MiB, GiB, kB, MB or GB. A time needs a unit: 100ms, 10s, 5m, 24h, 30d, 8w.

` + "`varve config`" + ` takes the same flags, file and variables as ` + "`varve serve`" + ` and prints the resulting configuration
as a YAML file with comments. For each value that is not the default, it says where the value was set.
`

// WriteReference writes docs/configuration.md.
func WriteReference(w io.Writer) error {
	var short []string
	for _, s := range shortFlags {
		short = append(short, fmt.Sprintf("`--%s` for `%s`", s.flag, s.key))
	}
	var b strings.Builder
	fmt.Fprintf(&b, referenceHead, strings.Join(short, ", "))
	b.WriteString("\n## Top level\n")
	defaults := Default()
	writeTables(&b, withSettings(fields(&defaults)))
	_, err := io.WriteString(w, b.String())
	return err
}

// writeTables writes a heading and a table for each run of settings.
func writeTables(b *strings.Builder, list []field) {
	table := false
	for _, f := range list {
		if f.section {
			fmt.Fprintf(b, "\n## %s\n\n%s\n", f.key, f.doc)
			table = false
			if f.items {
				b.WriteString("\nA list, which only a file can set. Each item has these keys.\n")
				writeTables(b, itemFields(f.newItem(), f.key+"[]"))
			}
			continue
		}
		if !table {
			b.WriteString("\n| key | default | meaning |\n|---|---|---|\n")
			table = true
		}
		value := formatText(f.value)
		if value == "" {
			value = `""`
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", f.key, value, strings.ReplaceAll(f.doc, "|", `\|`))
	}
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

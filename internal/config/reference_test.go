package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

// reference is the text of docs/configuration.md.
func reference() string {
	var short []string
	for _, s := range shortFlags {
		short = append(short, fmt.Sprintf("`--%s` for `%s`", s.flag, s.key))
	}
	var b strings.Builder
	fmt.Fprintf(&b, referenceHead, strings.Join(short, ", "))
	b.WriteString("\n## Top level\n")
	defaults := Default()
	writeTables(&b, withSettings(fields(&defaults)))
	return b.String()
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

// TestSectionsOfReference wants settings in each section of the page.
func TestSectionsOfReference(t *testing.T) {
	root := defaultSample()
	var b strings.Builder
	writeTables(&b, withSettings(fields(&root)))
	if got := b.String(); !strings.Contains(got, "## cache.deep") || strings.Contains(got, "fixed") {
		t.Errorf("want cache.deep, and no section without settings:\n%s", got)
	}
}

func TestReferencePage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "configuration.md")
	want := reference()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(have), want); d != "" {
		t.Errorf("docs/configuration.md is not what the code says; run go test ./internal/config -run TestReferencePage -update\n%s", d)
	}
}

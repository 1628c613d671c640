package kairosconf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/foreign"
)

func load(t *testing.T, name string) foreign.Mapping {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(name, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f.Map()
}

// settings renders the settings of a mapping, one a line.
func settings(m foreign.Mapping) []string {
	var lines []string
	for _, s := range m.Settings {
		value := s.Value
		if s.List != nil {
			value = "[" + strings.Join(s.List, " | ") + "]"
		}
		lines = append(lines, s.Key+" = "+value)
	}
	return lines
}

func TestShippedFile(t *testing.T) {
	m := load(t, "kairosdb-1.3.0.conf")
	if m.Faults != nil {
		t.Error(m.Faults)
	}
	want := []string{
		"cassandra.hosts = [localhost]",
		"cassandra.keyspace = kairosdb",
		"cassandra.read_consistency = ONE",
		"cassandra.schema.create = keyspace",
		"cassandra.schema.replication = {'class': 'SimpleStrategy','replication_factor' : 1}",
		"cassandra.tls.enabled = false",
		"cassandra.write_consistency = QUORUM",
		"kairos.regex_prefix = regex:",
		"query.slow = 1m0s",
		"server.http_addr = 0.0.0.0:8080",
		"server.idle_timeout = 2m0s",
		"server.telnet_addr = 0.0.0.0:4242",
		"store = embedded",
		"telnet.max_line = 1024",
	}
	if diff := cmp.Diff(want, settings(m)); diff != "" {
		t.Error(diff)
	}
	if m.Unknown != nil {
		t.Errorf("unknown: %v", m.Unknown)
	}
	if len(m.Warnings) != 1 || !slices.Equal(m.Warnings[0].Keys, []string{"kairosdb.datastore.h2.database_path"}) {
		t.Errorf("warnings: %v", m.Warnings)
	}
	notes := 0
	for _, n := range m.Notes {
		notes += len(n.Keys)
	}
	if notes < 40 {
		t.Errorf("notes about %d keys", notes)
	}
}

// TestEveryKey sees to it that the file of every key has each key of the tables, in each cluster,
// and sets something with it. A test of package config loads the file.
func TestEveryKey(t *testing.T) {
	m := load(t, "every-key.conf")
	if m.Faults != nil || m.Unknown != nil || m.Notes != nil {
		t.Error(m.Faults, m.Unknown, m.Notes)
	}
	set := map[string]bool{}
	for _, s := range m.Settings {
		set[s.From] = true
	}
	var want []string
	for key := range rules {
		want = append(want, key)
	}
	for name := range cluster {
		want = append(want, writePrefix+name)
		if slices.Contains(onlyWritten, name) {
			continue
		}
		want = append(want, metaPrefix+name)
		if name != "write_consistency_level" {
			want = append(want, readPrefix+"[0]."+name)
		}
	}
	for _, key := range want {
		if !set[root+key] {
			t.Errorf("%s sets nothing", key)
		}
	}
}

func TestOldProperties(t *testing.T) {
	m := load(t, "kairosdb-1.2.properties")
	if m.Faults != nil {
		t.Error(m.Faults)
	}
	want := []string{
		"cassandra.hosts = [10.0.0.1 | 10.0.0.2:9043]",
		"cassandra.keyspace = metrics",
		"cassandra.password = eat_me",
		"cassandra.read_consistency = ONE",
		"cassandra.schema.create = keyspace",
		"cassandra.schema.replication = {'class': 'SimpleStrategy','replication_factor' : 3}",
		"cassandra.tls.enabled = false",
		"cassandra.username = admin",
		"cassandra.write_consistency = QUORUM",
		"ingest.default_ttl = 8760h0m0s",
		"query.slow = 1m0s",
		"server.http_addr = 0.0.0.0:8080",
		"server.telnet_addr = ",
		"store = cassandra",
		"telnet.max_line = 1024",
	}
	if diff := cmp.Diff(want, settings(m)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"kairosdb.plugin.host", "org.quartz.threadCount"}, m.Unknown); diff != "" {
		t.Error(diff)
	}
	if m.Warnings != nil {
		t.Errorf("warnings: %v", m.Warnings)
	}
}

func TestMapping(t *testing.T) {
	const c = "kairosdb.datastore.cassandra."
	for _, test := range []struct {
		name, text string
		want       []string // settings
		warned     string   // part of a warning
		fault      string   // part of an error
	}{
		{"thrift", c + `host_list: "a:9160, b:9160"`, []string{"cassandra.hosts = [a | b]"}, "", ""},
		{"the new name wins", c + `cql_host_list: ["old"], ` + c + `write_cluster.cql_host_list: ["new:1"]`, []string{"cassandra.hosts = [new:1]"}, "", ""},
		{"only a port", "kairosdb.jetty.port = 9090", []string{"server.http_addr = 0.0.0.0:9090"}, "", ""},
		{"an address of version 6", `kairosdb.telnetserver.address = "::1"`, []string{"server.telnet_addr = [::1]:4242"}, "", ""},
		{"no telnet", "kairosdb.service.telnet = <disabled>\nkairosdb.telnetserver.port = 1", []string{"server.telnet_addr = "}, "", ""},
		{"no HTTP", "kairosdb.jetty.port = 0", nil, "cannot be turned off", ""},
		{"tables", c + `table_create_with { data_points: "WITH COMPACT STORAGE AND gc_grace_seconds = 1", row_keys: "WITH a = {'x': 'y', 'z': 1}", string_index: "" }`,
			[]string{"cassandra.schema.table_options = [data_points: gc_grace_seconds = 1 | row_keys: a = {'x': 'y', 'z': 1}]"}, "", ""},
		{"compact storage last", c + `table_create_with.data_points: "WITH gc_grace_seconds = 1 AND COMPACT STORAGE"`,
			[]string{"cassandra.schema.table_options = [data_points: gc_grace_seconds = 1]"}, "", ""},
		{"time windows", c + `table_create_with.data_points: "WITH compaction = {'class': 'TimeWindowCompactionStrategy'}"`, nil, "timestamp_resolution", ""},
		{"metrics with a tag index", c + `write_cluster.tag_indexed_row_key_lookup_metrics: ["a.b", "c d", "*"]`,
			[]string{`cassandra.write.tag_index = [include name=a.b | include regex=c\x20d | include all]`}, "", ""},
		{"tags of metrics", c + `write_cluster.tag_indexed_row_key_lookup_metrics { a.b: [host, dc], c: [], "d.e": ["*"] }`,
			[]string{"cassandra.write.tag_index = [include name=a.b tags=host,dc | include name=c | include name=d.e]"}, "", ""},
		{"tags that cannot be named", c + `write_cluster.tag_indexed_row_key_lookup_metrics { a: ["x y"] }`, nil, "", "commas or blanks"},
		{"rows", c + "write_cluster { row_time_unit: seconds, row_width: 86400 }", []string{"cassandra.schema.row_time_unit = SECONDS", "cassandra.schema.row_width = 86400"}, "", ""},
		{"time to live", c + "datapoint_ttl: 60\n" + c + "force_default_datapoint_ttl: true", []string{"ingest.default_ttl = 1m0s", "ingest.force_default_ttl = true"}, "", ""},
		{"ttl from the time of a point", c + "align_datapoint_ttl_with_timestamp: true", []string{"ingest.ttl_from = timestamp"}, "", ""},
		{"ttl from the write", c + "align_datapoint_ttl_with_timestamp: false", []string{"ingest.ttl_from = write"}, "", ""},
		{"no yes or no", c + "align_datapoint_ttl_with_timestamp: maybe", nil, "", `kairosdb.datastore.cassandra.align_datapoint_ttl_with_timestamp: "maybe"`},
		{"no number", c + "datapoint_ttl: long", nil, "", `kairosdb.datastore.cassandra.datapoint_ttl: "long"`},
		{"no limits", c + "query_limit: 0\n" + c + "query_time_limit_sec: 0", nil, "", ""},
		{"limits", c + "query_limit: 5\n" + c + "query_time_limit_sec: 7", []string{"query.max_samples = 5", "query.timeout = 7s"}, "", ""},
		{"encrypted", c + "write_cluster.use_ssl: true", []string{"cassandra.tls.enabled = true"}, "ca_file", ""},
		{"read clusters", c + `read_clusters: [{
				name: old, keyspace: k, cql_host_list: [b, "c:1"], local_dc_name: d, read_consistency_level: one, auth.user_name: u, auth.password: p
				start_time: "2001-07-04T12:08-0700", end_time: "2011-07-04T12:08-0700", replication: "{}", row_width: 1, use_ssl: true
				connections_per_host.local.core: 5, tag_indexed_row_key_lookup_metrics: { a: [b] }
			}, { start_time: "2011-07-04T12:08-0700" }]`,
			[]string{
				"cassandra.read_clusters[0].datacenter = d", "cassandra.read_clusters[0].end_time = 2011-07-04T12:08-0700",
				"cassandra.read_clusters[0].hosts = [b | c:1]", "cassandra.read_clusters[0].keyspace = k", "cassandra.read_clusters[0].name = old",
				"cassandra.read_clusters[0].password = p", "cassandra.read_clusters[0].read_consistency = ONE",
				"cassandra.read_clusters[0].start_time = 2001-07-04T12:08-0700", "cassandra.read_clusters[0].tls.enabled = true",
				"cassandra.read_clusters[0].username = u", "cassandra.read_clusters[1].hosts = [localhost]",
				"cassandra.read_clusters[1].name = default", "cassandra.read_clusters[1].start_time = 2011-07-04T12:08-0700",
			}, "keystores", ""},
		{"meta cluster", c + `meta_cluster { name: m, keyspace: a, replication: "{}", cql_host_list: ["x:1"], write_consistency_level: ALL, end_time: x }`,
			[]string{
				"cassandra.meta_cluster.hosts = [x:1]", "cassandra.meta_cluster.keyspace = a",
				"cassandra.meta_cluster.replication = {}", "cassandra.meta_cluster.write_consistency = ALL", "cassandra.schema.create = keyspace",
			}, "", ""},
		{"the cluster that is written to", c + `write_cluster { name: w, start_time: "2001-07-04T12:08-0700" }`, nil, "", ""},
		{"HTTPS", "kairosdb.jetty.ssl.port: 443", nil, "server.tls.cert_file", ""},
		{"filters", "kairosdb.filter.prefix: [a]", nil, "drop them at the sender", ""},
		{"health", "kairosdb.health.healthyResponseCode: 200", nil, "204", ""},
		{"the query in answers", "kairosdb.queries.return_query_in_response: true", nil, "do not repeat the query", ""},
		{"no query in answers", "kairosdb.queries.return_query_in_response: False", nil, "", ""},
		{"a plug-in", "kairosdb.service.kafka: com.example.KafkaModule", nil, "loads no Java classes", ""},
		{"a plug-in that is off", "kairosdb.service.kafka: \"<disabled>\"", nil, "", ""},
		{"KairosDB's services", "kairosdb.service.http: org.kairosdb.core.http.WebServletModule\nkairosdb.service.rollups: org.kairosdb.rollup.RollUpModule", nil, "", ""},
		{"HTTP of another's", "kairosdb.service.http: com.example.Web", nil, "loads no Java classes", ""},
		{"KairosDB's types", "kairosdb.datapoints.factory.complex: org.kairosdb.core.datapoints.ComplexDataPointFactory", nil, "", ""},
		{"another's long", "kairosdb.datapoints.factory.long: com.example.Long", nil, "loads no Java classes", ""},
		{"a type of another's", "kairosdb.datapoints.factory.histogram: com.example.Histogram", nil, "does not know this type", ""},
		{"another store", "kairosdb.service.datastore: net.opentsdb.kairosdb.HBaseModule", nil, "neither H2 nor", ""},
		{"replication of old", c + "replication_factor: 2", []string{"cassandra.schema.create = keyspace", "cassandra.schema.replication = {'class': 'SimpleStrategy', 'replication_factor': '2'}"}, "", ""},
		{"replication of nonsense", c + "replication_factor: two", nil, "", "whole number"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := Parse("x.conf", []byte(test.text), nil)
			if err != nil {
				t.Fatal(err)
			}
			m := f.Map()
			if diff := cmp.Diff(test.want, settings(m)); diff != "" {
				t.Error(diff)
			}
			text := ""
			for _, e := range m.Faults {
				text += e.Error()
			}
			if !strings.Contains(text, test.fault) || (test.fault == "") != (text == "") {
				t.Errorf("errors %q, want %q", text, test.fault)
			}
			text = ""
			for _, w := range m.Warnings {
				text += w.Why
			}
			if !strings.Contains(text, test.warned) || (test.warned == "") != (text == "") {
				t.Errorf("warnings %q, want %q", text, test.warned)
			}
			if m.Unknown != nil {
				t.Errorf("unknown: %v", m.Unknown)
			}
		})
	}
}

func TestHOCON(t *testing.T) {
	getenv := func(name string) (string, bool) { return "from outside", name == "HOME_OF_CASSANDRA" }
	for _, test := range []struct{ text, want string }{
		{"kairosdb { a = b }", "a=b"},
		{"kairosdb.a: b # c\nkairosdb.d: e // f", "a=b d=e"},
		{`{"kairosdb": {"a": "b", "c": 1.50, "d": true, "e": null}}`, "a=b c=1.50 d=true"},
		{"kairosdb.a=http://x#y\n", "a=http:"}, // as in HOCON
		{`kairosdb.a="http://x#y"`, "a=http://x#y"},
		{"kairosdb {\n#http://a/b.html#c\nx: \"ONE\"\n\n}", "x=ONE"},
		{`kairosdb { a: { b: 1 }, a { c: 2 }, a.d: 3 }`, "a.b=1 a.c=2 a.d=3"},
		{`kairosdb { a { b: 1 }, a: 2 }`, "a=2"},
		{"kairosdb.a: [\n1,\n2 3\n\"4\"]", "a=[1|2 3|4]"},
		{`kairosdb.a: [1], kairosdb.a += 2`, "a=[1|2]"},
		{`kairosdb.a: [{ b: 1 }, { b: 2 }]`, "a[0].b=1 a[1].b=2"},
		{`kairosdb."a.b" . "c d" : e f  g `, "a.b.c d=e f  g"},
		{`kairosdb.a: "x\n\"y\u00fc"`, "a=x\n\"yü"},
		{"kairosdb.a: \"\"\"two\nlines \"quoted\\\"\"\"", "a=two\nlines \"quoted\\"},
		{"kairosdb.a: ${b}c ${kairosdb.d}\nkairosdb.d: e\nb: f", "a=fc e d=e"},
		{"kairosdb.a: ${?nothing}\nkairosdb.b: 1", "b=1"},
		{"kairosdb.a: ${HOME_OF_CASSANDRA}", "a=from outside"},
		{"kairosdb.a: ${kairosdb.b}\nkairosdb.b { c: 1 }", "a.c=1 b.c=1"},
		{"\ufeffkairosdb.a\t=\t1\r\n", "a=1"},
		{"kairosdb.a = <disabled>\nkairosdb.b=", "error line 2: a value is missing"},
		{"kairosdb.a { b: 1", "error line 1: a { is not closed"},
		{"kairosdb.a: [1", "error line 1: a [ is not closed"},
		{"}", "error line 1: a } without {"},
		{"{}\nx: 1", `error line 2: there is text after the end of the configuration, from column 1 on`},
		{"\n\nkairosdb.a: \"b\n\"", "error line 3: a quote is not closed"},
		{"include \"x\"", "error line 1: include is not read here; put the text of that file into this one"},
		{"a b c", "error line 1: a b c: want : or = or {"},
		{"kairosdb.a: ${b}", "error line 1: ${b}: neither in the file nor in the environment"},
		{"kairosdb.a: ${kairosdb.b}\nkairosdb.b: ${kairosdb.a}", "error substitutions that are circular, or nested too deep"},
		{"kairosdb.a: ${b} { c: 1 }\nb { d: 2 }", "error line 1: texts or ${} beside an object or a list are not read here; write out what they stand for"},
		{strings.Repeat("a{", 100), "error line 1: nested deeper than 50"},
		{"kairosdb..a: 1", "error line 1: a key without a name"},
	} {
		f, err := Parse("x.conf", []byte(test.text), getenv)
		got := render(f, err)
		if got != test.want {
			t.Errorf("%q\ngot  %s\nwant %s", test.text, got, test.want)
		}
	}
}

func TestProperties(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"# a\n! b\n\nkairosdb.a=1\n kairosdb.b : 2 \n", "a=1 b=2"},
		{"kairosdb.a=1,\\\n  2", "a=1,2"},
		{`kairosdb.a=C\:\\x`, `a=C:\x`},
		{"kairosdb.a=b=c", "a=b=c"},
		{"kairosdb.a=", "a="},
		{"nonsense", `error line 1: no = or : in it; want key=value`},
		{"kairosdb.a=1\n=2", `error line 2: no = or : in it; want key=value`},
	} {
		f, err := Parse("x.properties", []byte(test.text), nil)
		if got := render(f, err); got != test.want {
			t.Errorf("%q\ngot  %s\nwant %s", test.text, got, test.want)
		}
	}
}

func render(f *File, err error) string {
	if err != nil {
		return "error " + err.Error()
	}
	var words []string
	for _, key := range f.keys() {
		if list, ok := f.lists[key]; ok {
			words = append(words, key+"=["+strings.Join(list, "|")+"]")
		} else {
			words = append(words, key+"="+f.values[key])
		}
	}
	return strings.Join(words, " ")
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"kairosdb-1.3.0.conf", "kairosdb-1.2.properties"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(name, data)
	}
	f.Add("a.conf", []byte("kairosdb { a: [ {b: ${c} }, \"\"\"d\"\"\" ], e += f }"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		file, err := Parse(name, data, func(name string) (string, bool) { return "", name == "" })
		if err != nil {
			return
		}
		m := file.Map()
		for _, s := range m.Settings {
			if s.Key == "" || !strings.HasPrefix(s.From, root) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// Messages about a file that cannot be parsed do not quote it: it contains passwords.
func TestFaultsTellNoSecrets(t *testing.T) {
	for name, text := range map[string]string{
		"a.properties": "kairosdb.datastore.cassandra.auth.password s3cret",
		"b.properties": "s3cret",
		"c.properties": "kairosdb.a \\\n s3cret",
		"d.conf":       `kairosdb.auth.password: [{} s3cret]`,
		"e.conf":       `kairosdb.auth.password: "s3cret\q"`,
		"f.conf":       `kairosdb { a: {} s3cret }`,
		"g.conf":       "{}\ns3cret",
		"h.conf":       `kairosdb.auth.password: """s3cret`,
		"i.conf":       `kairosdb.auth.password: "s3cret`,
	} {
		_, err := Parse(name, []byte(text), nil)
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse("a.properties", []byte("kairosdb.x.password s3cret"), nil); !strings.Contains(err.Error(), "kairosdb.x.password") {
		t.Error(err)
	}
}

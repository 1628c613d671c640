package carbonconf

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/foreign"
)

// shipped is the keys and values of the file that Debian ships with carbon.
const shipped = `# comment
[cache]
STORAGE_DIR    = /var/lib/graphite/
LOCAL_DATA_DIR = /var/lib/graphite/whisper/
CONF_DIR       = /etc/carbon/
LOG_DIR        = /var/log/carbon/
PID_DIR        = /var/run/
DATABASE = whisper
ENABLE_LOGROTATION = False
USER = _graphite
MAX_CACHE_SIZE = inf
MAX_UPDATES_PER_SECOND = 500
MAX_CREATES_PER_MINUTE = 50
MIN_TIMESTAMP_RESOLUTION = 1
LINE_RECEIVER_INTERFACE = 0.0.0.0
LINE_RECEIVER_PORT = 2003
ENABLE_UDP_LISTENER = False
UDP_RECEIVER_INTERFACE = 0.0.0.0
UDP_RECEIVER_PORT = 2003
PICKLE_RECEIVER_INTERFACE = 0.0.0.0
PICKLE_RECEIVER_PORT = 2004
PICKLE_RECEIVER_MAX_LENGTH = 1048576
USE_INSECURE_UNPICKLER = False
CACHE_QUERY_INTERFACE = 0.0.0.0
CACHE_QUERY_PORT = 7002
USE_FLOW_CONTROL = True
LOG_UPDATES = False
CACHE_WRITE_STRATEGY = sorted
WHISPER_AUTOFLUSH = False
WHISPER_FALLOCATE_CREATE = True
[relay]
LINE_RECEIVER_PORT = 2013
[aggregator]
LINE_RECEIVER_PORT = 2023
`

// parse parses a file in the directory of the storage rules.
func parse(t *testing.T, text string) foreign.Mapping {
	t.Helper()
	m := Parse("/conf/carbon.conf", text, func(string) bool { return true })
	if len(m.Faults) > 0 {
		t.Fatal(m.Faults)
	}
	return m
}

// settings returns the settings of a file as lines.
func settings(m foreign.Mapping) string {
	var b strings.Builder
	for _, s := range m.Settings {
		b.WriteString(s.Key + "=" + s.Value + "\n")
	}
	return b.String()
}

func TestShippedFile(t *testing.T) {
	m := parse(t, shipped)
	want := `carbon.max_pickle=1048576
graphite.storage_aggregation=/etc/carbon/storage-aggregation.conf
graphite.storage_schemas=/etc/carbon/storage-schemas.conf
server.carbon_addr=0.0.0.0:2003
server.carbon_udp_addr=
server.pickle_addr=0.0.0.0:2004
`
	if diff := cmp.Diff(want, settings(m)); diff != "" {
		t.Error(diff)
	}
	if len(m.Warnings) > 0 || len(m.Unknown) > 0 {
		t.Errorf("warnings %v, unknown %v; want none of the shipped file", m.Warnings, m.Unknown)
	}
	notes := map[string]string{}
	for _, n := range m.Notes {
		for _, key := range n.Keys {
			notes[key] = n.Why
		}
	}
	for _, key := range []string{"LOCAL_DATA_DIR", "LOG_UPDATES", "MAX_CACHE_SIZE", "CACHE_QUERY_PORT", "MIN_TIMESTAMP_RESOLUTION", "[relay]", "[aggregator]"} {
		if notes[key] == "" {
			t.Errorf("%s sets nothing, and no reason is given", key)
		}
	}
}

func TestSettings(t *testing.T) {
	const rules = "graphite.storage_aggregation=/conf/storage-aggregation.conf\ngraphite.storage_schemas=/conf/storage-schemas.conf\n"
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", rules},
		{"a port", "LINE_RECEIVER_PORT = 2103", rules + "server.carbon_addr=0.0.0.0:2103\n"},
		{"an address", "pickle_receiver_interface = ::1", rules + "server.pickle_addr=[::1]:2004\n"},
		{"turned off", "LINE_RECEIVER_PORT = 0\nPICKLE_RECEIVER_PORT: 0", rules + "server.carbon_addr=\nserver.pickle_addr=\n"},
		{"datagrams", "ENABLE_UDP_LISTENER = yes\nUDP_RECEIVER_INTERFACE = 10.0.0.1", rules + "server.carbon_udp_addr=10.0.0.1:2003\n"},
		{"datagrams that are not turned on", "UDP_RECEIVER_PORT = 2003", rules},
		{"limits", "MAX_RECEIVER_CONNECTIONS = 77\nPICKLE_RECEIVER_MAX_LENGTH = 2097152", "carbon.max_connections=77\ncarbon.max_pickle=2097152\n" + rules},
		{"a limit of infinity", "MAX_RECEIVER_CONNECTIONS = inf", rules},
		{"another directory", "CONF_DIR = /etc/graphite", strings.ReplaceAll(rules, "/conf/", "/etc/graphite/")},
	} {
		if diff := cmp.Diff(test.want, settings(parse(t, "[cache]\n"+test.text+"\n[relay]\nLINE_RECEIVER_PORT = 1\n"))); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, test := range []struct{ text, key string }{
		{"[cache]\nUSE_WHITELIST = True", "USE_WHITELIST"},
		{"[cache]\nENABLE_AMQP = true", "ENABLE_AMQP"},
		{"[cache]\nENABLE_MANHOLE = 1", "ENABLE_MANHOLE"},
		{"[cache]\nPROTOBUF_RECEIVER_PORT = 2005", "PROTOBUF_RECEIVER_PORT"},
		{"[cache]\nDATABASE = ceres", "DATABASE"},
		{"[cache]\nMETRIC_CLIENT_IDLE_TIMEOUT = 60", "METRIC_CLIENT_IDLE_TIMEOUT"},
		{"[cache]\n[cache:b]\nLINE_RECEIVER_PORT = 2103", "[cache:b]"},
		{"[relay]\nLINE_RECEIVER_PORT = 2103", "[cache]"},
	} {
		if m := parse(t, test.text); len(m.Warnings) != 1 || !slices.Equal(m.Warnings[0].Keys, []string{test.key}) {
			t.Errorf("%q: warnings %v, want one about %s", test.text, m.Warnings, test.key)
		}
		off := strings.NewReplacer("True", "False", "true", "false", "= 1", "= 0", "2005", "0", "ceres", "whisper", "60", "None").Replace(test.text)
		if m := parse(t, off); !strings.HasPrefix(test.key, "[") && len(m.Warnings) > 0 {
			t.Errorf("%q: warnings %v, want none", off, m.Warnings)
		}
	}
	m := Parse("/conf/carbon.conf", "[cache]\n", func(string) bool { return false })
	if len(m.Faults) > 0 || len(m.Settings) > 0 || len(m.Warnings) != 1 || !strings.Contains(m.Warnings[0].Why, "/conf/storage-schemas.conf") {
		t.Errorf("without rules: %v", m)
	}
	m = parse(t, "[cache]\nNO_SUCH_KEY = 1\n[other]\n")
	if diff := cmp.Diff([]string{"NO_SUCH_KEY", "[other]"}, m.Unknown); diff != "" {
		t.Error(diff)
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"x":                                        "line 1",
		"[cache]\nLINE_RECEIVER_PORT = 70000":      `LINE_RECEIVER_PORT: "70000": want a port`,
		"[cache]\nUDP_RECEIVER_PORT = u":           `UDP_RECEIVER_PORT: "u": want a port`,
		"[cache]\nENABLE_UDP_LISTENER = maybe":     `ENABLE_UDP_LISTENER: "maybe": want true or false`,
		"[cache]\nPICKLE_RECEIVER_MAX_LENGTH = 0":  `PICKLE_RECEIVER_MAX_LENGTH: "0": want a whole number from 1 on`,
		"[cache]\nMAX_RECEIVER_CONNECTIONS = some": `MAX_RECEIVER_CONNECTIONS: "some"`,
	} {
		if errs := Parse("carbon.conf", text, func(string) bool { return true }).Faults; len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%q: %v, want %s", text, errs, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(shipped)
	f.Add("[cache]\nLINE_RECEIVER_PORT = 0\n  2003\nMAX_RECEIVER_CONNECTIONS = inf")
	f.Fuzz(func(t *testing.T, text string) {
		m := Parse("/conf/carbon.conf", text, func(string) bool { return true })
		if len(m.Faults) > 0 {
			return
		}
		for _, s := range m.Settings {
			if !slices.Contains(mapped, s.Key) {
				t.Errorf("%s is set, and a test of package config does not load it", s.Key)
			}
		}
	})
}

// mapped are the settings that a file may set.
var mapped = []string{
	"carbon.max_connections", "carbon.max_pickle", "graphite.storage_aggregation", "graphite.storage_schemas",
	"server.carbon_addr", "server.carbon_udp_addr", "server.pickle_addr",
}

package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const carbonFile = "[cache]\nLINE_RECEIVER_PORT = 2103\nPICKLE_RECEIVER_PORT = 2104\nMAX_RECEIVER_CONNECTIONS = 77\n" +
	"USE_WHITELIST = True\nMAX_CACHE_SIZE = inf\nNONSENSE = 1\n"

func loadCarbon(t *testing.T, carbon, yaml string, environment []string, args ...string) (*Loaded, error) {
	t.Helper()
	return Load(Sources{
		Args: args, Environment: append(environment, "VARVE_CARBON_CONF=/etc/carbon/carbon.conf", "VARVE_CONFIG=/etc/varve.yaml"),
		ReadFile: readFrom(map[string]string{
			"/etc/carbon/carbon.conf": carbon, "/etc/varve.yaml": yaml,
			"/etc/carbon/storage-schemas.conf":   "[all]\npattern = .*\nretentions = 10s:1d\n",
			"/etc/graphite/storage-schemas.conf": "", "/etc/graphite/storage-aggregation.conf": "",
		}),
	})
}

func TestCarbonLayer(t *testing.T) {
	got, err := loadCarbon(t, carbonFile, "server: {pickle_addr: ':1'}", []string{"VARVE_CARBON_MAX_CONNECTIONS=78"}, "--server-http-addr", ":2")
	if err != nil {
		t.Fatal(err)
	}
	c := got.Config
	have := []any{c.Server.HTTPAddr, c.Server.CarbonAddr, c.Server.PickleAddr, c.Carbon.MaxConnections, c.Graphite.StorageSchemas, c.Graphite.StorageAggregation}
	want := []any{":2", "0.0.0.0:2103", ":1", 78, "/etc/carbon/storage-schemas.conf", ""}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	var b strings.Builder
	if err := got.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"carbon_addr: 0.0.0.0:2103  # set by file carbon.conf: LINE_RECEIVER_PORT, default 127.0.0.1:2003",
		"#     USE_WHITELIST\n", "#     MAX_CACHE_SIZE\n",
		"#   Varve does not know these keys and ignores them:\n#     NONSENSE\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("%q is not in\n%s", line, b.String())
		}
	}
	if _, err := loadCarbon(t, "[cache]\n", b.String(), nil); err != nil {
		t.Errorf("what varve config prints is no configuration: %v", err)
	}
}

func TestCarbonLayerFaults(t *testing.T) {
	for _, test := range []struct {
		name, carbon, want string
		args               []string
	}{
		{"no sections", "x", "file carbon.conf: line 1", nil},
		{"a port that is none", "[cache]\nLINE_RECEIVER_PORT = x", `file carbon.conf: LINE_RECEIVER_PORT: "x": want a port`, nil},
		{"a limit that cannot be", "[cache]\nPICKLE_RECEIVER_MAX_LENGTH = 1", "file carbon.conf: PICKLE_RECEIVER_MAX_LENGTH: carbon.max_pickle", nil},
		{"no such file", "", "read carbon's configuration named by flag --carbon-conf: ", []string{"--carbon-conf", "gone"}},
		{"a flag with a slip", "[cache]\n", "flag --carbon-cnf: unknown; did you mean --carbon-conf?", []string{"--carbon-cnf", "gone"}},
	} {
		_, err := loadCarbon(t, test.carbon, "", nil, test.args...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

// TestCarbonMapsToSettings loads a file with every key that is mapped: there is such a setting, and
// it takes the value.
func TestCarbonMapsToSettings(t *testing.T) {
	const every = "[cache]\nLINE_RECEIVER_INTERFACE = ::1\nLINE_RECEIVER_PORT = 2103\nPICKLE_RECEIVER_INTERFACE = ::1\nPICKLE_RECEIVER_PORT = 2104\n" +
		"ENABLE_UDP_LISTENER = True\nUDP_RECEIVER_INTERFACE = ::1\nUDP_RECEIVER_PORT = 2105\n" +
		"PICKLE_RECEIVER_MAX_LENGTH = 65536\nMAX_RECEIVER_CONNECTIONS = 77\nCONF_DIR = /etc/graphite\n"
	got, err := loadCarbon(t, every, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range got.Set() {
		keys = append(keys, s.Key)
	}
	slices.Sort(keys)
	want := []string{"carbon.max_connections", "carbon.max_pickle", "graphite.storage_aggregation", "graphite.storage_schemas",
		"server.carbon_addr", "server.carbon_udp_addr", "server.pickle_addr"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
}

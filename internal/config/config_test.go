package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"varve/internal/units"
)

var update = flag.Bool("update", false, "rewrite golden files")

// sample has a setting of each type.
type sample struct {
	Dir   string  `yaml:"dir" doc:"Where."`
	Cache caching `yaml:"cache" doc:"Cache."`
}

type caching struct {
	Size  units.Bytes   `yaml:"size" doc:"How big."`
	Age   time.Duration `yaml:"max_age" doc:"How old."`
	On    bool          `yaml:"on" doc:"Whether."`
	Ways  int           `yaml:"ways" doc:"How many."`
	Small uint8         `yaml:"small" doc:"A small number."`
	Ratio float64       `yaml:"ratio" doc:"A share."`
	Level slog.Level    `yaml:"level" doc:"How loud."`
	Deep  deep          `yaml:"deep" doc:"further down"`
	Fixed fixed         `yaml:"fixed" doc:"Constants only: no page and no file shows this section."`
}

type fixed struct {
	Rounds int `tune:"rounds"`
}

type deep struct {
	Ways int `yaml:"ways" doc:"how many, further down"`
}

func (d deep) Validate() error {
	if d.Ways < 0 {
		return errors.New("ways: want 0 or more, further down")
	}
	return nil
}

func (c caching) Validate() error {
	var errs []error
	if c.Ways < 0 {
		errs = append(errs, errors.New("ways: want 0 or more"))
	}
	if c.Ratio > 1 {
		errs = append(errs, errors.New("cache.ratio: want at most 1"))
	}
	if err := c.Deep.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("deep: %w", err))
	}
	return errors.Join(errs...)
}

func defaultSample() sample {
	return sample{Dir: "here", Cache: caching{Size: units.MiB, Age: time.Hour, Ways: 4}}
}

// readFrom reads files that are not on a disk, by their paths.
func readFrom(files map[string]string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		text, ok := files[path]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	}
}

// sources makes Sources of a file's text, of NAME=value words and of flags.
func sources(file, environment, args string) Sources {
	src := Sources{
		Environment: strings.Fields(environment),
		Args:        strings.Fields(args),
		ReadFile:    readFrom(map[string]string{"v.yaml": file}),
	}
	if file != "" {
		src.Args = append([]string{"--config", "v.yaml"}, src.Args...)
	}
	return src
}

func TestLayers(t *testing.T) {
	file := "dir: file\ncache:\n  size: 2MiB\n  max_age: 2d\n  on: true\n  ways: 2\n"
	got := defaultSample()
	layers, err := load(&got, sources(file,
		"PATH=/bin VARVE_CACHE_SIZE=3MiB VARVE_CACHE_WAYS=3 VARVE_CACHE_RATIO=0.5 VARVE_CACHE_LEVEL=warn",
		"--cache-ways=-0 -cache-small 200 --cache-on=false --cache-deep-ways 7"))
	if err != nil {
		t.Fatal(err)
	}
	want := sample{Dir: "file", Cache: caching{
		Size: 3 * units.MiB, Age: 48 * time.Hour, Ratio: 0.5, Small: 200, Level: slog.LevelWarn}}
	want.Cache.Deep.Ways = 7
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	wantOrigins := map[string]string{
		"dir":             "file v.yaml:1",
		"cache.size":      "environment VARVE_CACHE_SIZE",
		"cache.max_age":   "file v.yaml:4",
		"cache.on":        "flag --cache-on",
		"cache.ways":      "flag --cache-ways",
		"cache.small":     "flag --cache-small",
		"cache.ratio":     "environment VARVE_CACHE_RATIO",
		"cache.level":     "environment VARVE_CACHE_LEVEL",
		"cache.deep.ways": "flag --cache-deep-ways",
	}
	if d := cmp.Diff(wantOrigins, layers.origins); d != "" {
		t.Error(d)
	}
}

func TestFlagForms(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--dir x", "x"},
		{"-dir x", "x"},
		{"--dir=x", "x"},
		{"--dir=", ""},
		{"--dir=a=b", "a=b"},
		{"--dir --x", "--x"},
		{"--dir x --dir y", "y"},
		{"--cache-on --dir x", "x"},
	} {
		got := defaultSample()
		if _, err := load(&got, sources("", "", tc.args)); err != nil || got.Dir != tc.want {
			t.Errorf("%s: dir %q, error %v; want %q", tc.args, got.Dir, err, tc.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct{ name, file, environment, args, want string }{
		{"unknown key", "dri: x", "", "",
			"file v.yaml:1: unknown key dri; did you mean dir?"},
		{"unknown key in a section", "cache:\n  # how long\n  max_aeg: 1h", "", "",
			"file v.yaml:3: unknown key cache.max_aeg; did you mean cache.max_age?"},
		{"right key, no section", "size: 1MiB", "", "",
			"file v.yaml:1: unknown key size; did you mean cache.size?"},
		{"right key, wrong section", "store:\n  size: 1MiB", "", "",
			"file v.yaml:1: unknown key store; varve config lists what there is"},
		{"unknown section", "cahce:\n  size: 1MiB", "", "",
			"file v.yaml:1: unknown key cahce; did you mean cache?"},
		{"nothing like it", "quorum: 1", "", "",
			"file v.yaml:1: unknown key quorum; varve config lists what there is"},
		{"removed", "server: {max_header: 1MiB}", "VARVE_SERVER_MAX_HEADER=1MiB", "--server-max-header=1MiB",
			"file v.yaml:1: unknown key server; varve config lists what there is\n" +
				"environment: unknown variable VARVE_SERVER_MAX_HEADER; it was removed: " + removed["server.max_header"] + "\n" +
				"flag --server-max-header: unknown; it was removed: " + removed["server.max_header"]},
		{"merge key", "<<: {dir: x}", "", "",
			"file v.yaml:1: unknown key <<; varve config lists what there is"},
		{"twice", "dir: x\ndir: y", "", "",
			"file v.yaml:2: dir: already given on line 1"},
		{"no value", "dir:", "", "",
			"file v.yaml:1: dir: has no value; remove the line to use the default"},
		{"list", "dir: [a]", "", "",
			"file v.yaml:1: dir: want a single value"},
		{"value for a section", "cache: 1", "", "",
			"file v.yaml:1: cache: want keys and values"},
		{"a list as file", "- dir", "", "",
			"file v.yaml:1: the file: want keys and values"},
		{"two documents", "dir: x\n---\ndir: y", "", "",
			"file v.yaml: more than one YAML document"},
		{"not YAML", "dir: x\n  cache: [", "", "",
			"file v.yaml:2: mapping values are not allowed in this context"},
		{"no unit", "cache: {max_age: 10}", "", "",
			`file v.yaml:1: cache.max_age: time "10": want a number with a unit, such as 100ms, 10s, 5m, 24h or 30d`},
		{"size", "", "VARVE_CACHE_SIZE=1TB", "",
			`environment VARVE_CACHE_SIZE: cache.size: size "1TB": want a whole number, or one with KiB, MiB, GiB, kB, MB or GB`},
		{"unknown variable", "", "VARVE_CACHE_SIZ=1", "",
			"environment: unknown variable VARVE_CACHE_SIZ; did you mean VARVE_CACHE_SIZE?"},
		{"unknown flag", "", "", "--cache-weighs=3",
			"flag --cache-weighs: unknown; did you mean --cache-ways?"},
		{"unknown flag and its value", "", "", "--cache-weighs 3 --dir x",
			"flag --cache-weighs: unknown; did you mean --cache-ways?"},
		{"flag without value", "", "", "--dir",
			"flag --dir: needs a value"},
		{"argument", "", "", "here",
			`unexpected argument "here"; only flags are allowed`},
		{"value of a boolean as a word", "", "", "--cache-on maybe",
			`flag --cache-on: unexpected value "maybe"; write --cache-on=true or --cache-on=false`},
		{"word after a boolean with its value", "", "", "--cache-on=true maybe",
			`unexpected argument "maybe"; only flags are allowed`},
		{"too big", "", "", "--cache-small=256",
			`flag --cache-small: cache.small: "256": want a whole number >= 0 of at most 8 bits`},
		{"validation names who set it", "cache: {ways: -1}", "", "--cache-ratio=2",
			"file v.yaml:1: cache.ways: want 0 or more\nflag --cache-ratio: cache.ratio: want at most 1"},
		{"a section inside a section speaks once", "", "VARVE_CACHE_DEEP_WAYS=-1", "",
			"environment VARVE_CACHE_DEEP_WAYS: cache.deep.ways: want 0 or more, further down"},
		{"all at once", "a: 1", "VARVE_DIRR=x", "--dirt=x y",
			"unexpected argument \"y\"; only flags are allowed\n" +
				"file v.yaml:1: unknown key a; varve config lists what there is\n" +
				"environment: unknown variable VARVE_DIRR; did you mean VARVE_DIR?\n" +
				"flag --dirt: unknown; did you mean --dir?"},
		{"no such file", "", "VARVE_CONFIG=gone.yaml", "",
			"read the configuration file named by environment VARVE_CONFIG: file does not exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := defaultSample()
			_, err := load(&got, sources(tc.file, tc.environment, tc.args))
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestKubernetesVariablesArePassedOver(t *testing.T) {
	got := defaultSample()
	_, err := load(&got, sources("", `VARVE_SERVICE_HOST=10.0.0.1 VARVE_SERVICE_PORT=80 VARVE_SERVICE_PORT_HTTP=80
		VARVE_PORT=tcp://10.0.0.1:80 VARVE_PORT_80_TCP=tcp://10.0.0.1:80 VARVE_PORT_80_TCP_ADDR=10.0.0.1`, ""))
	if err != nil {
		t.Error(err)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "-h", "--data-dir x -help"} {
		if _, err := Load(sources("", "", args)); !errors.Is(err, ErrHelp) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestShortFlags(t *testing.T) {
	l, err := Load(sources("", "", "--data-dir d --http-addr h:1 --telnet-addr t:2"))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.DataDir, want.Server.HTTPAddr, want.Server.TelnetAddr = "d", "h:1", "t:2"
	if d := cmp.Diff(want, l.Config); d != "" {
		t.Error(d)
	}
}

// The names of all settings must be distinct in each layer, and each default
// must pass its own validation and survive being written and read.
func TestDefaults(t *testing.T) {
	c := Default()
	names := map[string]string{}
	for _, f := range settings(&c) {
		for _, name := range []string{f.environment(), "--" + f.flag()} {
			if other := names[name]; other != "" {
				t.Errorf("%s and %s are both %s", other, f.key, name)
			}
			names[name] = f.key
		}
		if slices.Contains(fileFlags, f.flag()) || kubernetesService.MatchString(f.environment()) {
			t.Errorf("%s cannot be set from the environment", f.key)
		}
	}
	for _, s := range shortFlags {
		if !slicesContainKey(settings(&c), s.key) {
			t.Errorf("--%s stands for %s, which is no setting", s.flag, s.key)
		}
	}
	l, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c, l.Config); d != "" {
		t.Error(d)
	}
}

func slicesContainKey(list []field, key string) bool {
	for _, f := range list {
		if f.key == key {
			return true
		}
	}
	return false
}

func TestWriteYAML(t *testing.T) {
	root := defaultSample()
	layers, err := load(&root, sources("cache:\n  max_age: 90m", "VARVE_DIR=a:b", "--cache-on"))
	if err != nil {
		t.Fatal(err)
	}
	standard := defaultSample()
	var b bytes.Buffer
	if err := writeYAML(&b, &root, &standard, layers.origins); err != nil {
		t.Fatal(err)
	}
	const want = `# Where.
dir: a:b  # set by environment VARVE_DIR, default here

# Cache.
cache:
  # How big.
  size: 1MiB
  # How old.
  max_age: 1h30m  # set by file v.yaml:2, default 1h
  # Whether.
  on: true  # set by flag --cache-on, default false
  # How many.
  ways: 4
  # A small number.
  small: 0
  # A share.
  ratio: 0
  # How loud.
  level: INFO

  # Further down.
  deep:
    # How many, further down.
    ways: 0
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

func TestUnusableStructPanics(t *testing.T) {
	for name, root := range map[string]any{
		"no doc": &struct {
			A int `yaml:"a"`
		}{},
		"no yaml": &struct {
			A int `doc:"A."`
		}{},
		"no text": &struct {
			A chan int `yaml:"a" doc:"A."`
		}{},
		"no field": &struct {
			A []int `yaml:"a" doc:"A."`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			fields(root)
		}()
	}
}

func TestFileTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(path, bytes.Repeat([]byte("#"), maxFileBytes+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Sources{Args: []string{"--config", path}}); err == nil || !strings.Contains(err.Error(), "not a configuration file") {
		t.Error(err)
	}
}

// FuzzFile: no file makes loading panic; one that loads is written as a file
// that loads to the same configuration.
func FuzzFile(f *testing.F) {
	var b bytes.Buffer
	if err := (&Loaded{Config: Default()}).WriteYAML(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	for _, text := range []string{
		"", "data_dir: x", "data_dir: \"#\\n\"", "server: {http_addr: '[::1]:80'}", "log:\n  level: WARN+1\n",
		"server: &a\n  idle_timeout: 1h2m3.5s\nlog: *a", "a: &a [*a]", "? [x]\n: y", "data_dir: !!binary aGk=", "data_dir: |\n  a\n  b\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(data []byte) (*Loaded, error) {
			return Load(Sources{Args: []string{"--config=f"}, ReadFile: func(string) ([]byte, error) { return data, nil }})
		}
		first, err := read(data)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := first.WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		second, err := read(out.Bytes())
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.Bytes())
		}
		if !reflect.DeepEqual(first.Config, second.Config) {
			t.Fatalf("%s\n%s", cmp.Diff(first.Config, second.Config), out.Bytes())
		}
	})
}

// A list is a sequence in a file, separated by commas elsewhere, and what is in
// an embedded struct has the keys of the one around it.
func TestListsAndEmbeddedStructs(t *testing.T) {
	type Inner struct {
		Hosts []string `yaml:"hosts" doc:"Some names."`
	}
	type listed struct {
		Cluster struct {
			Inner
			Name string `yaml:"name" doc:"A name."`
		} `yaml:"cluster" doc:"A cluster."`
	}
	for _, tc := range []struct {
		file, environment, args string
		want                    []string
	}{
		{"cluster:\n  hosts: [a, 'b,c']\n  name: x", "", "", []string{"a", "b,c"}},
		{"cluster:\n  hosts: a, b", "", "", []string{"a", "b"}},
		{"cluster:\n  hosts: []", "", "", nil},
		{"", "VARVE_CLUSTER_HOSTS=a,b", "", []string{"a", "b"}},
		{"", "", "--cluster-hosts a,b,", []string{"a", "b"}},
		{"", "", "--cluster-hosts=", nil},
	} {
		got := listed{}
		got.Cluster.Hosts = []string{"default"}
		layers, err := load(&got, sources(tc.file, tc.environment, tc.args))
		if err != nil {
			t.Fatalf("%+v: %v", tc, err)
		}
		if d := cmp.Diff(tc.want, got.Cluster.Hosts); d != "" {
			t.Errorf("%+v: %s", tc, d)
		}
		var b strings.Builder
		if err := writeYAML(&b, &got, &listed{}, layers.origins); err != nil {
			t.Fatal(err)
		}
		again := listed{}
		if _, err := load(&again, sources(b.String(), "", "")); err != nil || strings.Join(again.Cluster.Hosts, ";") != strings.Join(tc.want, ";") {
			t.Errorf("%+v: written as\n%s\nread back as %q, %v", tc, b.String(), again.Cluster.Hosts, err)
		}
	}
	for file, want := range map[string]string{
		"cluster:\n  hosts: [[a]]": "file v.yaml:2: cluster.hosts: want a list of single values",
		"cluster:\n  name: [a]":    "file v.yaml:2: cluster.name: want a single value",
	} {
		if _, err := load(&listed{}, sources(file, "", "")); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", file, err, want)
		}
	}
}

// Durations have a unit in both forms of the log.
func TestLogHasDurationsAsText(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		Log{Format: format}.Logger(&out, slog.LevelInfo).Info("done", slog.Group("it", "took", 1500*time.Millisecond))
		if !strings.Contains(out.String(), "1.5s") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}

func TestChanged(t *testing.T) {
	running, next := Default(), Default()
	next.Log.Level, next.Server.AllowedOrigins = slog.LevelError, []string{"*"}
	changed := Changed(&running, &next)
	if len(changed) != 2 || changed["log.level"] == nil || changed["server.allowed_origins"] == nil {
		t.Errorf("%v", changed)
	}
	changed["log.level"]()
	if running.Log.Level != slog.LevelError || running.Server.AllowedOrigins != nil {
		t.Errorf("%v", running)
	}
}

// A setting that was removed is an error that says why, and the value of the constant
// in its place. Each constant was a setting, or the test says why it never was one.
func TestRemoved(t *testing.T) {
	root := Default()
	l := newLayers(&root)
	for key := range removed {
		if _, known := l.byKey[key]; known {
			t.Errorf("%s is a setting", key)
		}
	}
	for key := range l.constants {
		if removed[key] == "" {
			t.Errorf("nothing says why %s is no setting", key)
		}
	}
	for key, why := range removed {
		want := why
		if value := l.standard[key]; value != "" {
			want = "it was removed and is always " + value + ": " + why
		}
		for _, src := range inEachLayer(key) {
			if _, err := Load(src); err == nil || !strings.Contains(err.Error()+"\n", want+"\n") {
				t.Errorf("%s: %v, want ... %s", key, err, want)
			}
		}
	}
	const want = "file v.yaml:1: unknown key embedded.merge_files; it was removed and is always 6: the store plans merges by itself"
	if _, err := Load(sources("embedded: {merge_files: 3}", "", "")); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// inEachLayer sets a key wherever it could be set.
func inEachLayer(key string) []Sources {
	names := strings.Split(key, ".")
	yaml := names[len(names)-1] + ": 1"
	for _, name := range slices.Backward(names[:len(names)-1]) {
		if list, is := strings.CutSuffix(name, "[]"); is {
			yaml = list + ": [{" + yaml + "}]"
		} else {
			yaml = name + ": {" + yaml + "}"
		}
	}
	if strings.Contains(key, "[]") {
		return []Sources{sources(yaml, "", "")}
	}
	f := field{key: key}
	return []Sources{sources(yaml, "", ""), sources("", f.environment()+"=1", ""), sources("", "", "--"+f.flag()+"=1")}
}

// Settings that the reason of a removal names exist.
func TestReasonsOfRemovals(t *testing.T) {
	root := Default()
	l := newLayers(&root)
	settingKey := regexp.MustCompile(`\b[a-z]+(\.[a-z_]+)+\b`)
	for key, why := range removed {
		for _, named := range settingKey.FindAllString(why, -1) {
			if _, known := l.byKey[named]; !known {
				t.Errorf("%s: %s is no setting", key, named)
			}
		}
	}
}

// Tests change constants by a flag that no page knows.
func TestTune(t *testing.T) {
	loaded, err := Load(Sources{Args: []string{"--tune=embedded.merge_files=3", "--tune", "embedded.log.segment_bytes=1MiB"}})
	if err != nil || loaded.Config.Embedded.MergeFiles != 3 || loaded.Config.Embedded.Log.SegmentBytes != 1<<20 ||
		!slices.Equal(loaded.Tuned(), []string{"embedded.merge_files=3", "embedded.log.segment_bytes=1MiB"}) {
		t.Errorf("%v %+v", err, loaded)
	}
	for flag, want := range map[string]string{
		"--tune=merge_files=3":            `flag --tune: unknown constant "merge_files"; want KEY=VALUE`,
		"--tune=embedded.merge_files":     "flag --tune: embedded.merge_files: ",
		"--tune=embedded.merge_files=1":   "embedded.merge_files: want at least 2, got 1",
		"--tune=server.http_addr=1.2.3.4": "unknown constant",
	} {
		if _, err := Load(Sources{Args: []string{flag}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}

// A rule names streams that there are.
func TestStreamsOfRules(t *testing.T) {
	for stream, want := range map[string]string{"https": `auth.rules: "address=127.0.0.1 role=write stream=https": stream "https": want some of http`, "telnet": "", "pprof": ""} {
		_, err := Load(Sources{Args: []string{"--auth-rules=address=127.0.0.1 role=write stream=" + stream}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", stream, err, want)
		}
	}
}

// A rule that cannot be parsed hides no fault of the others.
func TestFaultsOfAllRules(t *testing.T) {
	_, err := Load(Sources{Args: []string{"--auth-rules=cn=a role=wr,cn=b role=read stream=htp,cn=c role=read tenant=nobody"}})
	for _, want := range []string{`role "wr": want read`, `stream "htp": want some of`, `there is no tenant "nobody"`} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%v, want once %s", err, want)
		}
	}
}

// If senders must authenticate, datagrams need a rule that admits them.
func TestDatagramsNeedARule(t *testing.T) {
	args := []string{"--auth-enabled=true", "--server-carbon-udp-addr=127.0.0.1:2003"}
	if _, err := Load(Sources{Args: args}); err == nil || !strings.Contains(err.Error(), "stream=carbon_udp") {
		t.Errorf("without a rule: %v", err)
	}
	if _, err := Load(Sources{Args: append(args, "--auth-rules=address=127.0.0.1 role=write stream=carbon_udp")}); err != nil {
		t.Errorf("with a rule: %v", err)
	}
}

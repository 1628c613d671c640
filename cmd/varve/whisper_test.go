package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/internal/graphite/whisper"
)

// whisperGolden is where the original's files are, with what it answers of them.
const whisperGolden = "../../internal/graphite/whisper/testdata"

// whisperNow is the time of these files.
const whisperNow = 1_700_000_000

// tree makes a directory of files, each of which is a copy of one of the original's.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "whisper")
	for file, golden := range files {
		text := []byte(golden)
		if strings.HasSuffix(golden, ".wsp") {
			text = []byte(read(t, filepath.Join(whisperGolden, golden)))
		}
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// rules writes the configuration that the golden files of two methods were made by.
func rules(t *testing.T) (flags []string) {
	t.Helper()
	dir := t.TempDir()
	schemas, aggregation := filepath.Join(dir, "schemas"), filepath.Join(dir, "aggregation")
	for file, text := range map[string]string{
		schemas:     "[all]\npattern = .*\nretentions = 10:36,60:30,300:40\n",
		aggregation: "[max]\npattern = max\naggregationMethod = max\n[sum]\npattern = sum\naggregationMethod = sum\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--storage-schemas", schemas, "--storage-aggregation", aggregation}
}

// render returns the points of a target since a time, by their time.
func (p *process) render(target string, from int64) map[int64]float64 {
	p.t.Helper()
	status, body := p.do("GET", fmt.Sprintf("/render?format=json&noNullPoints=1&now=%d&until=%d&from=%d&target=%s", whisperNow, whisperNow, from, url.QueryEscape(target)), "")
	var answer []struct{ Datapoints [][2]float64 }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 || len(answer) != 1 {
		p.t.Fatalf("%s: %d %s", target, status, body)
	}
	points := map[int64]float64{}
	for _, d := range answer[0].Datapoints {
		points[int64(d[1])] = d[0]
	}
	return points
}

// What Whisper answers of each archive, Varve answers after an import, but for the
// buckets in which the finer archive begins.
func TestImportWhisper(t *testing.T) {
	tagged := "load;dc=a.b;host=c"
	root := tree(t, map[string]string{
		"g/average.wsp": "average.wsp", "g/max.wsp": "max.wsp", "g/sum.wsp": "sum.wsp", "g/last.txt": "no file of points",
		"_tagged/aaa/bbb/load;dc=a_DOT_b;host=c.wsp": "average.wsp",
	})
	p := start(t, t.TempDir(), rules(t)...)
	out, stderr := must(t, 0, "import", "whisper", root, "--http-addr", p.http)
	if out != "Import finished\nAll done\n" || !strings.Contains(stderr, "4 files, of which 0 without points, ") {
		t.Errorf("%q %q", out, stderr)
	}
	for _, path := range []string{root + ".state", root + ".rejected"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
	for target, golden := range map[string]string{"g.average": "average", "g.max": "max", "g.sum": "sum", tagged: "average"} {
		var want struct {
			Archives [][2]int64
			Points   [][][2]float64
		}
		if err := json.Unmarshal([]byte(read(t, filepath.Join(whisperGolden, golden+".json"))), &want); err != nil {
			t.Fatal(err)
		}
		for i, a := range want.Archives {
			got := p.render(target, whisperNow-a[0]*a[1])
			compared := 0
			for _, point := range want.Points[i] {
				at := int64(point[0])
				if at <= whisperNow-a[0]*a[1] || holdsBeginning(want.Points[:i], at, a[0]) {
					continue
				}
				compared++
				if v, ok := got[at]; !ok || math.Abs(v-point[1]) > 1e-9 {
					t.Errorf("%s, step %d, at %d: %v (%v), want %v", target, a[0], at, v, ok, point[1])
				}
			}
			if compared < 20 {
				t.Errorf("%s, step %d: %d points were compared", target, a[0], compared)
			}
		}
	}
}

// holdsBeginning reports whether a bucket holds the oldest point of a finer archive.
func holdsBeginning(finer [][][2]float64, at, step int64) bool {
	for _, points := range finer {
		if oldest := int64(points[0][0]); oldest >= at && oldest < at+step {
			return true
		}
	}
	return false
}

func TestImportWhisperReportsFiles(t *testing.T) {
	hash := strings.Repeat("0", 64)
	root := tree(t, map[string]string{
		"a/b.wsp": "one.wsp", "a/packed.wsp": "whisper_compressed, and what follows", "a/short.wsp": "short",
		"_tagged/000/000/" + hash + ".wsp": "one.wsp",
	})
	p := start(t, t.TempDir())
	into := filepath.Join(t.TempDir(), "new")
	const want = `_tagged/000/000/HASH.wsp: name is only a hash: the names of series with tags are needed (--series)
a/packed.wsp: compressed by go-carbon: Varve cannot read it; docs/migrating-from-graphite.md says what to do
a/short.wsp: damaged: the file ends within its header, after 5 bytes
`
	for _, to := range [][]string{{"--http-addr", p.http}, {"--create", "--data-dir", into}} {
		_, stderr := must(t, 3, append([]string{"import", "whisper", root, "--prefix=my."}, to...)...)
		for _, text := range []string{"  damaged: 1 file\n", "3 faults were found, see " + root + ".rejected", "1 file, of which 0 without points, 50 points in"} {
			if !strings.Contains(stderr, text) {
				t.Errorf("no %q in %s", text, stderr)
			}
		}
		if got := read(t, root+".rejected"); got != strings.ReplaceAll(want, "HASH", hash) {
			t.Errorf("reported\n%s", got)
		}
	}
	online, _ := must(t, 0, "export", "--http-addr", p.http)
	offline, _ := must(t, 0, "export", "--data-dir", into)
	if online != offline || !strings.HasPrefix(online, `{"name":"my.a.b","skip_validate":true,"datapoints":[[1699996980000,93.25,"double"],`) {
		t.Errorf("online\n%s\noffline\n%s", online, offline)
	}

	out, stderr := must(t, 3, "import", "whisper", root, "--dry-run")
	if !strings.Contains(stderr, "a/short.wsp: damaged") || !strings.Contains(out, "retentions = 1m:50m\n") || !strings.Contains(out, "# 50 points of 1 file, from 2023-11-14T21:23:00Z to 2023-11-14T22:12:00Z, would be imported.") {
		t.Errorf("a dry run says\n%s%s", out, stderr)
	}
}

// An import goes on behind the last file that is done, and nowhere else.
func TestImportWhisperGoesOn(t *testing.T) {
	root := tree(t, map[string]string{"a.wsp": "one.wsp", "b.wsp": "one.wsp", "b/c.wsp": "one.wsp", "d.wsp": "bad"})
	p := start(t, t.TempDir())
	state := func(to string) {
		text := fmt.Sprintf(`{"root":%q,"prefix":"","to":%q,"after":"b/c.wsp","reported":4,"totals":{"files":2,"points":100}}`, root, to)
		for file, text := range map[string]string{".state": text, ".rejected": "was\nis not\n"} {
			if err := os.WriteFile(root+file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	state("elsewhere")
	if _, stderr := must(t, 1, "import", "whisper", root, "--http-addr", p.http); !strings.Contains(stderr, "belongs to an import into elsewhere") {
		t.Error(stderr)
	}
	state("http://" + p.http)
	if _, stderr := must(t, 1, "import", "whisper", root, "--prefix", "x.", "--http-addr", p.http); !strings.Contains(stderr, "remove it to begin again") {
		t.Error(stderr)
	}
	if _, stderr := must(t, 1, "import", "whisper", root, "--http-addr", p.http); !strings.Contains(stderr, "says that 100 points were imported into http://"+p.http+", but the store is empty") {
		t.Error(stderr)
	}
	if status, body := p.do("POST", "/api/v1/datapoints", `{"name":"was","tags":{"a":"b"},"timestamp":1,"value":1}`); status != 204 {
		t.Fatalf("%d %s", status, body)
	}
	_, stderr := must(t, 3, "import", "whisper", root, "--http-addr", p.http)
	if !strings.Contains(stderr, "continuing after b/c.wsp; 2 files done") || !strings.Contains(stderr, "3 files, of which 0 without points, 150 points in") {
		t.Error(stderr)
	}
	if got := read(t, root+".rejected"); got != "was\nd.wsp: damaged: the file ends within its header, after 3 bytes\n" {
		t.Errorf("reported %q", got)
	}
	if status, body := p.do("GET", "/api/v1/metricnames", ""); status != 200 || !strings.Contains(body, `["b","was"]`) {
		t.Errorf("%d %s", status, body)
	}
}

// A state that cannot be written is told before anything is imported.
func TestImportWhisperWithoutState(t *testing.T) {
	root := tree(t, map[string]string{"a.wsp": "one.wsp"})
	p := start(t, t.TempDir())
	_, stderr := must(t, 1, "import", "whisper", root, "--http-addr", p.http, "--state", "/nowhere/at/all")
	if !strings.Contains(stderr, "use --state and --rejected to name other files") {
		t.Error(stderr)
	}
	if status, body := p.do("GET", "/api/v1/metricnames", ""); status != 200 || !strings.Contains(body, "[]") {
		t.Errorf("%d %s", status, body)
	}
}

func TestImportWhisperCommandLine(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for line, status := range map[string]int{
		"import whisper":                                 2,
		"import whisper a b":                             2,
		"import whisper " + file:                         2,
		"import whisper " + empty + " --parallel 0":      2,
		"import whisper " + empty + " -f x":              2,
		"import whisper /nowhere/at/all":                 1,
		"import whisper " + empty + " --dry-run":         1, // there is no file
		"import whisper " + empty + " --series /nowhere": 1,
		"import whisper --help":                          0,
		"help import whisper":                            0,
		"help import whisper more":                       2,
	} {
		must(t, status, strings.Fields(line)...)
	}
}

// What was imported is exported again, online and offline alike.
func TestExportWhisper(t *testing.T) {
	root := tree(t, map[string]string{"g/average.wsp": "average.wsp", "g/max.wsp": "max.wsp", "_tagged/aaa/bbb/load;dc=a_DOT_b.wsp": "max.wsp"})
	dir, files := t.TempDir(), t.TempDir()
	p := start(t, dir)
	must(t, 0, "import", "whisper", root, "--http-addr", p.http)
	p.do("POST", "/api/v1/datapoints", `{"name":"g.text","tags":{"a":"b"},"datapoints":[[1699999990000,"text"]]}`)
	online, offline := filepath.Join(files, "online"), filepath.Join(files, "offline")
	export := func(to, from string, more ...string) []string {
		flags := append([]string{"export", "whisper", to, "--end", "2023-11-14T22:13:20Z"}, rules(t)...)
		return append(append(flags, strings.Fields(from)...), more...)
	}
	_, stderr := must(t, 3, export(online, "--http-addr "+p.http)...)
	if !strings.Contains(stderr, "3 files of 4 metrics in ") || !strings.Contains(stderr, "  samples that are not finite numbers: 1 series\n") {
		t.Error(stderr)
	}
	if got := read(t, online+".rejected"); got != "g.text;a=b: samples that are not finite numbers: 1 samples are texts, NaN or infinite, or of another type\n" {
		t.Errorf("reported %q", got)
	}
	if _, stderr := must(t, 1, export(online, "--http-addr "+p.http)...); !strings.Contains(stderr, "is not empty") {
		t.Error(stderr)
	}
	_, stderr = must(t, 3, export(online, "--http-addr "+p.http, "--keep")...)
	if !strings.Contains(stderr, "0 files of 4 metrics") {
		t.Error(stderr)
	}
	must(t, 0, export(online, "--http-addr "+p.http, "--replace", "-n", "g.m*", "-n", "nosuch")...)
	p.stop(os.Interrupt)
	must(t, 3, export(offline, "--data-dir "+dir, "--hashed")...)
	for _, file := range []string{"g/average.wsp", "g/max.wsp"} {
		a, b := read(t, filepath.Join(online, file)), read(t, filepath.Join(offline, file))
		if a != b || a[:52] != read(t, filepath.Join(root, file))[:52] {
			t.Errorf("%s differs, or its header does", file)
		}
	}
	for pattern, n := range map[string]int{online + "/_tagged/*/*/load;dc=a_DOT_b.wsp": 1, offline + "/_tagged/*/*/*.wsp": 1, offline + "/_tagged/*/*/*;*.wsp": 0} {
		if found, err := filepath.Glob(pattern); len(found) != n || err != nil {
			t.Errorf("%s: %v, %v", pattern, found, err)
		}
	}
	for line, status := range map[string]int{
		"export whisper --storage-schemas x": 2, "export whisper d": 2, "export whisper d --storage-schemas /nowhere": 1,
		"export whisper d --storage-schemas x --keep --replace": 2, "export whisper d --storage-schemas x --end yesterday": 2,
		"export whisper --help": 0,
	} {
		must(t, status, strings.Fields(line)...)
	}
}

// By the configuration of a server, what it has thinned out is in the archives of its
// stages, online and offline alike.
func TestExportWhisperByPolicies(t *testing.T) {
	files, dir := t.TempDir(), t.TempDir()
	config := filepath.Join(files, "varve.yaml")
	text := `data_dir: ` + dir + `
retention:
  enforce: true
  policies:
    - {name: tail, metric: "*.tail", stages: "10s:10m,60s:2h,10m:1d", aggregation: p90}
    - {name: zeros, metric: "*.zeros", stages: "10s:10m,60s:2h,10m:1d", aggregation: avg_zero}
    - {name: kept, metric: "*.kept", stages: forever}
`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--config", config, "--tune=embedded.late_hold=0s") // folds do not wait after the start
	now := time.Now().Unix() / 600 * 600
	var points []string
	for s := now - 3*3600; s < now; s += 20 {
		points = append(points, fmt.Sprintf("[%d,%d]", s*1000, s/20%3))
	}
	for _, metric := range []string{"m.tail", "m.zeros", "m.kept", "other"} {
		if status, body := p.do("POST", "/api/v1/datapoints", `{"name":"`+metric+`","tags":{"a":"b"},"datapoints":[`+strings.Join(points, ",")+`]}`); status != 204 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body := p.do("POST", "/admin/compact", ""); status >= 300 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := p.do("GET", "/api/v1/export?metric=m.tail&buckets=perhaps", ""); status != 400 || !strings.Contains(body, "must be true, false or none") {
		t.Errorf("%d %s", status, body)
	}
	online, offline := filepath.Join(files, "online"), filepath.Join(files, "offline")
	const want = "m.kept;a=b: its policy keeps every sample: [kept] defines no archives; use --storage-schemas with a file that does\n" +
		"m.tail;a=b: Whisper does not have its method: the points are p90 values; the header says average, which carbon uses for later points\n" +
		"other;a=b: no rule matches: add one, such as pattern = .* at the end of storage-schemas.conf\n"
	end := fmt.Sprint(now * 1000)
	must(t, 3, "export", "whisper", online, "--end", end, "--config", config, "--http-addr", p.http)
	p.stop(os.Interrupt)
	must(t, 3, "export", "whisper", offline, "--end", end, "--config", config)
	for _, of := range []string{online, offline} {
		if got := read(t, of+".rejected"); got != want {
			t.Errorf("reported %s", got)
		}
	}
	for metric, wants := range map[string][2]float64{"m.tail": {2, 2}, "m.zeros": {0.5, 0.5}} {
		a, b := read(t, tagged(t, online, metric)), read(t, tagged(t, offline, metric))
		if a != b {
			t.Errorf("%s: online and offline the files differ", metric)
		}
		f, err := whisper.Open(strings.NewReader(a), int64(len(a)))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range wants {
			one := *f
			one.Archives = f.Archives[i+1 : i+2]
			n := 0
			if _, err := one.History(t.Context(), now, func(_ int, points []whisper.Point) error {
				for _, p := range points {
					if math.Abs(p.Value-want) > 0.02 {
						t.Errorf("%s, archive %d: %v at %d, want %v", metric, i+1, p.Value, p.Time, want)
					}
					n++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if least := []int{110, 17}[i]; n < least {
				t.Errorf("%s, archive %d: %d points, want %d at least", metric, i+1, n, least)
			}
		}
	}
	_, stderr := must(t, 2, "export", "whisper", filepath.Join(files, "none"), "--data-dir", dir)
	if !strings.Contains(stderr, "--config with a configuration that has retention.policies") {
		t.Error(stderr)
	}
	must(t, 2, "export", "whisper", filepath.Join(files, "none"), "--config", config, "--storage-aggregation", config)
}

// tagged is the file of a metric with the tag a=b.
func tagged(t *testing.T, root, metric string) string {
	t.Helper()
	name, err := whisper.FileOf(metric+";a=b", false)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, filepath.FromSlash(name))
}

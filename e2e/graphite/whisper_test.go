package graphite

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// filesNow is the time of the files that the tests make.
const filesNow = 1_700_000_000

// A file is the original's report about a file.
type file struct {
	Method   string
	XFF      float64
	Longest  int64
	Archives [][2]int64
	Points   [][][2]float64
}

// runWhisper runs files.py.
func runWhisper(t *testing.T, what, dir string, now int) (files map[string]file) {
	t.Helper()
	library := process.Provide(t, "Whisper", root, "whisper.sh")
	ctx, cancel := context.WithTimeout(t.Context(), programRuns)
	defer cancel()
	c := process.Command(ctx, "python3", filepath.Join("python", "files.py"), what, dir, strconv.Itoa(now))
	c.Env = append(os.Environ(), "PYTHONPATH="+library, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("files.py %s: %v", what, err)
	}
	if what == "read" {
		if err := json.Unmarshal(out, &files); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// varve runs a command of the binary that the tests build, and returns its output.
func varve(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programRuns)
	defer cancel()
	c := exec.CommandContext(ctx, process.Binary, args...)
	c.Env = process.Environment()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("varve %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// filesRules writes the configuration that the files are made by, and returns it as flags.
func filesRules(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	schemas, aggregation := filepath.Join(dir, "schemas"), filepath.Join(dir, "aggregation")
	for path, text := range map[string]string{
		schemas: "[all]\npattern = .*\nretentions = 10:180,60:90,300:72\n",
		aggregation: "[count]\npattern = count\naggregationMethod = sum\nxFilesFactor = 0\n[max]\npattern = max\naggregationMethod = max\nxFilesFactor = 0.3\n" +
			"[min]\npattern = min\naggregationMethod = min\nxFilesFactor = 0\n[last]\npattern = last\naggregationMethod = last\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--storage-schemas", schemas, "--storage-aggregation", aggregation}
}

// TestWhisperFiles: files that the original has written are imported and exported
// again. The original must read the same points from the exported files.
func TestWhisperFiles(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	made, back := filepath.Join(t.TempDir(), "made"), filepath.Join(t.TempDir(), "back")
	runWhisper(t, "make", made, filesNow)
	want := runWhisper(t, "read", made, filesNow)
	s := process.Start(t, t.TempDir())
	varve(t, "import", "whisper", made, "--http-addr", s.HTTP)
	varve(t, append([]string{"export", "whisper", back, "--http-addr", s.HTTP, "--end", strconv.Itoa(filesNow * 1000)}, filesRules(t)...)...)
	s.Stop(t)
	got := runWhisper(t, "read", back, filesNow)
	if len(want) != 6 || len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
	for name, w := range want {
		g := got[name]
		if g.Method != w.Method || math.Abs(g.XFF-w.XFF) > 1e-6 || g.Longest != w.Longest || len(g.Archives) != len(w.Archives) {
			t.Errorf("%s: %+v, want %+v", name, g, w)
			continue
		}
		for i := range w.Archives {
			comparePoints(t, name, i, g, w)
		}
	}
}

// comparePoints compares an archive, except for the buckets in which a finer archive
// begins.
func comparePoints(t *testing.T, name string, archive int, got, want file) {
	t.Helper()
	if got.Archives[archive] != want.Archives[archive] {
		t.Errorf("%s: archive %v, want %v", name, got.Archives[archive], want.Archives[archive])
	}
	step := want.Archives[archive][0]
	values := map[int64]float64{}
	for _, p := range got.Points[archive] {
		values[int64(p[0])] = p[1]
	}
	compared := 0
	for _, p := range want.Points[archive] {
		at := int64(p[0])
		begins := false
		for _, finer := range want.Points[:archive] {
			oldest := int64(finer[0][0])
			begins = begins || oldest >= at && oldest < at+step
		}
		if begins {
			continue
		}
		compared++
		if v, ok := values[at]; !ok || math.Abs(v-p[1]) > 1e-9 {
			t.Errorf("%s, step %d, at %d: %v (%v), want %v", name, step, at, v, ok, p[1])
		}
	}
	if compared < 30 || len(got.Points[archive]) > len(want.Points[archive]) {
		t.Errorf("%s, step %d: %d points were compared, %d are there and %d should be", name, step, compared, len(got.Points[archive]), len(want.Points[archive]))
	}
}

// TestMoveFromGraphite: after an import of its files, Varve answers as a graphite-web
// with these files does, over time ranges that reach back into each archive.
func TestMoveFromGraphite(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	files := filepath.Join(t.TempDir(), "files")
	now := int(time.Now().Unix())
	runWhisper(t, "make", files, now)
	libraries := process.Provide(t, "graphite-web", root, "graphiteweb.sh") + string(os.PathListSeparator) + process.Provide(t, "Whisper", root, "whisper.sh")
	web := runFront(t, libraries, fmt.Sprintf("FILES = [%q]\nCARBONLINK_HOSTS = []\n", files))
	for _, more := range [][]string{nil, {"--retention-enforce", "--tune=embedded.late_hold=0s"}} { // folds do not wait after the start
		s := process.Start(t, t.TempDir(), append(filesRules(t), more...)...)
		varve(t, "import", "whisper", files, "--http-addr", s.HTTP)
		if _, err := s.Want(t.Context(), http.StatusNoContent, http.MethodPost, "/admin/compact", ""); err != nil {
			t.Fatal(err)
		}
		sameAnswers(t, web.url, s.HTTP, now)
		s.Stop(t)
	}
}

// sameAnswers compares two servers. Whisper's archives reach back 30 minutes, 90 minutes
// and 6 hours. The times end before the next finer archive begins, since the bucket of its
// beginning differs.
func sameAnswers(t *testing.T, a, b string, now int) {
	t.Helper()
	for _, span := range [][2]int{{1200, 10}, {4200, 2200}, {20_000, 5800}} {
		out := varve(t, "compare", "--api", "graphite", "--a", a, "--b", b, "--questions", "60",
			"--from", strconv.Itoa((now-span[0])*1000), "--to", strconv.Itoa((now-span[1])*1000))
		if !strings.Contains(out, "compared   5 paths, 60 queries") || !strings.Contains(out, "Graphite 1.1.10") {
			t.Errorf("%s", out)
		}
	}
}

// TestWhisperFilesOfPolicies: files are exported by the policies of a server. The original
// must read downsampled samples as points of the archive of their stage, and points
// computed from all other samples.
func TestWhisperFilesOfPolicies(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	dir, files := t.TempDir(), filepath.Join(t.TempDir(), "files")
	config := filepath.Join(t.TempDir(), "varve.yaml")
	text := "retention:\n  enforce: true\n  policies:\n" +
		"    - {name: sums, metric: servers.sum, stages: '10s:30m,60s:3h,5m:1d', aggregation: sum, x_files_factor: 0}\n" +
		"    - {name: rest, metric: servers.*, stages: '10s:30m,60s:3h,5m:1d', aggregation: avg_zero, x_files_factor: 0.3}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := process.Start(t, dir, "--config", config, "--tune=embedded.late_hold=0s")
	now := time.Now().Unix() / 300 * 300
	var points []string
	for at := now - 6*3600; at < now; at += 20 {
		points = append(points, fmt.Sprintf("[%d,%d]", at*1000, at/20%5))
	}
	for _, metric := range []string{"servers.sum", "servers.zero"} {
		line := `{"name":"` + metric + `","skip_validate":true,"datapoints":[` + strings.Join(points, ",") + `]}`
		if _, err := s.Want(t.Context(), http.StatusNoContent, http.MethodPost, "/api/v1/datapoints", line); err != nil {
			t.Fatal(err)
		}
	}
	if status, body, err := s.Do(t.Context(), http.MethodPost, "/admin/compact", ""); err != nil || status >= 300 {
		t.Fatalf("%d %s, %v", status, body, err)
	}
	varve(t, "export", "whisper", files, "--config", config, "--http-addr", s.HTTP, "--end", strconv.FormatInt(now*1000, 10))
	s.Stop(t)
	got := runWhisper(t, "read", files, int(now))
	for name, want := range map[string]file{
		"servers/sum.wsp":  {Method: "sum", XFF: 0, Longest: 86400},
		"servers/zero.wsp": {Method: "avg_zero", XFF: 0.3, Longest: 86400},
	} {
		g := got[name]
		if g.Method != want.Method || math.Abs(g.XFF-want.XFF) > 1e-6 || g.Longest != want.Longest || fmt.Sprint(g.Archives) != "[[10 180] [60 180] [300 288]]" {
			t.Fatalf("%s: %s %v %d %v", name, g.Method, g.XFF, g.Longest, g.Archives)
		}
		if len(g.Points[0]) < 70 { // of 90; the server's time is up to five minutes later
			t.Errorf("%s: %d points of ten seconds", name, len(g.Points[0]))
		}
		for i, least := range map[int]int{1: 175, 2: 70} {
			if len(g.Points[i]) < least {
				t.Errorf("%s, archive %d: %d points, want %d at least", name, i, len(g.Points[i]), least)
			}
			for _, p := range g.Points[i] {
				sum := 0.0
				for at := int64(p[0]); at < int64(p[0])+g.Archives[i][0]; at += 20 {
					sum += float64(at / 20 % 5)
				}
				want := sum
				if g.Method == "avg_zero" {
					want = sum * 10 / float64(g.Archives[i][0])
				}
				if math.Abs(p[1]-want) > 1e-9 {
					t.Errorf("%s, archive %d, at %d: %v, want %v", name, i, int64(p[0]), p[1], want)
				}
			}
		}
	}
}

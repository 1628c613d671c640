package graphite

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"varve/e2e/process"
)

// filesNow is the time of the files that the tests make.
const filesNow = 1_700_000_000

// A file is what the original says of one.
type file struct {
	Method   string
	XFF      float64
	Longest  int64
	Archives [][2]int64
	Points   [][][2]float64
}

// runWhisper runs files.py.
func runWhisper(t *testing.T, what, dir string) (files map[string]file) {
	t.Helper()
	library := process.Provide(t, "Whisper", root, "whisper.sh")
	ctx, cancel := context.WithTimeout(t.Context(), programRuns)
	defer cancel()
	c := process.Command(ctx, "python3", filepath.Join("python", "files.py"), what, dir, strconv.Itoa(filesNow))
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

// varve runs a command of the binary that the tests build.
func varve(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programRuns)
	defer cancel()
	c := exec.CommandContext(ctx, process.Binary, args...)
	c.Env = process.Environment()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("varve %v: %v\n%s", args, err, out)
	}
}

// TestWhisperFiles: files that the original made are imported and exported again, and
// the original then reads in each what it read before.
func TestWhisperFiles(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	made, back, rules := filepath.Join(t.TempDir(), "made"), filepath.Join(t.TempDir(), "back"), t.TempDir()
	runWhisper(t, "make", made)
	want := runWhisper(t, "read", made)
	schemas, aggregation := filepath.Join(rules, "schemas"), filepath.Join(rules, "aggregation")
	for path, text := range map[string]string{
		schemas: "[all]\npattern = .*\nretentions = 10:60,60:40,300:60\n",
		aggregation: "[count]\npattern = count\naggregationMethod = sum\nxFilesFactor = 0\n[max]\npattern = max\naggregationMethod = max\nxFilesFactor = 0.3\n" +
			"[min]\npattern = min\naggregationMethod = min\nxFilesFactor = 0\n[last]\npattern = last\naggregationMethod = last\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := process.Start(t, t.TempDir())
	varve(t, "import", "whisper", made, "--http-addr", s.HTTP)
	varve(t, "export", "whisper", back, "--http-addr", s.HTTP, "--end", strconv.Itoa(filesNow*1000), "--storage-schemas", schemas, "--storage-aggregation", aggregation)
	s.Stop(t)
	got := runWhisper(t, "read", back)
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

// comparePoints compares an archive, but for the buckets in which a finer one begins.
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

package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"varve/internal/originals"
)

var migration = flag.Bool("migration", false, "let the original KairosDB import what Varve exports")

// What Varve exports, the original imports, and answers as Varve does; what the
// original then exports is what Varve exported, but for points before 1970.
func TestKairosDBTakesExport(t *testing.T) {
	if !*migration {
		t.Skip("run with -migration: the original is started four times, a minute")
	}
	k := originals.StartKairosDB(t, originals.KairosDBOptions{}) // skips where there is no Java
	k.Stop()
	recorded, err := filepath.Abs(filepath.Join("testdata", "kairosdb", "export.txt"))
	if err != nil {
		t.Fatal(err)
	}
	dir, files := filepath.Join(t.TempDir(), "store"), t.TempDir()
	must(t, 0, "import", "--create", "--data-dir", dir, "-f", recorded, "--state", filepath.Join(files, "state"))
	export, back := filepath.Join(files, "export"), filepath.Join(files, "back")
	must(t, 0, "export", "--data-dir", dir, "-f", export)

	runOriginal(t, k, "import", "-f", export)
	runOriginal(t, k, "export", "-f", back)
	again := filepath.Join(t.TempDir(), "again")
	must(t, 0, "import", "--create", "--data-dir", again, "-f", back)
	lines := func(text string) (kept []string) { // KairosDB does not know complex without a plug-in
		for _, line := range sortedLines(text) {
			if !strings.Contains(line, `,"complex"]`) {
				kept = append(kept, line)
			}
		}
		return kept
	}
	out, _ := must(t, 0, "export", "--data-dir", again)
	if diff := cmp.Diff(lines(read(t, export)+"All done\n"), lines(out)); diff != "" {
		t.Errorf("- exported, + what the original made of it\n%.3000s", diff)
	}

	k.Start()
	p := start(t, dir)
	for _, r := range readRecorded(t, "answers.jsonl", 60) {
		if bytes.Contains(r.Query, []byte("kx.complex")) {
			continue
		}
		status, ours := p.do("POST", "/api/v1/datapoints/query", string(r.Query))
		response, err := http.Post(k.URL+"/api/v1/datapoints/query", "application/json", bytes.NewReader(r.Query))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != status {
			t.Errorf("%s: %d, KairosDB %d %v", r.Query, status, response.StatusCode, err)
			continue
		}
		if diff := cmp.Diff(normal(t, theirs), normal(t, []byte(ours)), sameNumber); diff != "" {
			t.Errorf("%s\nKairosDB's answer is - and Varve's +:\n%.3000s", r.Query, diff)
		}
	}
	p.stop(os.Interrupt)
}

// runOriginal runs a command of KairosDB over its store.
func runOriginal(t *testing.T, k *originals.KairosDB, args ...string) {
	t.Helper()
	command := k.Script(args...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	if out, err := c.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("All done")) {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

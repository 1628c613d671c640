package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/config"
	"varve/internal/transfer"
)

// must runs varve and wants a status.
func must(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	status, stdout, stderr := once(t, nil, args...)
	if status != want {
		t.Fatalf("varve %s: status %d, want %d\n%s%s", strings.Join(args, " "), status, want, stdout, stderr)
	}
	return stdout, stderr
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(path, ".gz") {
		return string(raw)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sortedLines(text string) []string {
	return slices.Sorted(strings.Lines(text))
}

// Points go from a server to a file and, offline, to another store and back.
func TestExportAndImport(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	p := start(t, dir)
	status, body := p.do("POST", "/api/v1/datapoints", `[
		{"name":"m.one","tags":{"host":"a"},"datapoints":[[-5,1],[1700000000000,2.5],[1700000001000,"text"]]},
		{"name":"m two","tags":{"host":"ü"},"datapoints":[[1700000000000,9007199254740993]]},
		{"name":"z","tags":{"a":"b"},"datapoints":[[1,1]]}]`)
	if status != 204 {
		t.Fatal(status, body)
	}
	online := filepath.Join(files, "online")
	if out, _ := must(t, 0, "export", "--http-addr", p.http, "-f", online); out != "Export finished\nAll done\n" {
		t.Errorf("%q", out)
	}
	if _, stderr := must(t, 1, "export", "--data-dir", dir); !strings.Contains(stderr, "in use by another process") || !strings.Contains(stderr, "--http-addr") {
		t.Error(stderr)
	}
	if _, stderr := must(t, 1, "import", "--data-dir", dir, "-f", online); !strings.Contains(stderr, "--http-addr") {
		t.Error(stderr)
	}
	p.stop(os.Interrupt)
	const want = `{"name":"m two","tags":{"host":"ü"},"datapoints":[[1700000000000,9007199254740993,"long"]]}
{"name":"m.one","tags":{"host":"a"},"datapoints":[[1700000000000,2.5,"double"]]}
{"name":"m.one","tags":{"host":"a"},"datapoints":[[-5,1,"long"]]}
{"name":"m.one","tags":{"host":"a"},"datapoints":[[1700000001000,"text","string"]]}
{"name":"z","tags":{"a":"b"},"datapoints":[[1,1,"long"]]}
`
	if got := strings.ReplaceAll(read(t, online), `\u00fc`, "ü"); got != want {
		t.Errorf("exported\n%s", got)
	}
	offline := filepath.Join(files, "offline.gz")
	must(t, 0, "export", "--data-dir", dir, "-f", offline)
	if read(t, offline) != read(t, online) {
		t.Error("differs offline")
	}
	second := filepath.Join(t.TempDir(), "new")
	must(t, 0, "import", "--create", "--data-dir", second, "-f", offline)
	out, _ := must(t, 0, "export", "--data-dir", second)
	if out != read(t, online)+"All done\n" {
		t.Errorf("after the import\n%s", out)
	}
	out, _ = must(t, 0, "export", "--data-dir", second, "-n", "z", "-n=m.one", "--start", "2023-11-14T22:13:20Z", "--end", "1700000000000")
	if out != "{\"name\":\"m.one\",\"tags\":{\"host\":\"a\"},\"datapoints\":[[1700000000000,2.5,\"double\"]]}\nAll done\n" {
		t.Errorf("one metric: %s", out)
	}
	must(t, 0, "export", "--data-dir", second, "-n", "z", "-a", "-f", online)
	if got := read(t, online); !strings.HasSuffix(got, "[[1,1,\"long\"]]}\n{\"name\":\"z\",\"tags\":{\"a\":\"b\"},\"datapoints\":[[1,1,\"long\"]]}\n") {
		t.Errorf("appended: %s", got)
	}
	for _, args := range []string{"export --data-dir /nowhere/at/all", "import -f /nowhere/at/all"} {
		must(t, 1, strings.Fields(args)...)
	}
	for _, args := range []string{"export x", "export --start yesterday", "export -n", "import --fast", "export --start 5 --end 4"} {
		must(t, 2, strings.Fields(args)...)
	}
}

func TestImportReportsLines(t *testing.T) {
	files := t.TempDir()
	file := filepath.Join(files, "in")
	text := "{\"name\":\"m\",\"tags\":{\"a\":\"b\"},\"datapoints\":[[1,1]]}\nbad\n{\"name\":\"m\",\"datapoints\":[[2,1]]}\nAll done\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := "line 2: malformed JSON: want a metric object, or an array of them at column 1\nline 3: metric[0](name=m).tags count must be greater than or equal to 1.\n"
	p := start(t, t.TempDir())
	for _, to := range [][]string{{"--http-addr", p.http}, {"--create", "--data-dir", filepath.Join(t.TempDir(), "x")}} {
		_, stderr := must(t, 3, append([]string{"import", "-f", file}, to...)...)
		if !strings.Contains(stderr, "2 lines were rejected, see "+file+".rejected") || !strings.Contains(stderr, "4 lines, 1 point in ") {
			t.Error(stderr)
		}
		if got := read(t, file+".rejected"); got != want {
			t.Errorf("report\n%s\nwant\n%s", got, want)
		}
		if _, err := os.Stat(file + ".state"); err == nil {
			t.Error("the state is still there")
		}
	}
	p.wantValues("m", 1, "[[1,1]]")
}

// An import that is killed goes on where it was, over HTTP and offline.
func TestImportGoesOn(t *testing.T) {
	files := t.TempDir()
	file := filepath.Join(files, "in.gz")
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	const lines, points = 6000, 100
	for i := range lines {
		fmt.Fprintf(z, `{"name":"big","tags":{"i":"%d"},"datapoints":[`, i%50)
		for k := range points {
			if k > 0 {
				io.WriteString(z, ",")
			}
			fmt.Fprintf(z, `[%d,%d,"long"]`, i*points+k, k)
		}
		io.WriteString(z, "]}\n")
		if i%1000 == 10 {
			io.WriteString(z, "bad\n")
		}
	}
	z.Close()
	if err := os.WriteFile(file, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, t.TempDir())
	var dir string // of the offline import that was killed
	for _, to := range []func() []string{
		func() []string { return []string{"--http-addr", p.http} },
		func() []string { dir = filepath.Join(t.TempDir(), "x"); return []string{"--create", "--data-dir", dir} },
	} {
		args := append([]string{"import", "-f", file}, to()...)
		for tries := 1; !killedMidway(t, file+".state", args); tries++ {
			if tries == 10 {
				t.Fatal("each import was complete before it could be killed")
			}
			args = append([]string{"import", "-f", file}, to()...)
		}
		_, stderr := must(t, 3, args...)
		if !strings.Contains(stderr, "continuing after line") {
			t.Errorf("%s\nnot interrupted, or begun again", stderr)
		}
		if got := strings.Count(read(t, file+".rejected"), "\n"); got != lines/1000 {
			t.Errorf("%d lines reported", got)
		}
	}
	_, want := p.do("POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"big","aggregators":[{"name":"count","sampling":{"value":10,"unit":"years"}}]}]}`)
	if !strings.Contains(want, fmt.Sprintf(",%d]]", lines*points)) {
		t.Errorf("%s, want %d points", want, lines*points)
	}
	q := start(t, dir)
	if _, got := q.do("POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"big","aggregators":[{"name":"count","sampling":{"value":10,"unit":"years"}}]}]}`); got != want {
		t.Errorf("offline %s, over HTTP %s", got, want)
	}
	if err := os.WriteFile(file+".state", []byte(`{"offset":5,"line":1,"head":"another"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr := must(t, 1, "import", "-f", file, "--http-addr", p.http); !strings.Contains(stderr, "of another file") {
		t.Error(stderr)
	}
}

// An import does not resume with the token of another tenant, whose store has nothing of what the
// first one stored.
func TestImportGoesOnWithItsToken(t *testing.T) {
	blocks := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/import":
			if blocks++; blocks == 2 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			lines := bytes.Count(body, []byte("\n")) + 1
			fmt.Fprintf(w, `{"line":%d,"points":%d}`, lines, lines)
		case "/api/v1/metricnames":
			io.WriteString(w, `{"results":["m"]}`)
		}
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, bytes.Repeat([]byte(`{"name":"m","tags":{"a":"b"},"datapoints":[[1,2]]}`+"\n"), transfer.BlockLines+1), 0o644); err != nil {
		t.Fatal(err)
	}
	token := func(id string) []string { return []string{"VARVE_TOKEN=varve_" + id + "_" + strings.Repeat("x", 43)} }
	const acme, globex = "b0dce88fae12", "b2a967225534"
	for _, run := range []struct {
		id     string
		status int
		says   string
	}{
		{acme, 1, "500"},
		{globex, 1, fmt.Sprintf("belongs to an import into http://%s with the token %s, not http://%[1]s with the token %[3]s;", addr, acme, globex)},
		{acme, 0, "continuing after line 4096 "},
	} {
		status, _, stderr := once(t, token(run.id), "import", "-f", file, "--http-addr", addr)
		if status != run.status || !strings.Contains(stderr, run.says) {
			t.Errorf("token %s: status %d, want %d; want %q in\n%s", run.id, status, run.status, run.says, stderr)
		}
	}
}

// What has come since a backup is moved into the restored store as docs/operations.md says, and no
// point counts twice that both stores have in a bucket.
func TestRestoreWithBuckets(t *testing.T) {
	files := t.TempDir()
	dir, config := filepath.Join(files, "data"), filepath.Join(files, "varve.yaml")
	text := "retention: {enforce: true, policies: [{name: s, metric: s.*, stages: '10s:20m,60s:2h,10m:1d', aggregation: sum}]}\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	put := func(p *process, from, to int64) {
		var points []string
		for s := from; s < to; s += 10 {
			points = append(points, fmt.Sprintf("[%d,%d]", s*1000, s/10%7))
		}
		if status, body := p.do("POST", "/api/v1/datapoints", `{"name":"s.x","tags":{"a":"b"},"datapoints":[`+strings.Join(points, ",")+`]}`); status != 204 {
			t.Fatalf("%d %s", status, body)
		}
	}
	totals := func(p *process) (answers string) {
		for _, aggregator := range []string{"count", "sum", "max"} {
			status, body := p.do("POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"s.x","aggregators":[{"name":"`+aggregator+`","sampling":{"value":10,"unit":"years"}}]}]}`)
			_, values, ok := strings.Cut(body, `"values":`)
			if status != 200 || !ok {
				t.Fatalf("%d %s", status, body)
			}
			answers += values
		}
		return answers
	}
	now := time.Now().Unix()
	p := start(t, dir, "--config", config, "--tune=embedded.late_hold=0s") // folds do not wait after the start
	put(p, now-5*3600, now-3600)
	if status, body := p.do("POST", "/admin/compact", ""); status >= 300 {
		t.Fatalf("%d %s", status, body)
	}
	if points := strings.Count(exported(t, p, "?buckets=none"), "],["); points != 0 {
		t.Fatalf("%d points of an hour ago are not in buckets", points)
	}
	must(t, 0, "backup", "--http-addr", p.http, "--to", "monday")
	put(p, now-300, now)
	want := totals(p)
	p.stop(os.Interrupt)

	old := dir + ".old"
	if err := os.Rename(dir, old); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(old, "backups", "monday"))); err != nil {
		t.Fatal(err)
	}
	p = start(t, dir, "--config", config)
	rest := filepath.Join(files, "rest.gz")
	must(t, 0, "export", "--data-dir", old, "--without-buckets", "-f", rest)
	must(t, 0, "import", "-f", rest, "--http-addr", p.http)
	if got := totals(p); got != want {
		t.Errorf("restored\n%s\nwant\n%s", got, want)
	}
	if got := exported(t, p, "?buckets=none"); got != read(t, rest) {
		t.Errorf("the server exports\n%s\nwant\n%s", got, read(t, rest))
	}
	online := filepath.Join(files, "online")
	must(t, 0, "export", "--http-addr", p.http, "--without-buckets", "-f", online)
	if got := read(t, online); got != read(t, rest) {
		t.Errorf("varve export from a server writes\n%s\nwant\n%s", got, read(t, rest))
	}
}

// exported returns the answer of an export over HTTP.
func exported(t *testing.T, p *process, parameters string) string {
	t.Helper()
	status, body := p.do("GET", "/api/v1/export"+parameters, "")
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	return body
}

// killedMidway runs varve until there is a state, and kills it. It reports false if the run
// was complete by then.
func killedMidway(t *testing.T, state string, args []string) bool {
	t.Helper()
	command := exec.Command(binary, args...)
	command.Env = []string{}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && len(ended) == 0; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(state); err == nil {
			break
		}
	}
	command.Process.Kill()
	<-ended
	_, err := os.Stat(state)
	return err == nil
}

// An export that was interrupted in the middle of a metric goes on with it.
func TestExportGoesOn(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "{\"name\":\"m%02d\",\"tags\":{\"a\":\"b\"},\"datapoints\":[[1,%d,\"long\"]]}\n", i, i)
	}
	in := filepath.Join(files, "in")
	if err := os.WriteFile(in, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, 0, "import", "--create", "--data-dir", dir, "-f", in)
	for _, name := range []string{"out", "out.gz"} {
		out, done := filepath.Join(files, name), filepath.Join(files, name+".done")
		args := []string{"export", "--data-dir", dir, "-f", out, "-r", done}
		must(t, 0, args...)
		if read(t, out) != text.String() {
			t.Fatal(read(t, out))
		}
		// As if the machine had failed: the last metrics are not noted, and the
		// file ends inside of one.
		raw := []byte(read(t, done))
		if err := os.WriteFile(done, raw[:len(raw)-4*5-2], 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(out, info.Size()-20); err != nil {
			t.Fatal(err)
		}
		must(t, 0, args...)
		if got := slices.Compact(sortedLines(read(t, out))); !slices.Equal(got, sortedLines(text.String())) {
			t.Errorf("%s: %d lines\n%s", name, len(got), read(t, out))
		}
		if got := strings.Count(read(t, done), "\n"); got != 40 {
			t.Errorf("%s: %d metrics noted", name, got)
		}
		if _, stderr := must(t, 0, args...); !strings.Contains(stderr, "0 metrics, 0 bytes") || !strings.Contains(stderr, "skipped 40 metrics that "+done) {
			t.Errorf("%s: an export of nothing says %q", name, stderr)
		}
		if err := os.Remove(out); err != nil {
			t.Fatal(err)
		}
		if _, stderr := must(t, 1, args...); !strings.Contains(stderr, "recovery file") {
			t.Error(stderr)
		}
	}
}

// An import that was killed while it created the store does not block the next one. Block files
// without a catalogue are no new store.
func TestCreateGoesOn(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, []byte(`{"name":"m","tags":{"a":"b"},"datapoints":[[1,1,"long"]]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	lost := filepath.Join(dir, "blocks", "0000000001.blk")
	if err := errors.Join(os.Mkdir(filepath.Dir(lost), 0o750), os.WriteFile(lost, []byte("samples"), 0o640)); err != nil {
		t.Fatal(err)
	}
	args := []string{"import", "--create", "--data-dir", dir, "-f", in}
	must(t, 1, args...)
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	must(t, 0, args...)
}

// A mistyped command creates no store, does not report an empty export or import as
// done, and destroys nothing.
func TestTransferNamesItsTarget(t *testing.T) {
	work, files := t.TempDir(), t.TempDir()
	in := filepath.Join(files, "in")
	if err := os.WriteFile(in, []byte("{\"name\":\"m\",\"tags\":{\"a\":\"b\"},\"datapoints\":[[1,1]]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	typo, nobody := filepath.Join(work, "typo"), cqltest.ClosedPort(t)
	for _, tc := range []struct {
		want    int
		args    string
		message string
	}{
		{2, "import -f " + in + " --http-addr " + nobody + " --data-dir " + work, "give one of them"},
		{2, "export --http-addr=", "needs a value"},
		{1, "import -f " + in + " --http-addr " + nobody, "use --http-addr for another server, --data-dir for the directory of a stopped one"},
		{1, "export --http-addr " + nobody, "use --http-addr for another server, --data-dir for the directory of a stopped one"},
		{1, "import -f " + in + " --data-dir " + typo, "typo holds no store; use --data-dir or --config for another directory, --http-addr for a running server, --create to create a store there\n"},
		{1, "export --data-dir " + typo, "typo holds no store; use --data-dir or --config for another directory, --http-addr for a running server\n"},
		{1, "import -f " + in + " --create --data-dir " + files, "holds no store, but in: a new store needs a directory of its own"},
		{1, "import -f " + in + "x --create --data-dir " + typo, "no such file"},
	} {
		if _, stderr := must(t, tc.want, strings.Fields(tc.args)...); !strings.Contains(stderr, tc.message) {
			t.Errorf("varve %s: %s", tc.args, stderr)
		}
	}
	// Without flags, commands go to the server at 127.0.0.1:8080, which may run or not.
	for _, args := range [][]string{{"import", "-f", in + ".none"}, {"backup", "--to", "../x"}} {
		command := exec.Command(binary, args...)
		command.Dir, command.Env = work, []string{}
		if out, err := command.CombinedOutput(); err == nil {
			t.Errorf("varve %v: %s", args, out)
		}
	}
	if made, err := os.ReadDir(work); err != nil || len(made) > 0 {
		t.Errorf("made %v, %v", made, err)
	}
	status, _, stderr := once(t, []string{"VARVE_DATA_DIR=" + typo}, "import", "-f", in, "--create")
	if status != 0 {
		t.Error(stderr)
	}
	if out, stderr := must(t, 3, "export", "--data-dir", typo, "-n", "m", "-n", "tpyo"); !strings.Contains(stderr, "no metric tpyo") || !strings.HasSuffix(out, "All done\n") || !strings.Contains(out, `"name":"m"`) {
		t.Error(out, stderr)
	}
	// A state file belongs to one store: the one that has the points of the lines before.
	if err := os.WriteFile(in+".state", []byte(`{"offset":5,"line":1,"to":"http://elsewhere:8080"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr := must(t, 1, "import", "-f", in, "--data-dir", typo); !strings.Contains(stderr, "of another file") {
		t.Error(stderr)
	}
	head := sha256.Sum256([]byte(read(t, in)))
	if err := os.WriteFile(in+".state", []byte(fmt.Sprintf(`{"offset":5,"line":1,"to":"http://elsewhere:8080","head":"%x"}`, head)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr := must(t, 1, "import", "-f", in, "--data-dir", typo); !strings.Contains(stderr, "belongs to an import into http://elsewhere:8080, not "+typo) {
		t.Error(stderr)
	}
}

// A command that is stuck, here since nobody reads its output, ends with a further signal.
func TestSecondSignalEndsACommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	points := filepath.Join(t.TempDir(), "points")
	text := strings.Repeat("x", 60_000)
	var lines strings.Builder
	for i := range 100 { // more than a pipe and the buffer of the command hold
		fmt.Fprintf(&lines, `{"name":"m","tags":{"a":"b"},"datapoints":[[%d,"%s","string"]]}`+"\n", i+1, text)
	}
	if err := os.WriteFile(points, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := once(t, nil, "import", "--create", "--data-dir", dir, "-f", points); status != 0 {
		t.Fatal(stderr)
	}
	out, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := exec.Command(binary, "export", "--data-dir", dir)
	c.Env = []string{} // no settings of whoever runs the tests
	var said bytes.Buffer
	c.Stdout, c.Stderr = to, &said
	if err := errors.Join(c.Start(), to.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it writes
		t.Fatal(err, c.Wait(), said.String())
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	// The kernel combines signals that come at once. Not os.Interrupt: a shell that runs the tests in
	// the background lets them ignore it, and the command goes back to that after the first one.
	for {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the command has written all of its output")
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// An export, an import and the timelines of a running server are those of the tenant that is named.
func TestTransferOfATenant(t *testing.T) {
	dir := t.TempDir()
	settings := filepath.Join(dir, "varve.yaml")
	if err := os.WriteFile(settings, []byte("retention: {policies: [{name: all, path: ., stages: 60s:1d}]}\ntenants: [{name: acme}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, filepath.Join(dir, "data"), "--config="+settings)
	addr := "--http-addr=" + p.http
	wants := map[string]string{"--tenant=default": "ours", "": "ours", "--tenant=acme": "theirs"}
	run := func(status int, wants []string, args ...string) {
		t.Helper()
		wantRun(t, status, wants, slices.DeleteFunc(append(args, addr), func(a string) bool { return a == "" })...)
	}
	at := time.Now().Add(-time.Hour).UnixMilli()
	for tenant, metric := range map[string]string{"--tenant=default": "ours", "--tenant=acme": "theirs"} {
		file := filepath.Join(dir, metric)
		line := fmt.Sprintf(`{"name":%q,"tags":{"host":"a"},"datapoints":[[%d,1]]}`+"\n", metric, at)
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		run(0, []string{"1 line, 1 point"}, "import", "-f="+file, tenant)
		run(0, nil, "timeline", "append", metric, "-f="+file, tenant)
	}
	for tenant, want := range wants {
		other := map[string]string{"ours": "theirs", "theirs": "ours"}[want]
		run(0, []string{want}, "export", "-n="+want, tenant)
		run(3, []string{"there is no metric " + other}, "export", "-n="+other, tenant)
		run(0, []string{want}, "timeline", "stats", tenant)
		tree := filepath.Join(dir, "tree"+tenant)
		run(0, []string{"1 file of 1 metric"}, "export", "whisper", tree, "--config="+settings, tenant)
		run(0, []string{"1 file"}, "import", "whisper", tree, tenant)
	}
	for _, command := range [][]string{{"export"}, {"import"}, {"export", "whisper", filepath.Join(dir, "new"), "--config=" + settings}, {"import", "whisper", dir}, {"timeline", "stats"}} {
		run(1, []string{"there is no tenant globex"}, append(slices.Clone(command), "--tenant=globex")...)
		run(2, []string{"flag --tenant: \"a/b\": want a lower-case letter"}, append(slices.Clone(command), "--tenant=a/b")...)
	}
	for _, command := range []string{"export", "import"} {
		wantRun(t, 2, []string{"flag --tenant: is for --http-addr; of a stopped server"}, command, "--tenant=acme", "--data-dir="+dir)
	}
}

// The state file of an import names the tenant, so that an import into another one does not
// continue where it ended.
func TestPlaceOfATenant(t *testing.T) {
	t.Setenv("VARVE_TOKEN", "")
	for tenant, want := range map[string]string{"": "http://127.0.0.1:1", "acme": "http://127.0.0.1:1/t/acme"} {
		l := line{flags: map[string]string{"http-addr": "127.0.0.1:1"}}
		if tenant != "" {
			l.flags["tenant"] = tenant
		}
		if got := l.place(config.Default()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

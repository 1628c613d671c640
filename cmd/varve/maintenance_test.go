package main

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"varve/internal/cassandra/cql/cqltest"
)

var updateHelp = flag.Bool("update", false, "rewrite testdata/help")

// The help of serve fits a screen; --all shows every setting.
func TestHelpOfServe(t *testing.T) {
	for _, tc := range []struct {
		args     string
		min, max int // lines
	}{
		{"help serve", 20, 45}, {"serve --help", 20, 45}, {"help config", 20, 45},
		{"help serve --all", 200, 2000}, {"help --all serve", 200, 2000}, {"serve --help --all", 200, 2000},
	} {
		status, stdout, stderr := once(t, nil, strings.Fields(tc.args)...)
		if n := strings.Count(stdout, "\n"); status != 0 || stderr != "" || n < tc.min || n > tc.max {
			t.Errorf("varve %s: status %d, %d lines\n%s%s", tc.args, status, n, stdout, stderr)
		}
		if !strings.Contains(stdout, "--data-dir=./varve-data ") && !strings.Contains(stdout, "--data-dir=./varve-data\n") {
			t.Errorf("varve %s does not say where the data is", tc.args)
		}
	}
}

// TestHelpTexts compares the help of the commands that work on a store with
// testdata/help.
func TestHelpTexts(t *testing.T) {
	for _, name := range []string{"check", "repair", "inspect", "stats", "backup", "import", "import whisper", "export", "export whisper", "compare", "timeline"} {
		status, stdout, stderr := once(t, nil, append([]string{"help"}, strings.Fields(name)...)...)
		if status != 0 || stderr != "" {
			t.Errorf("help %s: %d %s", name, status, stderr)
		}
		golden := filepath.Join("testdata", "help", strings.ReplaceAll(name, " ", "-")+".txt")
		if *updateHelp {
			if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, []byte(stdout), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if stdout != string(want) {
			t.Errorf("help %s is not %s (-update rewrites it):\n%s", name, golden, stdout)
		}
	}
}

// filled starts a server on dir and sends it points, some of which are in block
// files and some in the log only.
func filled(t *testing.T, dir string) *process {
	t.Helper()
	p := start(t, dir)
	send := func(metric string, n int) {
		var lines []string
		for i := range n {
			lines = append(lines, fmt.Sprintf("put %s %d %d host=a", metric, 1_700_000_000+i, i*i%1009))
		}
		p.put(lines...)
		p.values(metric, n)
	}
	send("in.files", 5000)
	if status, body := p.do("POST", "/admin/compact", ""); status != 204 {
		t.Fatalf("compact: %d %s", status, body)
	}
	send("in.log", 50)
	return p
}

// TestStartOnANewerFile: whoever went back to an older build is not told to repair what
// this build does not know.
func TestStartOnANewerFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	filled(t, dir).stop(os.Interrupt)
	files, err := filepath.Glob(filepath.Join(dir, "blocks", "*.blk"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for what, change := range map[string]func(b []byte) []byte{
		"reports what is lost, and what to do": func(b []byte) []byte { return b },
		"nothing is lost: use the newer build": func(b []byte) []byte { return bytes.Replace(b, []byte(`"chunks"`), []byte(`"others"`), 1) },
	} {
		whole, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		changed := change(bytes.Clone(whole))
		changed[8] = 200 // the version
		if err := os.WriteFile(files[0], changed, 0o644); err != nil {
			t.Fatal(err)
		}
		wantRun(t, 1, []string{"format version 200", what}, "serve", "--data-dir", dir, "--http-addr=127.0.0.1:0", "--telnet-addr=", "--carbon-addr=", "--pickle-addr=")
		if err := os.WriteFile(files[0], whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// wantRun runs a command and wants a status and texts in what it prints.
func wantRun(t *testing.T, status int, wants []string, args ...string) {
	t.Helper()
	got, stdout, stderr := once(t, nil, args...)
	if got != status {
		t.Errorf("varve %v: status %d, want %d\n%s%s", args, got, status, stdout, stderr)
	}
	for _, want := range wants {
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("varve %v: no %q in\n%s%s", args, want, stdout, stderr)
		}
	}
}

// TestOfflineCommandsRefuseFlags gives inspect and repair flags that have no effect on
// an embedded store. They looked at the default directory instead.
func TestOfflineCommandsRefuseFlags(t *testing.T) {
	for _, command := range []string{"inspect", "repair"} {
		for flag, want := range map[string]string{
			"--http-addr=127.0.0.1:8080":        "flag --http-addr: inspect and repair work on a stopped store; ask a running server with check, stats or backup",
			"--server-http-addr=127.0.0.1:8080": "flag --server-http-addr: inspect and repair work on a stopped store",
			"--cassandra-hosts=127.0.0.1":       "flag --cassandra-hosts: inspect and repair use it with --store=cassandra only",
		} {
			wantRun(t, 2, []string{want}, command, "--data-dir="+t.TempDir(), flag)
		}
	}
	status, _, stderr := once(t, []string{"VARVE_SERVER_HTTP_ADDR=127.0.0.1:8080"}, "inspect", "--data-dir="+t.TempDir())
	if status != 1 || !strings.Contains(stderr, "holds no store") {
		t.Errorf("with the environment of a server: %d %s", status, stderr)
	}
}

// A backup is one of the tenant that is named.
func TestBackupOfATenant(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "varve.yaml")
	if err := os.WriteFile(config, []byte("tenants: [{name: acme}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	p := start(t, data, "--config="+config)
	addr := "--http-addr=" + p.http
	for tenant, below := range map[string]string{"default": "", "acme": filepath.Join("tenants", "acme")} {
		wantRun(t, 0, []string{filepath.Join(data, below, "backups", "one") + "\n"}, "backup", addr, "--to=one", "--tenant="+tenant)
	}
	wantRun(t, 1, []string{"there is no tenant globex"}, "backup", addr, "--tenant=globex")
	wantRun(t, 2, []string{"flag --tenant: \"a/b\": want a lower-case letter"}, "backup", addr, "--tenant=a/b")
}

// A running server checks the store of the tenant that is named, and says what takes its space.
func TestCheckAndStatsOfATenant(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "varve.yaml")
	if err := os.WriteFile(config, []byte("tenants: [{name: acme}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, filepath.Join(dir, "data"), "--config="+config)
	post := func(path, body string) {
		resp, err := http.Post("http://"+p.http+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.Fatalf("%s: %s", path, resp.Status)
		}
	}
	for tenant, metric := range map[string]string{"default": "ours", "acme": "theirs"} {
		post("/t/"+tenant+"/api/v1/datapoints", `[{"name":"`+metric+`","tags":{"a":"b"},"datapoints":[[1700000000000,1]]}]`)
		post("/t/"+tenant+"/admin/compact", "")
	}
	addr := "--http-addr=" + p.http
	for tenant, want := range map[string]string{"": "ours", "default": "ours", "acme": "theirs"} {
		flags := []string{addr}
		if tenant != "" {
			flags = append(flags, "--tenant="+tenant)
		}
		wantRun(t, 0, []string{want}, append([]string{"stats"}, flags...)...)
		wantRun(t, 0, []string{"no damage"}, append([]string{"check"}, flags...)...)
	}
	for _, command := range []string{"check", "stats"} {
		wantRun(t, 2, []string{"flags --http-addr and --data-dir: give one of them"}, command, addr, "--data-dir="+t.TempDir())
		wantRun(t, 1, []string{"there is no tenant globex"}, command, addr, "--tenant=globex")
		wantRun(t, 2, []string{"flag --tenant: \"a/b\": want a lower-case letter"}, command, addr, "--tenant=a/b")
		wantRun(t, 2, []string{"flag --tenant: is for --http-addr; of a stopped server"}, command, "--tenant=acme")
	}
}

// A running server checks itself, says what takes the space, and makes a backup
// that another server starts with. A stopped one is looked into and repaired.
func TestStoreIsLookedAfter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := filled(t, dir)
	addr := "--http-addr=" + p.http
	data := "--data-dir=" + dir
	wantRun(t, 0, []string{"no damage found"}, "check", addr)
	wantRun(t, 0, []string{"in.files"}, "stats", addr, "--top=1")
	wantRun(t, 0, []string{filepath.Join(dir, "backups", "first"), "hard links"}, "backup", addr, "--to=first")
	wantRun(t, 1, []string{"exists; choose another name"}, "backup", addr, "--to=first")
	wantRun(t, 1, []string{"a name has 1 to 100"}, "backup", addr, "--to=../elsewhere")
	wantRun(t, 1, []string{"in use by a running server", "--http-addr"}, "check", data)
	wantRun(t, 1, []string{"in use by a running server"}, "repair", data)
	p.put("put after.backup 1700000000 1 host=a")
	p.values("after.backup", 1)
	p.settle()
	p.kill()

	wantRun(t, 0, []string{"no damage found"}, "check", data)
	wantRun(t, 0, []string{"BYTES/SAMPLE"}, "inspect", data)
	wantRun(t, 0, []string{"times=regular", "5000"}, "inspect", data, "series", "in.files", "host=a")
	wantRun(t, 1, []string{"no series of in.files"}, "inspect", data, "series", "in.files", "host=b")
	wantRun(t, 0, []string{"SEGMENT"}, "inspect", data, "log", "records")
	wantRun(t, 0, []string{"next series"}, "inspect", data, "catalogue")
	wantRun(t, 2, []string{"want series METRIC"}, "inspect", data, "everything")
	wantRun(t, 0, []string{"in.files"}, "stats", data)

	restored := start(t, filepath.Join(dir, "backups", "first"))
	restored.values("in.files", 5000)
	restored.values("in.log", 50)
	restored.wantValues("after.backup", 0, "[]")
	restored.stop(syscall.SIGTERM)

	file := damageOldest(t, dir)
	wantRun(t, 1, []string{"DAMAGED", file, "remedy", "in.files{host=a}"}, "check", data)
	wantRun(t, 1, []string{"nothing was changed"}, "repair", data, "--dry-run")
	wantRun(t, 1, []string{"DAMAGED"}, "check", data)
	wantRun(t, 0, []string{"no damage found", "quarantine"}, "repair", data)
	wantRun(t, 0, []string{"no damage found"}, "check", data)
	if _, err := os.Stat(filepath.Join(dir, "quarantine", filepath.Base(file)+".txt")); err != nil {
		t.Error(err)
	}
	p = start(t, dir)
	p.wantValues("after.backup", 1, "[[1700000000000,1]]")
	p.values("in.log", 50)
	p.stop(syscall.SIGTERM)
}

// damageOldest flips a bit in the first page of the first block file.
func damageOldest(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "blocks", "*.blk"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no block files: %v", err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[200] ^= 1
	if err := os.WriteFile(files[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	return files[0]
}

// A server goes on with a damaged file: other queries are answered, health says
// so without turning load balancers away.
func TestServeDamagedFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := filled(t, dir)
	p.settle()
	p.kill()
	damageOldest(t, dir)
	p = start(t, dir)
	p.values("in.log", 50)
	if status, body := p.do("POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"in.files"}]}`); status != 500 {
		t.Errorf("a query of the damaged part: %d %.300s", status, body)
	}
	if _, body := p.do("GET", "/api/v1/health/status", ""); !strings.Contains(body, "Datastore-Files: FAIL") {
		t.Errorf("health: %s", body)
	}
	if status, _ := p.do("GET", "/api/v1/health/check", ""); status != 204 {
		t.Errorf("health check: %d", status)
	}
	if _, body := p.do("GET", "/internal/metrics", ""); !strings.Contains(body, "\nvarve_store_damaged_files 1\n") {
		t.Error("no metric of damaged files")
	}
	wantRun(t, 1, []string{"DAMAGED"}, "check", "--http-addr="+p.http)
}

func TestDirectoryFromConfiguration(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	filled(t, dir).stop(syscall.SIGTERM)
	status, stdout, stderr := once(t, []string{"VARVE_DATA_DIR=" + dir}, "check")
	if status != 0 || !strings.Contains(stdout, "no damage found") {
		t.Errorf("%d %s%s", status, stdout, stderr)
	}
	wantRun(t, 1, []string{"holds no store"}, "check", "--data-dir=/nowhere/at/all")
	wantRun(t, 2, []string{"did you mean --data-dir?"}, "check", "--data-dr=x")
}

func TestAdminRefusals(t *testing.T) {
	p := start(t, t.TempDir())
	for _, tc := range []struct{ method, path, body, want string }{
		{"POST", "/admin/backup", `{"dir":"a/b"}`, "a name has"},
		{"POST", "/admin/backup", `{"to":"b"}`, "unknown field"},
		{"POST", "/admin/backup", ``, "want {"},
		{"POST", "/admin/check?rate=fast", ``, "rate: want"},
		{"GET", "/admin/stats?top=-1", ``, "top: want"},
		{"GET", "/admin/stats?tops=5", ``, `unknown parameter "tops"; did you mean top?`},
		{"POST", "/admin/check?host=a", ``, `unknown parameter "host"; /admin/check takes rate`},
		{"POST", "/admin/compact?x=1", ``, "/admin/compact takes none"},
		{"POST", "/admin/backup?dir=a", `{"dir":"a"}`, "/admin/backup takes none"},
		{"POST", "/admin/reload?x=1", ``, "/admin/reload takes none"},
		{"GET", "/admin/cardinality?metrics=a", ``, "did you mean metric?"},
		{"GET", "/admin/rejected?limit=1", ``, "/admin/rejected takes none"},
		{"GET", "/admin/slowqueries?limit=1", ``, "/admin/slowqueries takes none"},
		{"GET", "/api/v1/metricnames?prefx=a", ``, "did you mean prefix?"},
		{"GET", "/api/v1/tagvalues?metric=a&host=b", ``, `unknown parameter "host"`},
		{"GET", "/api/v1/export?metrics=a", ``, "did you mean metric?"},
		{"POST", "/api/v1/import?metric=a", ``, "/api/v1/import takes none"},
		{"POST", "/api/v1/datapoints/query?partal=allow", `{}`, "did you mean partial?"},
	} {
		if status, body := p.do(tc.method, tc.path, tc.body); status != 400 || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), tc.want) {
			t.Errorf("%s %s %s: %d %s", tc.method, tc.path, tc.body, status, body)
		}
	}
	for _, path := range []string{"/api/v1/metricnames?_=1700000000000", "/api/v1/version?app=mine", "/admin/stats?_dc=1"} {
		if status, body := p.do("GET", path, ""); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	var out bytes.Buffer
	nobody := cqltest.ClosedPort(t)
	if code := run(terminal{stdout: &out, stderr: &out}, []string{"backup", "--http-addr=" + nobody}); code != exitFault || !strings.Contains(out.String(), "ask the server at "+nobody) {
		t.Errorf("%d %s", code, out.String())
	}
}

// TestStartWithoutAPart: a data directory of which a part is missing, as after a restore that was
// cut off, is refused and found damaged. Once the operator accepts the loss, the rest is served.
func TestStartWithoutAPart(t *testing.T) {
	serve := []string{"--http-addr=127.0.0.1:0", "--telnet-addr=", "--carbon-addr=", "--pickle-addr="}
	for part, c := range map[string]struct {
		accept func(dir string) // that the part is lost
		left   int              // points of in.log
	}{
		"log": {func(dir string) {
			wantRun(t, 1, []string{"put the file back"}, "check", "--data-dir", dir)
			wantRun(t, 0, []string{".wal: is missing"}, "repair", "--data-dir", dir)
		}, 0},
		"timelines": {func(dir string) {
			if err := os.Mkdir(filepath.Join(dir, "timelines"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, 50},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		filled(t, dir).kill()
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			t.Fatal(err)
		}
		wantRun(t, 1, []string{part}, "check", "--data-dir", dir)
		wantRun(t, 1, []string{part}, append([]string{"serve", "--data-dir", dir}, serve...)...)
		c.accept(dir)
		wantRun(t, 0, nil, "check", "--data-dir", dir)
		p := start(t, dir)
		p.values("in.files", 5000)
		p.values("in.log", c.left)
		p.stop(os.Interrupt)
	}
}

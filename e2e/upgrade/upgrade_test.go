package upgrade

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// An earlier is a build of an earlier commit, and the flags that it knows.
type earlier struct {
	commit, since string
	flags         []string
}

var telnetOnly = []string{"--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0"}

// ports keep all listeners of a build of today on free ports.
var ports = append([]string{"--carbon-addr=127.0.0.1:0", "--pickle-addr=127.0.0.1:0"}, telnetOnly...)

var builds = []earlier{
	{"b641235", "before Cassandra and Graphite", telnetOnly},
	{"28e4b21", "over Cassandra, before Graphite", telnetOnly},
	{"118ffaa", "the first that folds samples", ports},
}

// TestUpgrade upgrades from each earlier build to this one and goes back, once after
// an orderly end and once after kill -9.
func TestUpgrade(t *testing.T) {
	for _, b := range builds {
		old := build(t, b.commit)
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/killed=%t", b.commit, killed), func(t *testing.T) {
				dir := t.TempDir()
				was := start(t, old, dir, b.flags...)
				was.fill(t)
				want := was.answers(t)
				if strings.Count(want, "\n") < 10 || !strings.Contains(want, `"values":[[`) {
					t.Fatalf("the old build answers\n%s", want)
				}
				was.end(t, killed)

				now := start(t, process.Binary, dir, ports...)
				if got := now.answers(t); got != want {
					t.Fatalf("this build answers otherwise:\n%s\nthan %s, %s:\n%s", got, b.commit, b.since, want)
				}
				now.do(t, "POST", "/api/v1/datapoints", `[{"name":"since.upgrade","datapoints":[[1700000000000,7]],"tags":{"host":"a"}}]`)
				want = now.answers(t)
				now.end(t, killed)
				check(t, dir)
				back(t, old, dir, b, want)
			})
		}
	}
}

// back starts the old build on a store that this one has written. It must give the same
// answers, or refuse the store and say what to do.
func back(t *testing.T, old, dir string, b earlier, want string) {
	t.Helper()
	was, refusal := tryStart(t, old, dir, b.flags...)
	if refusal != "" {
		t.Logf("%s refuses the store of this build: %s", b.commit, refusal)
		if !strings.Contains(refusal, "use a newer build") && !strings.Contains(refusal, "newer version") {
			t.Errorf("%s does not say what to do: %s", b.commit, refusal)
		}
		return
	}
	t.Logf("%s reads the store of this build", b.commit)
	if got := was.answers(t); got != want {
		t.Errorf("%s answers otherwise after this build:\n%s\nwant\n%s", b.commit, got, want)
	}
	was.end(t, false)
}

// TestFoldedStoreGoesBack: builds from before folds do not know buckets, and must not
// read them as samples.
func TestFoldedStoreGoesBack(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "storage-schemas.conf")
	if err := os.WriteFile(rules, []byte("[all]\npattern = .*\nretentions = 10s:1d,1h:10y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	flags := append([]string{"--retention-enforce=true", "--storage-schemas=" + rules}, ports...)
	now := start(t, process.Binary, dir, append(flags, "--tune=embedded.late_hold=0s")...) // folds do not wait after the start
	now.fill(t)
	now.do(t, "POST", "/admin/compact", "")
	if n := now.metric(t, "varve_store_folded_samples_total"); n == "0" || n == "" {
		t.Fatalf("%q samples were folded", n)
	}
	now.end(t, false)
	for _, b := range builds[:2] {
		was, refusal := tryStart(t, build(t, b.commit), dir, b.flags...)
		if refusal == "" {
			t.Errorf("%s opens a store with buckets, which it does not know, and answers\n%s", b.commit, was.answers(t))
			was.end(t, true)
			continue
		}
		if !strings.Contains(refusal, "use a newer one") {
			t.Errorf("%s does not say what to do: %s", b.commit, refusal)
		}
		t.Logf("%s refuses buckets: %s", b.commit, refusal)
	}
}

// build builds the varve of an earlier commit, once per machine, because the result
// depends on the commit alone.
func build(t *testing.T, commit string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(cache, "varve", "upgrade", "varve-"+commit)
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	if err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("*** UPGRADE FROM %s NOT TRIED: this clone does not have that commit; git fetch --unshallow ***", commit)
	}
	command := exec.Command("git", "archive", "--format=tar", commit, "go.mod", "go.sum", "cmd", "internal")
	command.Dir = filepath.Join("..", "..")
	archive, err := command.Output()
	if err != nil {
		t.Fatalf("git archive %s: %v", commit, err)
	}
	source := t.TempDir()
	unpack(t, archive, source)
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary+".new", "./cmd/varve")
	c.Dir, c.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	if err := os.Rename(binary+".new", binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

func unpack(t *testing.T, archive []byte, dir string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			continue
		}
		path := filepath.Join(dir, h.Name)
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A server is a varve of some build.
type server struct {
	url     string
	command *exec.Cmd
	stderr  *bytes.Buffer // read only after the end
}

func start(t *testing.T, binary, dir string, flags ...string) *server {
	t.Helper()
	s, refusal := tryStart(t, binary, dir, flags...)
	if refusal != "" {
		t.Fatalf("%s does not start: %s", filepath.Base(binary), refusal)
	}
	return s
}

// startWithin is how long a start may take on a busy machine.
const startWithin = 2 * time.Minute

var greeted = regexp.MustCompile(`^ +HTTP +(http://\S+)`)

// tryStart returns the server's message if it does not start.
func tryStart(t *testing.T, binary, dir string, flags ...string) (s *server, refusal string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	s = &server{stderr: &bytes.Buffer{}}
	s.command = exec.Command(binary, append([]string{"serve", "--data-dir", dir}, flags...)...)
	process.EndWithTest(s.command)
	s.command.Env, s.command.Stderr = process.Environment(), s.stderr
	out, err := s.command.StdoutPipe()
	if err == nil {
		err = s.command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	child := s.command.Process
	t.Cleanup(func() { child.Kill() })
	stop := context.AfterFunc(ctx, func() { child.Kill() })
	defer stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := greeted.FindStringSubmatch(lines.Text()); m != nil {
			s.url = m[1]
		}
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			return s, ""
		}
	}
	s.command.Wait()
	return nil, strings.TrimSpace(s.stderr.String())
}

// end stops the server, or kills it.
func (s *server) end(t *testing.T, killed bool) {
	t.Helper()
	if killed {
		s.command.Process.Kill()
		s.command.Wait()
		return
	}
	s.command.Process.Signal(os.Interrupt)
	if err := s.command.Wait(); err != nil {
		t.Fatalf("at its end: %v\n%s", err, s.stderr)
	}
}

// check runs varve check of this build.
func check(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command(process.Binary, "check", "--data-dir", dir).CombinedOutput(); err != nil {
		t.Errorf("varve check: %v\n%s", err, out)
	}
}

func (s *server) do(t *testing.T, method, path, body string) string {
	t.Helper()
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Timeout: process.AnswerWithin}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s: %s (%v)", method, path, response.Status, text, err)
	}
	return string(text)
}

// metric returns the value of a metric without labels.
func (s *server) metric(t *testing.T, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(s.do(t, "GET", "/internal/metrics", ""))
	if m == nil {
		return ""
	}
	return m[1]
}

// fill stores points of all types over half a year, in files and in memory, overwrites and
// deletes some, and makes metadata and a roll-up task.
func (s *server) fill(t *testing.T) {
	t.Helper()
	const from, day = 1690000000000, 24 * 3600 * 1000
	for part := range 4 {
		var b strings.Builder
		b.WriteString("[")
		for host := range 5 {
			for d := part * 45; d < part*45+45; d++ {
				at := int64(from + d*day)
				fmt.Fprintf(&b, `{"name":"up.long","datapoints":[[%d,%d],[%d,%d]],"tags":{"host":"h%d","dc":"x"}},`, at, d*host, at+60000, -d, host)
				fmt.Fprintf(&b, `{"name":"up.double","datapoints":[[%d,%d.25],[%d,1e-7]],"tags":{"host":"h%d"}},`, at, d, at+1, host)
				fmt.Fprintf(&b, `{"name":"up.text","type":"string","datapoints":[[%d,"day %d, \"quoted\" é"]],"tags":{"host":"h%d"}},`, at, d, host)
			}
		}
		s.do(t, "POST", "/api/v1/datapoints", strings.TrimSuffix(b.String(), ",")+"]")
		if part == 1 {
			s.do(t, "POST", "/admin/compact", "") // to files
		}
	}
	s.do(t, "POST", "/api/v1/datapoints", `[{"name":"up.long","datapoints":[[1690000000000,4242]],"tags":{"host":"h1","dc":"x"}}]`)
	s.do(t, "POST", "/api/v1/datapoints", `[{"name":"up.ttl","ttl":500000000,"datapoints":[[1690000000000,1]],"tags":{"host":"a"}}]`)
	s.do(t, "POST", "/api/v1/datapoints/delete", `{"start_absolute":1691000000000,"end_absolute":1692000000000,"metrics":[{"name":"up.double","tags":{"host":["h2"]}}]}`)
	s.do(t, "POST", "/api/v1/metadata/service/key/name", "a value")
	s.do(t, "POST", "/api/v1/rollups", `{"name":"up","execution_interval":{"value":1,"unit":"days"},"rollups":[{"save_as":"up.rolled","query":{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"up.none","aggregators":[{"name":"sum","sampling":{"value":1,"unit":"minutes"}}]}]}}]}`)
}

// answers queries all data that fill has stored.
func (s *server) answers(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, metric := range []string{"up.long", "up.double", "up.text", "up.ttl", "since.upgrade"} {
		for _, how := range []string{`"group_by":[{"name":"tag","tags":["host"]}]`, `"aggregators":[{"name":"count","sampling":{"value":1,"unit":"weeks"}}]`, `"tags":{"host":["h2","a"]}`} {
			b.WriteString(s.do(t, "POST", "/api/v1/datapoints/query", `{"start_absolute":1,"end_absolute":1800000000000,"metrics":[{"name":"`+metric+`",`+how+`}]}`) + "\n")
		}
	}
	b.WriteString(s.do(t, "GET", "/api/v1/metricnames?prefix=up", "") + "\n")
	b.WriteString(s.do(t, "POST", "/api/v1/datapoints/query/tags", `{"start_absolute":1,"metrics":[{"name":"up.long"}]}`) + "\n")
	b.WriteString(s.do(t, "GET", "/api/v1/metadata/service/key/name", "") + "\n")
	b.WriteString(s.do(t, "GET", "/api/v1/rollups", "") + "\n")
	return b.String()
}

package graphite

import (
	"bufio"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/graphite/graphitetest"
)

// frontRuns is how long a graphite-web may run.
const frontRuns = 5 * time.Minute

// A front is a graphite-web that has a Varve in its CLUSTER_SERVERS.
type front struct {
	url    string
	client http.Client
	asked  int // requests of compare
}

// startFront runs graphite-web with the settings of the documentation, and more.
func startFront(t *testing.T, s *process.Server, more string) *front {
	t.Helper()
	library := process.Provide(t, "graphite-web", root, "graphiteweb.sh")
	return runFront(t, library, s.Documented(t, root, "python graphite-web")+more)
}

// runFront runs graphite-web with settings and libraries.
func runFront(t *testing.T, library, settings string) *front {
	t.Helper()
	dir := t.TempDir()
	local := filepath.Join(dir, "local_settings.py")
	if err := os.WriteFile(local, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), frontRuns+time.Duration(*questions)*time.Second)
	c := process.Command(ctx, "python3", filepath.Join("python", "front.py"), dir, local)
	c.Env = append(os.Environ(), "PYTHONPATH="+library, "PYTHONDONTWRITEBYTECODE=1")
	var said strings.Builder
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	f := &front{client: http.Client{Timeout: process.AnswerWithin, Transport: &http.Transport{}}}
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		cancel()
		c.Wait()
		if t.Failed() {
			t.Logf("graphite-web said:\n%s", said.String())
		}
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("graphite-web does not start: %v", err)
	}
	f.url = "http://127.0.0.1:" + strings.TrimSpace(port)
	return f
}

// An answer is an answer of an HTTP server.
type answer struct {
	status      int
	contentType string
	body        []byte
}

// ask sends a request as a browser or Grafana does.
func ask(t *testing.T, client *http.Client, base, method, path string, form url.Values) answer {
	t.Helper()
	address, body := base+path, io.Reader(nil)
	if method == http.MethodPost {
		body = strings.NewReader(form.Encode())
	} else if len(form) > 0 {
		address += "?" + form.Encode()
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{w.StatusCode, w.Header.Get("Content-Type"), text}
}

// send stores lines of carbon.
func send(t *testing.T, s *process.Server, lines string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", s.Carbon(t, "lines"), process.AnswerWithin)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, lines); err != nil {
		t.Fatal(err)
	}
	c.(*net.TCPConn).CloseWrite()
	if said, err := io.ReadAll(c); err != nil || len(said) > 0 { // the server closes once all lines are stored
		t.Fatalf("carbon answers %q, %v", said, err)
	}
}

// startRecorded starts a server with the recorded data.
func startRecorded(t *testing.T) *process.Server {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{}
	for _, name := range []string{graphitetest.Schemas, graphitetest.Aggregation} {
		files[name] = filepath.Join(dir, name)
		if err := os.WriteFile(files[name], []byte(lines(t, name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := process.Start(t, filepath.Join(dir, "data"), "--storage-schemas", files[graphitetest.Schemas], "--storage-aggregation", files[graphitetest.Aggregation])
	for _, name := range graphitetest.Data {
		send(t, s, lines(t, name))
	}
	return s
}

func lines(t *testing.T, name string) string {
	var text strings.Builder
	graphitetest.Lines(t, name, func(line string) { text.WriteString(line + "\n") })
	return text.String()
}

// other are the cases that graphite-web answers differently in front of any
// server.
var other = map[string]string{
	"render-calculate-084": wallClock,
	"render-graph-019":     wallClock,
	"render-graph-021":     wallClock,
	"render-transform-179": wallClock,
	"render-transform-180": wallClock,
	"render-transform-181": wallClock,
	"render-transform-182": wallClock,
	"render-formats-034":   ownFiles,
	"find-123":             ownPickle,
	"render-special-048":   ownEvents,
	"render-special-049":   ownEvents,
	"render-special-050":   ownEvents,
	"render-special-052":   ownEvents,
}

const (
	wallClock = "the function looks at the clock, which was another when the case was recorded"
	ownFiles  = "local=1 asks for graphite-web's own files"
	ownPickle = "the intervals of nodes are objects of graphite-web's classes"
	ownEvents = "graphite-web has events of its own"
)

// all makes the tests send every recorded request.
var all = flag.Bool("graphite.all", false, "send every recorded request to each graphite-web")

// TestFront sends recorded requests to graphite-webs that read from Varve in each
// possible way. Their answers must be those of a graphite-web with Whisper.
func TestFront(t *testing.T) {
	process.SkipShort(t)
	s := startRecorded(t)
	for _, way := range []struct {
		name, settings string
		every          int      // one case out of this many is sent
		whole          []string // topics whose cases are all sent
	}{
		{"POST", "REMOTE_STORE_USE_POST = True\n", 40, nil},
		{"msgpack", "CLUSTER_SERVERS = ['http://" + s.HTTP + "/?format=msgpack&local=0']\n", 40, nil},
		{"documented", "", 10, []string{"archives", "find", "expand", "index", "tags"}}, // the last: its tags are deleted
	} {
		t.Run(way.name, func(t *testing.T) {
			f := startFront(t, s, way.settings)
			for _, file := range graphitetest.Topics(t, "") {
				topic := strings.TrimSuffix(file, ".jsonl.gz")
				if topic == "events" || topic == "functions" || topic == "tags" && !slices.Contains(way.whole, topic) {
					continue // graphite-web answers the first two itself
				}
				n := 0
				graphitetest.Each(t, file, func(c *graphitetest.Case) {
					n++
					if *all || n%way.every == 1 || slices.Contains(way.whole, topic) {
						f.compare(t, c)
					}
				})
			}
			t.Logf("%d requests", f.asked)
		})
	}
	s.Stop(t)
}

// compare sends the request of a case.
func (f *front) compare(t *testing.T, c *graphitetest.Case) {
	t.Helper()
	if other[c.ID] != "" {
		return
	}
	f.asked++
	w := ask(t, &f.client, f.url, c.Request.Method, c.Request.Path, c.Form())
	if fault := c.Fault(w.status, w.contentType, w.body); fault != "" {
		t.Errorf("%s: %s %v: %.500s", c.ID, c.Request.Path, c.Request.Params, fault)
	}
}

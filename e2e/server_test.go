package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	readyWithin   = 30 * time.Second // what a start may take, replay included
	stopWithin    = 10 * time.Second // what the server promises for SIGTERM
	answerWithin  = 30 * time.Second // what one request may take
	pollEvery     = 2 * time.Millisecond
	visibleWithin = 20 * time.Second // what telnet input may take until queries see it
)

// A server is a process that runs varve serve, with HTTP and telnet on free
// ports of loopback.
type server struct {
	command      *exec.Cmd
	log          *logbook
	greeted      *greeting
	ready        time.Duration // from the start of the process to the greeting
	http, telnet string        // host:port
	client       *http.Client
	ending       atomic.Bool // the test has begun to end it
	exited       chan struct{}
	err          error // how it exited
}

// A greeting is what a server prints when it is ready.
type greeting struct {
	mu       sync.Mutex
	text     bytes.Buffer
	complete chan struct{}
}

func (g *greeting) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	had := g.done()
	g.text.Write(b)
	if !had && g.done() {
		close(g.complete)
	}
	return len(b), nil
}

func (g *greeting) done() bool { return bytes.Contains(g.text.Bytes(), []byte("\nCtrl-C")) }

func (g *greeting) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

// launch starts varve serve on dir without waiting for it.
func launch(t *testing.T, dir string, flags ...string) *server {
	t.Helper()
	args := append([]string{"serve", "--data-dir", dir, "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0"}, flags...)
	s := &server{
		command: exec.Command(binary, args...),
		log:     newLogbook(),
		greeted: &greeting{complete: make(chan struct{})},
		client:  &http.Client{Timeout: answerWithin, Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		exited:  make(chan struct{}),
	}
	endWithTest(s.command)
	s.command.Stderr = s.log
	s.command.Stdout = s.greeted
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.exited)
		s.err = s.command.Wait()
	}()
	t.Cleanup(s.kill)
	return s
}

// start starts varve serve on dir and waits until it is ready.
func start(t *testing.T, dir string, flags ...string) *server {
	t.Helper()
	began := time.Now()
	s := launch(t, dir, flags...)
	select {
	case <-s.greeted.complete:
	case <-s.exited:
		t.Fatalf("the server ended instead of getting ready: %v\n%s", s.err, s.log.tail())
	case <-time.After(readyWithin):
		s.kill()
		t.Fatalf("the server did not get ready within %v\n%s", readyWithin, s.log.tail())
	}
	s.ready = time.Since(began)
	s.http = s.find(t, `(?m)^ +HTTP +http://(\S+)$`)
	s.telnet = s.find(t, `(?m)^ +telnet +(\S+)$`)
	return s
}

// find returns the first group of expr in the greeting.
func (s *server) find(t *testing.T, expr string) string {
	t.Helper()
	m := regexp.MustCompile(expr).FindStringSubmatch(s.greeted.String())
	if m == nil {
		t.Fatalf("no %s in the greeting:\n%s", expr, s.greeted)
	}
	return m[1]
}

// kill ends the process as kill -9 does, if it still runs.
func (s *server) kill() {
	s.ending.Store(true)
	s.command.Process.Kill()
	<-s.exited
	s.client.CloseIdleConnections()
}

// stop sends SIGTERM and wants an exit with status 0 within the promised time.
func (s *server) stop(t *testing.T) time.Duration {
	t.Helper()
	s.ending.Store(true)
	began := time.Now()
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("SIGTERM: %v", err)
	}
	select {
	case <-s.exited:
	case <-time.After(stopWithin):
		s.kill()
		t.Fatalf("still running %v after SIGTERM\n%s", stopWithin, s.log.tail())
	}
	s.client.CloseIdleConnections()
	if s.err != nil {
		t.Fatalf("after SIGTERM: %v, want exit status 0\n%s", s.err, s.log.tail())
	}
	return time.Since(began)
}

// do sends a request and returns status and body.
func (s *server) do(ctx context.Context, method, path, body string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.http+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// A statusError is an answer with another status than the one wanted.
type statusError struct {
	request   string
	got, want int
	body      []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d, want %d: %.500s", e.request, e.got, e.want, e.body)
}

// want sends a request that has to be answered with a status.
func (s *server) want(ctx context.Context, status int, method, path, body string) ([]byte, error) {
	got, answer, err := s.do(ctx, method, path, body)
	if err == nil && got != status {
		err = &statusError{request: method + " " + path, got: got, want: status, body: answer}
	}
	return answer, err
}

// A result is one group of an answer to a query.
type result struct {
	Name    string
	GroupBy []struct {
		Name  string
		Group json.RawMessage // its form depends on the name
	} `json:"group_by"`
	Tags   map[string][]string
	Values [][2]json.RawMessage // time in milliseconds, value
}

// group returns the value of the only tag that the query grouped by.
func (r result) group() string {
	for _, g := range r.GroupBy {
		var group map[string]string
		if g.Name != "tag" || json.Unmarshal(g.Group, &group) != nil {
			continue
		}
		for _, value := range group {
			return value
		}
	}
	return ""
}

// query asks a query with one metric.
func (s *server) query(ctx context.Context, body string) ([]result, error) {
	answer, err := s.want(ctx, http.StatusOK, "POST", "/api/v1/datapoints/query", body)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Queries []struct{ Results []result }
	}
	if err := json.Unmarshal(answer, &parsed); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", body, err)
	}
	if len(parsed.Queries) != 1 {
		return nil, fmt.Errorf("answer to %s has %d queries", body, len(parsed.Queries))
	}
	return parsed.Queries[0].Results, nil
}

// metricNames returns the names of all metrics that begin with prefix.
func (s *server) metricNames(ctx context.Context, prefix string) ([]string, error) {
	answer, err := s.want(ctx, http.StatusOK, "GET", "/api/v1/metricnames?prefix="+prefix, "")
	if err != nil {
		return nil, err
	}
	var names struct{ Results []string }
	err = json.Unmarshal(answer, &names)
	return names.Results, err
}

// metrics are the server's own metrics: name with labels to value.
type metrics map[string]float64

func (s *server) metrics(ctx context.Context) (metrics, error) {
	answer, err := s.want(ctx, http.StatusOK, "GET", "/internal/metrics", "")
	if err != nil {
		return nil, err
	}
	m := make(metrics)
	for line := range strings.Lines(string(answer)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			m[name] = v
		}
	}
	return m, nil
}

// sum adds what name is over all labels.
func (m metrics) sum(name string) (sum float64) {
	for labelled, v := range m {
		if base, _, _ := strings.Cut(labelled, "{"); base == name {
			sum += v
		}
	}
	return sum
}

// fault names a metric that says that something went wrong inside the server.
func (m metrics) fault() error {
	for _, name := range []string{
		"varve_wal_failures_total", "varve_store_checkpoint_failures_total", "varve_store_merge_failures_total",
		"varve_server_panics_total", "varve_ingest_rejected_total",
	} {
		if v := m.sum(name); v != 0 {
			return fmt.Errorf("%s is %v, want 0", name, v)
		}
	}
	return nil
}

// dial connects to the telnet port.
func (s *server) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{Timeout: answerWithin}).DialContext(ctx, "tcp", s.telnet)
}

// until asks done again and again until it is true.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	for limit := time.Now().Add(visibleWithin); ; time.Sleep(pollEvery) {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(limit) {
			return errors.New(what + ": not within " + visibleWithin.String())
		}
	}
}

// hostPort splits an address.
func hostPort(t *testing.T, address string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

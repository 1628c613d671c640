package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	readyWithin   = time.Minute      // time limit of a start, including replay, on a busy machine
	stopWithin    = 30 * time.Second // three times what the server promises for SIGTERM
	visibleWithin = time.Minute      // time limit until queries see telnet input, on a busy machine
)

const (
	AnswerWithin = 30 * time.Second     // time limit of one request
	PollEvery    = 2 * time.Millisecond // interval between checks of something that will change
)

// A Server is a process that runs varve serve, with HTTP and telnet on free
// ports of loopback.
type Server struct {
	Log          *Logbook
	Ready        time.Duration // from the start of the process to the greeting
	HTTP, Telnet string        // host:port
	Scheme       string        // of HTTP: http or https
	Client       *http.Client
	Ending       atomic.Bool   // the test has begun to end it
	Exited       chan struct{} // closed at its end
	Err          error         // how it exited; valid once Exited is closed

	command *exec.Cmd
	greeted *greeting
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

// Launch starts varve serve on dir without waiting for it.
func Launch(t *testing.T, dir string, flags ...string) *Server {
	t.Helper()
	return launch(t, program{path: Binary}, dir, flags)
}

// A program is a varve, and variables of its environment besides those of Environment.
type program struct {
	path      string
	variables []string
}

func launch(t *testing.T, p program, dir string, flags []string) *Server {
	t.Helper()
	args := append([]string{"serve", "--data-dir", dir, "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0", "--carbon-addr=127.0.0.1:0", "--pickle-addr=127.0.0.1:0"}, flags...)
	s := &Server{
		command: exec.Command(p.path, args...),
		Log:     newLogbook(),
		greeted: &greeting{complete: make(chan struct{})},
		Client:  &http.Client{Timeout: AnswerWithin, Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		Exited:  make(chan struct{}),
	}
	EndWithTest(s.command)
	s.command.Env = append(Environment(), p.variables...)
	s.command.Stderr = s.Log
	s.command.Stdout = s.greeted
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.Exited)
		s.Err = s.command.Wait()
	}()
	t.Cleanup(s.Kill)
	return s
}

// Environment is the environment of the test binary without variables of Varve,
// which would be read as settings, or refused.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "VARVE_") })
}

// Start starts varve serve on dir and waits until it is ready.
func Start(t *testing.T, dir string, flags ...string) *Server {
	t.Helper()
	return start(t, program{path: Binary}, dir, flags)
}

// StartWithFiles is Start for a server that may have at most files files and connections
// open.
func StartWithFiles(t *testing.T, files int, dir string, flags ...string) *Server {
	t.Helper()
	script := filepath.Join(t.TempDir(), "varve")
	text := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n", files, Binary)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return start(t, program{path: script}, dir, flags)
}

func start(t *testing.T, p program, dir string, flags []string) *Server {
	t.Helper()
	began := time.Now()
	s := launch(t, p, dir, flags)
	select {
	case <-s.greeted.complete:
	case <-s.Exited:
		t.Fatalf("the server ended instead of getting ready: %v\n%s", s.Err, s.Log.Tail())
	case <-time.After(readyWithin):
		s.Kill()
		t.Fatalf("the server did not get ready within %v\n%s", readyWithin, s.Log.Tail())
	}
	s.Ready = time.Since(began)
	s.Scheme = s.find(t, `(?m)^ +HTTP +(https?)://`)
	s.HTTP = s.find(t, `(?m)^ +HTTP +https?://(\S+)$`)
	s.Telnet = s.find(t, `(?m)^ +telnet +(\S+)(?: \(TLS\))?$`)
	return s
}

// find returns the first group of expr in the greeting.
func (s *Server) find(t *testing.T, expr string) string {
	t.Helper()
	m := regexp.MustCompile(expr).FindStringSubmatch(s.greeted.String())
	if m == nil {
		t.Fatalf("no %s in the greeting:\n%s", expr, s.greeted)
	}
	return m[1]
}

// Carbon returns the address for Graphite's lines or pickles.
func (s *Server) Carbon(t *testing.T, what string) string {
	t.Helper()
	return s.find(t, `(?m)^ +carbon +(\S+) \(`+what+`(?:, TLS)?\)$`)
}

// Pid returns the number of the process.
func (s *Server) Pid() int { return s.command.Process.Pid }

// Kill ends the process as kill -9 does, if it still runs.
func (s *Server) Kill() {
	s.Ending.Store(true)
	s.command.Process.Kill()
	<-s.Exited
	s.Client.CloseIdleConnections()
}

// Stop sends SIGTERM, and fails the test unless the server exits with status 0
// within the promised time.
func (s *Server) Stop(t *testing.T) time.Duration {
	t.Helper()
	took, err := s.Terminate()
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Log.Tail())
	}
	return took
}

// Terminate is Stop for any goroutine: it returns an error.
func (s *Server) Terminate() (time.Duration, error) {
	s.Ending.Store(true)
	defer s.Client.CloseIdleConnections()
	began := time.Now()
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("SIGTERM: %w", err)
	}
	select {
	case <-s.Exited:
	case <-time.After(stopWithin):
		s.Kill()
		return 0, fmt.Errorf("still running %v after SIGTERM", stopWithin)
	}
	if s.Err != nil {
		return 0, fmt.Errorf("after SIGTERM: %w, want exit status 0", s.Err)
	}
	return time.Since(began), nil
}

// Do sends a request and returns status and body.
func (s *Server) Do(ctx context.Context, method, path, body string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.Scheme+"://"+s.HTTP+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	return s.Send(request)
}

// Send sends a request that the caller has made, and returns status and body.
func (s *Server) Send(request *http.Request) (int, []byte, error) {
	response, err := s.Client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// A StatusError is an answer with an unexpected status.
type StatusError struct {
	Request   string
	Got, Want int
	Body      []byte
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: status %d, want %d: %.500s", e.Request, e.Got, e.Want, e.Body)
}

// Want sends a request, and returns an error unless the answer has the given
// status.
func (s *Server) Want(ctx context.Context, status int, method, path, body string) ([]byte, error) {
	got, answer, err := s.Do(ctx, method, path, body)
	if err == nil && got != status {
		err = &StatusError{Request: method + " " + path, Got: got, Want: status, Body: answer}
	}
	return answer, err
}

// A Result is one group of an answer to a query.
type Result struct {
	Name    string
	GroupBy []struct {
		Name  string
		Group json.RawMessage // its form depends on the name
	} `json:"group_by"`
	Tags   map[string][]string
	Values [][2]json.RawMessage // time in milliseconds, value
}

// Group returns the value of the only tag that the query grouped by.
func (r Result) Group() string {
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

// Query asks a query with one metric.
func (s *Server) Query(ctx context.Context, body string) ([]Result, error) {
	answer, err := s.Want(ctx, http.StatusOK, "POST", "/api/v1/datapoints/query", body)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Queries []struct{ Results []Result }
	}
	if err := json.Unmarshal(answer, &parsed); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", body, err)
	}
	if len(parsed.Queries) != 1 {
		return nil, fmt.Errorf("answer to %s has %d queries", body, len(parsed.Queries))
	}
	return parsed.Queries[0].Results, nil
}

// MetricNames returns the names of all metrics that begin with prefix.
func (s *Server) MetricNames(ctx context.Context, prefix string) ([]string, error) {
	answer, err := s.Want(ctx, http.StatusOK, "GET", "/api/v1/metricnames?prefix="+prefix, "")
	if err != nil {
		return nil, err
	}
	var names struct{ Results []string }
	err = json.Unmarshal(answer, &names)
	return names.Results, err
}

// Metrics are the server's own metrics: name with labels to value.
type Metrics map[string]float64

func (s *Server) Metrics(ctx context.Context) (Metrics, error) {
	answer, err := s.Want(ctx, http.StatusOK, "GET", "/internal/metrics", "")
	if err != nil {
		return nil, err
	}
	m := make(Metrics)
	for line := range strings.Lines(string(answer)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			m[name] = v
		}
	}
	return m, nil
}

// Sum adds the values of a metric over all labels.
func (m Metrics) Sum(name string) (sum float64) {
	for labelled, v := range m {
		if base, _, _ := strings.Cut(labelled, "{"); base == name {
			sum += v
		}
	}
	return sum
}

// Fault returns an error that names a metric that shows an internal fault of
// the server.
func (m Metrics) Fault() error {
	for _, name := range []string{
		"varve_wal_failures_total", "varve_store_checkpoint_failures_total", "varve_store_merge_failures_total",
		"varve_server_panics_total", "varve_ingest_rejected_total",
	} {
		if v := m.Sum(name); v != 0 {
			return fmt.Errorf("%s is %v, want 0", name, v)
		}
	}
	return nil
}

// Dial connects to the telnet port.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{Timeout: AnswerWithin}).DialContext(ctx, "tcp", s.Telnet)
}

// Until calls done repeatedly until it returns true.
func Until(ctx context.Context, what string, done func() (bool, error)) error {
	for limit := time.Now().Add(visibleWithin); ; time.Sleep(PollEvery) {
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

// HostPort splits an address.
func HostPort(t *testing.T, address string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

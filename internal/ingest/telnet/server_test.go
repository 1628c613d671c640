package telnet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a server on loopback over a recorder.
type harness struct {
	*testing.T
	server   *stream.Server
	recorder *ingesttest.Recorder
	reg      *prometheus.Registry
	pipeline *ingest.Pipeline
	addr     string
	served   chan error
}

func start(t *testing.T, change func(*Config), limits func(*ingest.Config)) *harness {
	t.Helper()
	h := &harness{T: t, recorder: &ingesttest.Recorder{}, served: make(chan error, 1)}
	h.pipeline, h.reg = ingesttest.NewPipeline(h.recorder, limits)
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	h.server = NewServer(h.pipeline, cfg, Options{Registerer: h.reg, Version: "Varve test"})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = ln.Addr().String()
	go func() { h.served <- h.server.Serve(context.Background(), ln) }()
	c, err := net.Dial("tcp", h.addr) // a server that is stopped before it serves takes no connection
	if err != nil {
		t.Fatal(err)
	}
	for h.open() != 1 {
		runtime.Gosched()
	}
	c.Close()
	for h.open() != 0 {
		runtime.Gosched()
	}
	t.Cleanup(h.stop)
	return h
}

func (h *harness) open() float64 {
	return ingesttest.Counters(h.T, h.reg, "varve_telnet_connections")[""]
}

// stop drains the server; it may be called twice.
func (h *harness) stop() {
	h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		h.Fatal(err)
	}
	select {
	case err := <-h.served:
		if err != nil {
			h.Fatal(err)
		}
		h.served <- nil
	case <-ctx.Done():
		h.Fatal("Serve did not return after Shutdown")
	}
}

func (h *harness) dial() *net.TCPConn {
	h.Helper()
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// send writes data in pieces and closes; then the server is drained.
func (h *harness) send(data []byte, piece int) {
	h.Helper()
	c := h.dial()
	if err := ingesttest.WritePieces(c, data, piece); err != nil {
		h.Fatal(err)
	}
	c.Close()
	h.stop()
}

func (h *harness) refused() map[string]float64 {
	return ingesttest.Counters(h.T, h.reg, "varve_ingest_rejected_total")
}

// lineByLine stores a recording without sockets or blocks: what must come out.
func lineByLine(t *testing.T, data []byte) *ingesttest.Recorder {
	t.Helper()
	r := &ingesttest.Recorder{}
	p, reg := ingesttest.NewPipeline(r, nil)
	l := newParser(protocol(p, DefaultConfig(), Options{Registerer: reg}), "test")
	for line := range bytes.Lines(data) {
		if _, err := l.Store(context.Background(), line); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/clients/*.tcp")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := lineByLine(t, data).Text()
		golden(t, strings.TrimSuffix(file, ".tcp")+".golden", want)
		for _, piece := range []int{1, 7, 1428, len(data)} {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(file), piece), func(t *testing.T) {
				h := start(t, nil, nil)
				h.send(data, piece)
				if got := h.recorder.Text(); got != want {
					t.Errorf("stored\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("REWRITE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got+"\n" != string(want) {
		t.Errorf("%s: stored\n%s\nwant\n%s", path, got, want)
	}
}

// TestKairosCases sends the telnet part of KairosDB's recorded cases and
// compares with what their query finds.
func TestKairosCases(t *testing.T) {
	files, _ := filepath.Glob("testdata/cases/*.json")
	if len(files) != 3 {
		t.Fatal("want 3 cases, have", files)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Steps []struct {
					Telnet string
					Expect struct {
						Queries []struct {
							Results []struct{ Values [][]any }
						}
					}
				}
			}
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{}
			for _, v := range c.Steps[1].Expect.Queries[0].Results[0].Values {
				value := fmt.Sprint(v[1])
				if s, ok := v[1].(string); ok {
					value = fmt.Sprintf("%q", s)
				}
				want[fmt.Sprintf("%.0f %s", v[0], value)] = true
			}
			h := start(t, nil, nil)
			h.send([]byte(c.Steps[0].Telnet), 1<<20)
			got := map[string]bool{}
			for _, s := range h.recorder.Samples() {
				f := strings.SplitN(s, " ", 4)
				got[f[2]+" "+f[3]] = true
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("stored %v, want %v", got, want)
			}
		})
	}
}

func TestFaultsAreCountedAndShown(t *testing.T) {
	h := start(t, func(c *Config) { c.MaxLine = 100 }, func(c *ingest.Config) {
		c.MaxTags, c.MaxMetricBytes, c.MaxStringBytes = 2, 20, 10
	})
	h.send([]byte("put m 1 1 h=a\n"+
		"nosuch\n"+
		"put m 1 x h=a\n"+
		"put m 1 1 h=a h=b\n"+
		"put m 1 1 a=1 b=2 c=3\n"+
		"put "+strings.Repeat("m", 21)+" 1 1 h=a\n"+
		"puts s 1 12345678901 h=a\n"+
		"puts s 1 \xff h=a\n"+
		"put m\xff 1 1 h=a\n"+
		"put m 1 nan h=a\n"+
		"put long 1 1 h="+strings.Repeat("x", 200)+"\n"+
		"put m 2 2 h=a\n"+
		"put m 3 33"), 1<<20)
	if got, want := h.recorder.Text(), "m{h=a} long 1000 1\nm{h=a} long 2000 2"; got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	want := map[string]float64{
		"telnet,bad_command": 1, "telnet,bad_value": 1, "telnet,bad_tag": 1, "telnet,too_many_tags": 1, "telnet,name_too_long": 1,
		"telnet,value_too_long": 1, "telnet,bad_utf8": 2, "telnet,not_finite": 1, "telnet,line_too_long": 1, "telnet,unterminated": 1,
	}
	if got := h.refused(); !reflect.DeepEqual(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
}

// A line of max_line bytes is stored, and one more byte costs it.
func TestLongestLine(t *testing.T) {
	h := start(t, func(c *Config) { c.MaxLine = 100 }, nil)
	line := func(ms, length int) string {
		s := fmt.Sprintf("put m %d000 1 h=", ms)
		return s + strings.Repeat("x", length-len(s)) + "\n"
	}
	h.send([]byte(line(1, 100)+line(2, 101)+line(3, 99)), 1<<20)
	if n := len(strings.Fields(h.recorder.Text())) / 4; n != 2 {
		t.Errorf("stored\n%s", h.recorder.Text())
	}
	if got, want := h.refused(), map[string]float64{"telnet,line_too_long": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
}

// A web page makes a browser send a request to the telnet port, with lines in the
// target, in the headers and in the body. Nothing of it is stored, whatever pieces it
// comes in, and the connection ends.
func TestRequestsOfBrowsersStoreNothing(t *testing.T) {
	const lines = "put evil 1 1 h=a\nput evil 2 1 h=a\n"
	long := strings.Repeat("x", 70<<10)
	for name, sent := range map[string]string{
		"form":       "POST / HTTP/1.1\r\nHost: 127.0.0.1:4242\r\nContent-Type: text/plain\r\nContent-Length: 34\r\n\r\n" + lines,
		"head":       "HEAD /x HTTP/1.0\n" + lines,
		"preflight":  "OPTIONS * HTTP/1.1\r\n\r\n" + lines,
		"own method": "putm http://127.0.0.1:4242/ HTTP/1.1\r\n\r\n" + lines,
		"HTTP/2":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + lines,
		"TLS":        "\x16\x03\x01\x02\x00\x01\n" + lines,
		"blank line": "\r\n\r\nPOST / HTTP/1.1\r\n\r\n" + lines,
		"long":       "GET /" + long + " HTTP/1.1\r\n\r\n" + lines,
		"endless":    "POST /" + long + long + long,
	} {
		for _, piece := range []int{1, 1000, 1 << 20} {
			if piece == 1 && len(sent) > 1000 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, piece), func(t *testing.T) {
				h := start(t, nil, nil)
				c := h.dial()
				_ = ingesttest.WritePieces(c, []byte(sent), piece) // the server may be faster
				c.SetReadDeadline(time.Now().Add(time.Minute))
				if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the connection is open, or got an answer: %d bytes, %v", n, err)
				}
				h.stop()
				if got := h.recorder.Text(); got != "" {
					t.Errorf("stored %s", got)
				}
				if got := h.refused(); !reflect.DeepEqual(got, map[string]float64{"telnet,other_protocol": 1}) {
					t.Errorf("refused %v", got)
				}
			})
		}
	}
}

// Only the first line tells the protocol: what looks like a request later on, or
// only a little, costs itself.
func TestLinesThatResembleRequests(t *testing.T) {
	for _, first := range []string{"", "put m 1 1 h=a\n", "version\n", "put POST 1 1 a=HTTP/1.1\n", "puts m 1 HTTP/1.1\n", "GET / HTTP\n", "nosuch\n"} {
		h := start(t, nil, nil)
		after := "POST / HTTP/1.1\n"
		if first == "" {
			after = ""
		}
		h.send([]byte(first+after+"put last 1 1 h=a\n"), 1<<20)
		if got := h.recorder.Text(); !strings.Contains(got, "last{h=a} long 1000 1") {
			t.Errorf("after %q stored %q", first, got)
		}
		if n := h.refused()["telnet,other_protocol"]; n != 0 {
			t.Errorf("after %q: %v connections of another protocol", first, n)
		}
	}
}

// Lines that the store refuses as the sender's fault are counted, and the connection
// goes on.
func TestBlockThatTheStoreRefuses(t *testing.T) {
	h := start(t, nil, nil)
	refuse := true
	h.recorder.OnAppend = func(*store.Batch) error {
		if refuse {
			refuse = false
			return &store.InputError{Reason: "no"}
		}
		return nil
	}
	c := h.dial()
	fmt.Fprint(c, "put m 1 1 h=a\nput m 2 1 h=a\n")
	for len(h.refused()) == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Fprint(c, "put m 3 1 h=a\n")
	c.Close()
	h.stop()
	if got := h.refused(); !reflect.DeepEqual(got, map[string]float64{"telnet,refused": 2}) {
		t.Errorf("refused %v", got)
	}
	if got := h.recorder.Text(); got != "m{h=a} long 3000 1" {
		t.Errorf("stored %s", got)
	}
}

// A fault of the store ends the connection at once, an unavailable store after
// retry_for. The lines in hand are counted.
func TestStoreThatFailsEndsTheConnection(t *testing.T) {
	for name, err := range map[string]error{
		"fault":       errors.New("disk on fire"),
		"unavailable": &store.UnavailableError{Reason: "disk is full"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(c *Config) {
				c.RetryFor = time.Hour
				if name == "unavailable" {
					c.RetryFor = time.Millisecond
				}
			}, nil)
			h.recorder.OnAppend = func(*store.Batch) error { return err }
			c := h.dial()
			fmt.Fprint(c, "put m 1 1 h=a\nput m 2 1 h=a\n")
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("an answer")
			}
			if got := h.refused(); !reflect.DeepEqual(got, map[string]float64{"telnet,unavailable": 2}) {
				t.Errorf("refused %v", got)
			}
		})
	}
}

// A store that cannot create a series now is asked again; nothing of the block is
// stored before.
func TestStoreThatCreatesNoSeries(t *testing.T) {
	h := start(t, nil, nil)
	asked := 0
	h.recorder.OnCreate = func(model.Series) error {
		if asked++; asked < 3 {
			if n, _ := h.recorder.Count(); n != 0 {
				t.Errorf("%d samples are stored", n)
			}
			return &store.UnavailableError{Reason: "disk is full"}
		}
		return nil
	}
	h.send([]byte("put m 1 1 h=a\nput n 2 1 h=a\n"), 1<<20)
	if got, want := h.recorder.Text(), "m{h=a} long 1000 1\nn{h=a} long 2000 1"; got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	if got := h.refused(); len(got) != 0 {
		t.Errorf("refused %v", got)
	}
}

// A ttl of 0 is for ever, also where there is a default.
func TestTTL(t *testing.T) {
	h := start(t, nil, func(c *ingest.Config) { c.DefaultTTL, c.TTLFrom = time.Hour, ingest.FromTimestamp })
	now := time.Now().UnixMilli()
	h.send(fmt.Appendf(nil, "put m %d 1 h=a kairos_opt.ttl=60\nput m %d 2 h=a\nput m %d 3 h=a kairos_opt.ttl=0\nput m %d 4 h=a kairos_opt.ttl=60\nputs m 1 x h=a\n",
		now, now, now, now-60_000), 1<<20)
	if got, want := h.recorder.Text(), fmt.Sprintf("m{h=a} long %d 1 ttl=60\nm{h=a} long %[1]d 2 ttl=3600\nm{h=a} long %[1]d 3", now); got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	if got := h.refused(); !reflect.DeepEqual(got, map[string]float64{"telnet,expired": 2}) {
		t.Errorf("refused %v", got)
	}
}

func TestLineBeyondTheBufferIsDiscardedToItsEnd(t *testing.T) {
	for _, piece := range []int{1000, 1 << 20} {
		h := start(t, func(c *Config) { c.MaxLine = 20 << 10 }, nil)
		h.send([]byte("put a 1 1 h=a\nput b 1 1 h="+strings.Repeat("x", 300<<10)+"\nput c 1 1 h=a\n"), piece)
		if got, want := h.recorder.Text(), "a{h=a} long 1000 1\nc{h=a} long 1000 1"; got != want {
			t.Errorf("pieces of %d: stored %.300s", piece, got)
		}
		if got := h.refused(); got["telnet,line_too_long"] != 1 || len(got) != 1 {
			t.Errorf("pieces of %d: refused %v, want one line_too_long", piece, got)
		}
	}
}

func TestVersionIsAnsweredAfterTheSamplesBeforeItAreStored(t *testing.T) {
	h := start(t, nil, nil)
	c := h.dial()
	fmt.Fprint(c, "put m 1 1 h=a\nversion\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || line != "Varve test\n" {
		t.Fatalf("answer %q, %v", line, err)
	}
	if got := h.recorder.Text(); got != "m{h=a} long 1000 1" {
		t.Errorf("stored %q when version was answered", got)
	}
}

func TestResetLosesNothingThatArrived(t *testing.T) {
	h := start(t, nil, nil)
	c := h.dial()
	var data bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&data, "put m %d 1 h=a\n", i)
	}
	data.WriteString("version\n")
	c.Write(data.Bytes())
	if _, err := c.Read(make([]byte, 1)); err != nil { // all has arrived
		t.Fatal(err)
	}
	c.SetLinger(0) // close with a reset
	c.Close()
	h.stop()
	if n, _ := h.recorder.Count(); n != 1000 {
		t.Errorf("%d of 1000 samples stored", n)
	}
}

func TestShutdownStoresWhatWasReceived(t *testing.T) {
	h := start(t, nil, nil)
	h.recorder.OnAppend = func(*store.Batch) error { time.Sleep(20 * time.Millisecond); return nil }
	c := h.dial()
	const lines = 8000 // more than a connection's buffer, and few enough for a busy machine
	var data bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&data, "put m %d 1 h=a\n", i)
	}
	if _, err := c.Write(data.Bytes()); err != nil { // in the kernel's buffers
		t.Fatal(err)
	}
	h.stop()
	if n, appends := h.recorder.Count(); n != lines {
		t.Errorf("%d of %d samples stored in %d batches", n, lines, appends)
	}
}

func TestShutdownDoesNotWaitForASenderWithoutEnd(t *testing.T) {
	h := start(t, nil, nil)
	h.recorder.Quiet()
	c := h.dial()
	sent := make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			if _, err := fmt.Fprint(c, "put m 1 1 h=a\n"); err != nil {
				break
			}
		}
		sent <- n
	}()
	for n := 0; n == 0; n, _ = h.recorder.Count() {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if stored, _ := h.recorder.Count(); stored > <-sent {
		t.Error("more stored than was sent")
	}
}

func TestShutdownGivesUpAtItsDeadline(t *testing.T) {
	h := start(t, nil, nil)
	h.recorder.OnAppend = func(*store.Batch) error { return &store.UnavailableError{Reason: "disk is full"} }
	c := h.dial()
	fmt.Fprint(c, "put m 1 1 h=a\nput m 2 1 h=a\n")
	for h.recorder.SeriesCount() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := h.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Shutdown = %v", err)
	}
	if got := h.refused(); got["telnet,unavailable"] != 2 {
		t.Errorf("refused %v, want 2 unavailable lines", got)
	}
}

func TestUnavailableStoreIsTriedAgain(t *testing.T) {
	h := start(t, nil, nil)
	left := 3
	h.recorder.OnAppend = func(*store.Batch) error {
		if left--; left >= 0 {
			return &store.UnavailableError{Reason: "disk is full"}
		}
		return nil
	}
	h.send([]byte("put m 1 1 h=a\nbad\n"), 100)
	if got := h.recorder.Text(); got != "m{h=a} long 1000 1" {
		t.Errorf("stored %q", got)
	}
	if got := h.refused(); got["telnet,bad_command"] != 1 || len(got) != 1 {
		t.Errorf("refused %v, want the bad line once", got)
	}
}

// Connections that send nothing, or half a line, do not keep others out: the one
// that has sent no line for longest makes room for a new one.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	h := start(t, func(c *Config) { c.MaxConnections = 3 }, nil)
	answers := func(c net.Conn) error {
		fmt.Fprint(c, "version\n")
		c.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	silent, half, busy := h.dial(), h.dial(), h.dial()
	if err := answers(busy); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(half, "put half")
	for i := range 2 {
		if err := answers(h.dial()); err != nil {
			t.Errorf("connection %d beyond the limit: %v", i, err)
		}
	}
	if err := answers(busy); err != nil {
		t.Errorf("the connection that brings lines was closed: %v", err)
	}
	for _, c := range []net.Conn{silent, half} {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection without lines is still there: %v", err)
		}
	}
	if n := ingesttest.Counters(t, h.reg, "varve_telnet_connections_evicted_total")[""]; n != 2 {
		t.Errorf("evicted connections: %v", n)
	}
}

// A connection that has brought lines waits for its client again, and makes room too.
func TestConnectionsAreIdleAfterTheirLines(t *testing.T) {
	h := start(t, func(c *Config) { c.MaxConnections = 1 }, nil)
	first := h.dial()
	fmt.Fprint(first, "put m 1 1 h=a\nversion\n")
	if _, err := first.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		io.Copy(io.Discard, first)
	}()
	for stop := time.Now().Add(2 * time.Minute); ; { // others are refused until the answer is complete
		other := h.dial()
		fmt.Fprint(other, "version\n")
		other.Read(make([]byte, 1)) // an answer, or the end
		other.Close()
		select {
		case <-ended:
			return
		default:
		}
		if time.Now().After(stop) {
			first.Close()
			<-ended
			t.Fatal("a connection that sends nothing more keeps its place")
		}
	}
}

// A connection beyond max_connections is closed at once, and counted, while all
// others are storing lines.
func TestBusyConnectionsRefuseOthers(t *testing.T) {
	h := start(t, func(c *Config) { c.MaxConnections = 1 }, nil)
	storing, proceed := make(chan struct{}), make(chan struct{})
	h.recorder.OnAppend = func(*store.Batch) error {
		storing <- struct{}{}
		<-proceed
		return nil
	}
	busy := h.dial()
	fmt.Fprint(busy, "put m 1 1 h=a\n")
	<-storing
	other := h.dial()
	other.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection beyond the limit: %v", err)
	}
	close(proceed)
	h.stop()
	for name, want := range map[string]float64{"refused": 1, "evicted": 0} {
		if n := ingesttest.Counters(t, h.reg, "varve_telnet_connections_"+name+"_total")[""]; n != want {
			t.Errorf("%s connections: %v, want %v", name, n, want)
		}
	}
	if n := ingesttest.Counters(t, h.reg, "varve_telnet_connections_total")[""]; n != 2 { // with that of start
		t.Errorf("accepted connections: %v", n)
	}
	if got := h.recorder.Text(); got != "m{h=a} long 1000 1" {
		t.Errorf("stored %s", got)
	}
}

// A fault of Varve ends the connection that met it, gives back what it held, and
// leaves the others alone.
func TestPanicEndsItsConnectionAlone(t *testing.T) {
	h := start(t, nil, nil)
	h.recorder.OnAppend = func(b *store.Batch) error {
		if b.Samples[0].TimeMS == 13_000 {
			panic("no such luck")
		}
		return nil
	}
	answers := func(c net.Conn) {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		fmt.Fprint(c, "put m 1 1 h=a\nversion\n")
		if _, err := io.ReadFull(c, make([]byte, len("Varve test\n"))); err != nil {
			t.Errorf("a connection beside it: %v", err)
		}
	}
	before, unlucky := h.dial(), h.dial()
	answers(before)
	fmt.Fprint(unlucky, "put m 13 1 h=a\nversion\n")
	unlucky.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := unlucky.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection that met the fault: %d bytes, %v", n, err)
	}
	answers(before)
	answers(h.dial())
	h.stop()
	for _, name := range []string{"varve_ingest_samples_in_flight", "varve_telnet_connections"} {
		if n := ingesttest.Counters(t, h.reg, name)[""]; n != 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
	if n, _ := h.recorder.Count(); n != 3 {
		t.Errorf("%d samples stored", n)
	}
}

// Each version command has one answer, in whatever block it comes.
func TestEachVersionIsAnsweredOnce(t *testing.T) {
	h := start(t, nil, nil)
	c := h.dial()
	answers := bufio.NewReader(c)
	for range 3 {
		fmt.Fprint(c, "version\n")
		if line, err := answers.ReadString('\n'); err != nil || line != "Varve test\n" {
			t.Fatalf("answer %q, %v", line, err)
		}
	}
	fmt.Fprint(c, "version\nput m 1 1 h=a\nversion\n")
	c.CloseWrite()
	rest, err := io.ReadAll(answers)
	if err != nil || string(rest) != "Varve test\nVarve test\n" {
		t.Errorf("answers %q, %v", rest, err)
	}
}

// unreadConn is a connection whose client does not read.
func TestServeEndsWithItsContext(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, reg := ingesttest.NewPipeline(r, nil)
	s := NewServer(p, DefaultConfig(), Options{Registerer: reg})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := s.Serve(ctx, ln); !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v", err)
	}
}

// benchLines are some rounds of put lines of about 133 bytes with 6 tags, 200,000 lines
// at least: a processor learns the lengths of the numbers in fewer ones by heart.
func benchLines(series int) (data []byte, lines int) {
	var b bytes.Buffer
	random := rand.New(rand.NewPCG(1, 2))
	for ; lines < 200_000; lines++ {
		i := lines % series
		value := strconv.FormatFloat(float64(random.IntN(20_000))/100, 'f', -1, 64)
		fmt.Fprintf(&b, "put sys.metric.number.%02d %d %s host=server-%03d.example.net region=eu-west-1 rack=r%02d os=linux env=production team=storage\n",
			i%20, 1700000000+lines/series*10, value, i/20, i%13)
	}
	return b.Bytes(), lines
}

// TestFaultyLinesAllocateNothing guards a sender's cheapest way to keep a server busy: what a refused
// line costs beyond those of which a block keeps a note.
func TestFaultyLinesAllocateNothing(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	l := newParser(protocol(p, DefaultConfig(), Options{Registerer: reg}), "test")
	allocs := func(lines int) float64 {
		block := bytes.Repeat([]byte("put m xx yy a=b\n"), lines)
		return testing.AllocsPerRun(20, func() {
			if _, err := l.Store(t.Context(), block); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocs(100), allocs(2100)
	if perLine := (many - few) / 2000; perLine > 0.1 {
		t.Errorf("a refused line allocates %.2f times", perLine)
	}
}

func BenchmarkFaultyLines(b *testing.B) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	l := newParser(protocol(p, DefaultConfig(), Options{Registerer: reg}), "bench")
	const lines = 4096
	block := bytes.Repeat([]byte("put m xx yy a=b\n"), lines)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Store(context.Background(), block); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/line")
}

func BenchmarkLines(b *testing.B) {
	for _, series := range []int{4000, 200000} {
		b.Run(fmt.Sprintf("series=%d", series), func(b *testing.B) {
			r := &ingesttest.Recorder{}
			r.Quiet()
			p, reg := ingesttest.NewPipeline(r, func(c *ingest.Config) { c.NewSeriesBurst = series })
			l := newParser(protocol(p, DefaultConfig(), Options{Registerer: reg}), "bench")
			data, lines := benchLines(series)
			var blocks [][]byte
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 64<<10)
				n = bytes.LastIndexByte(rest[:n], '\n') + 1
				blocks, rest = append(blocks, rest[:n]), rest[n:]
			}
			round := func() {
				for _, block := range blocks {
					if _, err := l.Store(context.Background(), block); err != nil {
						b.Fatal(err)
					}
				}
			}
			round()
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				round()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(lines), "ns/sample")
			b.ReportMetric(float64(len(data))/float64(lines), "B/line")
		})
	}
}

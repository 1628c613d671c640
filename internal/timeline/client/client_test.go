package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/query"
	"varve/internal/remote"
	"varve/internal/store/reference"
	"varve/internal/timeline"
	"varve/internal/timeline/api"
	"varve/internal/timeline/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a server of timelines, which can be restarted at its address.
type world struct {
	*remote.Server
	handler  http.Handler
	stopping chan struct{}
	running  *httptest.Server
}

func newWorld(t *testing.T, change ...func(*timeline.Config)) *world {
	t.Helper()
	shelf, err := local.Open(vfs.NewMem(), "timelines", local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config := timeline.DefaultConfig()
	for _, f := range change {
		f(&config)
	}
	engine, err := timeline.Open(shelf, timeline.Options{Config: config, Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	samples, registry := reference.New(nil), prometheus.NewRegistry()
	pipeline := ingest.New(samples, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
	mux := http.NewServeMux()
	for _, r := range api.New(api.Options{
		Engine: engine, Config: config, Pipeline: pipeline, Metric: registry, Queries: query.New(samples, query.DefaultConfig(), registry, time.Now),
	}).Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Checked())
	}
	w := &world{handler: mux}
	// While the server is away, other tests may be given its port at 127.0.0.1.
	w.start(t, fmt.Sprintf("127.77.%d.%d:0", rand.N(256), 1+rand.N(254)))
	if w.Server, err = remote.New(w.running.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stop()
		http.DefaultClient.CloseIdleConnections()
		pipeline.Close()
		engine.Close()
		shelf.Close()
	})
	return w
}

func (w *world) start(t *testing.T, addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	stopping := make(chan struct{})
	w.stopping, w.running = stopping, httptest.NewUnstartedServer(w.handler)
	w.running.Listener.Close()
	w.running.Listener = listener
	w.running.Config.BaseContext = func(net.Listener) context.Context {
		return httpapi.WithStopping(context.Background(), stopping)
	}
	w.running.Start()
}

func (w *world) stop() {
	close(w.stopping)
	w.running.Close()
	http.DefaultClient.CloseIdleConnections() // an append on one of them would fail
}

func (w *world) append(t *testing.T, name string, a *Appender, text string) (refused string) {
	t.Helper()
	var to bytes.Buffer
	a.Server, a.Timeline, a.Refused = w.Server, name, &to
	if err := a.Append(t.Context(), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return to.String()
}

func event(i int) string { return fmt.Sprintf(`{"time":%d,"id":"e%d","type":"","data":%d}`, i, i, i) }

func collect(t *testing.T, texts iter.Seq2[json.RawMessage, error]) (all []string) {
	t.Helper()
	for text, err := range texts {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// Lines are appended as events, in several blocks, and read page by page.
func TestAppendAndRead(t *testing.T) {
	w := newWorld(t)
	const many = 2*MaxPage + 300
	var text strings.Builder
	var want []string
	for i := range many {
		text.WriteString(event(i) + "\n\n")
		want = append(want, event(i))
	}
	a := &Appender{JSON: true}
	refused := w.append(t, "a/b", a, text.String()+`{"time":6}`+"\n")
	if a.Accepted != many || a.Rejected != 1 || !strings.HasPrefix(refused, fmt.Sprintf("line %d: the event has no", 2*many+1)) {
		t.Errorf("%d accepted, %d rejected: %s", a.Accepted, a.Rejected, refused)
	}
	up := url.Values{"order": {"asc"}}
	for limit, n := range map[int]int{0: many, 1: 1, MaxPage: MaxPage, MaxPage + 1: MaxPage + 1, many + 1: many} {
		if got := collect(t, Events(t.Context(), w.Server, Query{Timelines: []string{"a/b"}, Limit: limit, Filter: up})); !slices.Equal(got, want[:n]) {
			t.Errorf("limit %d: %d events, want %d", limit, len(got), n)
		}
	}
	w.append(t, "./..", &Appender{JSON: true}, `{"time":7,"id":"x","data":0}`)
	got := collect(t, Events(t.Context(), w.Server, Query{Timelines: []string{"a/b", "./.."}, Filter: url.Values{"from": {"7"}, "until": {"7"}}}))
	if len(got) != 2 || !strings.Contains(got[0]+got[1], `"timeline":"./.."`) {
		t.Errorf("of two timelines: %q", got)
	}
	if names := collect(t, Timelines(t.Context(), w.Server)); len(names) != 2 || !strings.HasPrefix(names[1], `{"name":"a/b"`) {
		t.Errorf("timelines: %q", names)
	}
	for _, err := range Events(t.Context(), w.Server, Query{Timelines: []string{"a/b"}, Filter: url.Values{"order": {"up"}}}) {
		if err == nil || !strings.Contains(err.Error(), "order") {
			t.Error(err)
		}
	}
}

// The time of a line is at its beginning, or that of now, which grows with each line.
func TestLines(t *testing.T) {
	w := newWorld(t)
	a := &Appender{Run: "r", Type: "line", TimeFormat: "2006-01-02  15:04 MST"}
	refused := w.append(t, "log", a, "2024-03-10 12:00  UTC one\n2024-03-10 12:00 UTC two\xff\nnone\n")
	if a.Accepted != 2 || a.Rejected != 1 || !strings.HasPrefix(refused, "line 3: the line does not begin with a time such as 2006") {
		t.Errorf("%d accepted, %d rejected: %s", a.Accepted, a.Rejected, refused)
	}
	got := collect(t, Events(t.Context(), w.Server, Query{Timelines: []string{"log"}}))
	if len(got) != 2 || got[0] != `{"time":1710072000000,"id":"r-0000000002","type":"line","data":"2024-03-10 12:00 UTC two`+"\uFFFD"+`"}` {
		t.Errorf("%q", got)
	}
	before := time.Now().UnixMicro()
	w.append(t, "now", &Appender{Run: "r"}, "b\na\nc\n")
	var texts []string
	for _, text := range collect(t, Events(t.Context(), w.Server, Query{Timelines: []string{"now"}, Filter: url.Values{"order": {"asc"}}})) {
		var e struct {
			Time   int64 `json:"time"`
			TimeUS int64 `json:"time_us"`
			Data   string
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || max(e.Time*1000, e.TimeUS) < before/1000*1000 {
			t.Errorf("%s, %v", text, err)
		}
		texts = append(texts, e.Data)
	}
	if !slices.Equal(texts, []string{"b", "a", "c"}) {
		t.Errorf("order %q", texts)
	}
}

// Lines are sent as they come, and an appender that is interrupted ends.
func TestInterruptedAppend(t *testing.T) {
	w := newWorld(t)
	in, out := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	a := &Appender{Server: w.Server, Timeline: "a", JSON: true, Refused: io.Discard}
	ended := make(chan error)
	go func() { ended <- a.Append(ctx, in) }()
	for i := range 2 {
		io.WriteString(out, event(i)+"\n")
		for len(collect(t, Events(t.Context(), w.Server, Query{Timelines: []string{"a"}}))) <= i { // a pause sends it
		}
	}
	interrupt()
	if err := <-ended; err != nil || a.Accepted != 2 {
		t.Errorf("%d accepted, %v", a.Accepted, err)
	}
	out.Close()
}

func TestLayout(t *testing.T) {
	w := newWorld(t)
	w.append(t, "a", &Appender{JSON: true}, event(1))
	was, err := Layout(t.Context(), w.Server, "a")
	if err != nil {
		t.Fatal(err)
	}
	now, err := Propose(t.Context(), w.Server, "a", map[string]any{"partitions": 3})
	if err != nil || !strings.Contains(string(now), `"partitions":3`) || strings.Contains(string(was), `"partitions":3`) {
		t.Errorf("%s, then %s, %v", was, now, err)
	}
	if text, err := Stats(t.Context(), w.Server, "a"); err != nil || !strings.Contains(string(text), `"newest":`) {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := Stats(t.Context(), w.Server, "never"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Error(err)
	}
}

// A block whose events have ids is sent again to a server that is started again, one without
// an id is not: the server may have it. A server that never answered is an error at once.
func TestAppendMeanwhileRestarted(t *testing.T) {
	w := newWorld(t)
	a := &Appender{Run: "run"}
	w.append(t, "a", a, "one")
	w.stop()
	if err := (&Appender{Run: "other", Server: w.Server, Timeline: "a"}).Append(t.Context(), strings.NewReader("x")); err == nil {
		t.Error("no error of a server that never answered")
	}
	refused, said := io.Pipe()
	a.Refused = said
	ended := make(chan error, 1)
	go func() { ended <- a.Append(t.Context(), strings.NewReader("two")) }()
	told := bufio.NewScanner(refused)
	if !told.Scan() || !strings.HasPrefix(told.Text(), "line 2: not appended yet") {
		t.Errorf("said %q", told.Text())
	}
	w.start(t, w.Addr)
	if err := <-ended; err != nil || a.Accepted != 2 {
		t.Errorf("%v, %d accepted", err, a.Accepted)
	}
	if all := collect(t, Events(t.Context(), w.Server, Query{Timelines: []string{"a"}})); len(all) != 2 {
		t.Errorf("%q", all)
	}

	unnamed := &Appender{JSON: true}
	w.append(t, "b", unnamed, event(1))
	w.stop()
	if err := unnamed.Append(t.Context(), strings.NewReader(event(2)+"\n"+`{"time":3,"data":3}`)); err == nil {
		t.Error("no error of an event without id")
	}
	w.start(t, w.Addr)
}

// A follower prints the newest events and those that arrive, each once, also after the server
// was started again, until it is interrupted.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	appender := &Appender{JSON: true} // one, which sends again after the restart
	put := func(i int) {
		t.Helper()
		w.append(t, "t", appender, event(i))
	}
	for i := range 5 {
		put(i)
	}
	out, to := io.Pipe()
	var errs bytes.Buffer
	f := &Follower{Server: w.Server, Timeline: "t", Newest: 3, Out: to, Errors: &errs}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Follow(ctx) }()
	lines := bufio.NewScanner(out)
	want := func(from, until int) {
		t.Helper()
		for i := from; i <= until; i++ {
			if !lines.Scan() || lines.Text() != event(i) {
				t.Fatalf("%q, want event %d", lines.Text(), i)
			}
		}
	}
	want(2, 4)
	put(5)
	want(5, 5)
	w.stop()
	w.start(t, w.Addr)
	put(6)
	want(6, 6)
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	late := &Follower{Server: w.Server, Timeline: "t", Newest: 3, Cursor: f.Cursor, Out: to, Errors: &errs}
	ctx, interrupt = context.WithCancel(t.Context())
	go func() { ended <- late.Follow(ctx) }()
	put(7)
	want(7, 7)
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wrong := &Follower{Server: w.Server, Timeline: "t", Cursor: "x", Out: to, Errors: &errs}
	if err := wrong.Follow(t.Context()); err == nil || !strings.Contains(err.Error(), "cursor") {
		t.Error(err)
	}
}

// A fullDisk takes some writes and refuses all others.
type fullDisk struct {
	bytes.Buffer
	left int
}

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.left--; d.left < 0 {
		return 0, errFull
	}
	return d.Buffer.Write(p)
}

// A follower that cannot print an event ends, and continues with that event if it is started again.
func TestFollowToFullDisk(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.append(t, "t", &Appender{JSON: true}, event(i))
	}
	var errs bytes.Buffer
	for left := range 3 {
		out := &fullDisk{left: left}
		f := &Follower{Server: w.Server, Timeline: "t", Newest: 3, Out: out, Errors: &errs}
		if err := f.Follow(t.Context()); !errors.Is(err, errFull) || strings.Count(out.String(), "\n") != left {
			t.Errorf("of the first events %d can be printed: %v, %q", left, err, out)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	var began strings.Builder
	f := &Follower{Server: w.Server, Timeline: "t", Newest: 1, Out: writerFunc(func(p []byte) (int, error) { interrupt(); return began.Write(p) }), Errors: &errs}
	if err := f.Follow(ctx); err != nil || began.String() != event(2)+"\n" {
		t.Fatalf("%v, %q", err, began.String())
	}
	for i := 3; i < 6; i++ {
		w.append(t, "t", &Appender{JSON: true}, event(i))
	}
	for i := 3; i < 5; i++ { // of the last one none would be refused
		out := &fullDisk{left: 1}
		f.Out = out
		if err := f.Follow(t.Context()); !errors.Is(err, errFull) || out.String() != event(i)+"\n" {
			t.Errorf("event %d: %v, %q", i, err, out)
		}
	}
	if errs.Len() > 0 {
		t.Errorf("said %q", errs.String())
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A follower prints an event again that was among the first ones and was replaced since.
func TestFollowReplaced(t *testing.T) {
	w := newWorld(t)
	put := func(data int) string {
		e := fmt.Sprintf(`{"time":1,"id":"a","type":"","data":%d}`, data)
		w.append(t, "t", &Appender{JSON: true}, e)
		return e
	}
	want := put(0)
	out, to := io.Pipe()
	f := &Follower{Server: w.Server, Timeline: "t", Newest: 3, Out: to, Errors: io.Discard}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Follow(ctx) }()
	for lines, data := bufio.NewScanner(out), 1; data < 4; data++ {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q, want %q", lines.Text(), want)
		}
		want = put(data % 2)
	}
	interrupt()
	out.Close()
	if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// A block that exceeds timeline.rate_max is appended piece by piece, each line once.
func TestAppendBeyondRate(t *testing.T) {
	const rate, many = 99, blockLines // 990 at once
	w := newWorld(t, func(c *timeline.Config) { c.RateMax = rate })
	var text strings.Builder
	for i := range many {
		text.WriteString(event(i) + "\n")
	}
	text.WriteString(`{"time":1,"id":"x"}` + "\n")
	a := &Appender{JSON: true}
	refused := w.append(t, "a", a, text.String())
	if last := fmt.Sprintf("line %d: the event has no", many+1); a.Accepted != many || a.Rejected != 1 || !strings.Contains(refused, last) {
		t.Errorf("%d accepted, %d rejected: %s", a.Accepted, a.Rejected, refused)
	}
	if got := collect(t, Events(t.Context(), w.Server, Query{Timelines: []string{"a"}})); len(got) != many {
		t.Errorf("%d events, want %d", len(got), many)
	}
}

// An appender that is interrupted sends the lines that it has read meanwhile, too, and says which line
// is too long.
func TestAppendAllThatWasRead(t *testing.T) {
	w := newWorld(t)
	const many = blockLines + 500
	ctx, interrupt := context.WithCancel(t.Context())
	asked, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	var text strings.Builder
	text.WriteString("{}\n")
	for i := range many {
		text.WriteString(event(i) + "\n")
	}
	in := io.MultiReader(strings.NewReader(text.String()), readerFunc(func([]byte) (int, error) { close(asked); <-over; return 0, io.EOF }))
	a := &Appender{Server: w.Server, Timeline: "a", JSON: true, Refused: writerFunc(func(p []byte) (int, error) {
		<-asked // for more than it has: all lines were read
		interrupt()
		return len(p), nil
	})}
	if err := a.Append(ctx, in); err != nil || a.Accepted != many || a.Rejected != 1 {
		t.Errorf("%v, %d accepted, %d rejected", err, a.Accepted, a.Rejected)
	}
	endless := io.MultiReader(strings.NewReader("a\nb\n"), readerFunc(func(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }))
	a = &Appender{Server: w.Server, Timeline: "b", Refused: io.Discard}
	if err := a.Append(t.Context(), endless); err == nil || !strings.Contains(err.Error(), "line 3 is longer than 64 MiB") || a.Accepted != 2 {
		t.Errorf("%v, %d accepted", err, a.Accepted)
	}
}

// An interruption while a block is on its way loses neither that block nor the lines behind it.
func TestInterruptedBlock(t *testing.T) {
	w := newWorld(t)
	const many = blockLines + 500
	ctx, interrupt := context.WithCancel(t.Context())
	asked, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	slow := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		<-asked // for more than the appender has: all lines were read
		interrupt()
		w.handler.ServeHTTP(rw, r)
	}))
	defer slow.Close()
	server, err := remote.New(slow.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i := range many {
		text.WriteString(event(i) + "\n")
	}
	in := io.MultiReader(strings.NewReader(text.String()), readerFunc(func([]byte) (int, error) { close(asked); <-over; return 0, io.EOF }))
	a := &Appender{Server: server, Timeline: "a", JSON: true, Refused: io.Discard}
	if err := a.Append(ctx, in); err != nil || a.Accepted != many {
		t.Errorf("%v, %d of %d accepted", err, a.Accepted, many)
	}
}

// Every time in a format without a year would be one of the year 0.
func TestCheckTimeFormat(t *testing.T) {
	for format, fault := range map[string]string{
		"2006-01-02  15:04:05.000 MST": "",
		time.RFC1123Z:                  "",
		"02/Jan/06:15:04":              "",
		"Jan _2 15:04:05":              "has no year",
		"15:04":                        "has no year",
		"yyyy-mm-dd":                   "has no year",
		"":                             "has no year",
	} {
		if err := CheckTimeFormat(format); (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %v, want %q", format, err, fault)
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

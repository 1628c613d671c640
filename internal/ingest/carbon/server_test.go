package carbon

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/store"
	"varve/internal/stream"
	"varve/internal/units"
)

// A harness is a server on loopback before a store that writes down what it is given.
type harness struct {
	*testing.T
	recorder *ingesttest.Recorder
	pipeline *ingest.Pipeline
	reg      *prometheus.Registry
	server   *stream.Server
	addr     string
	served   chan error
}

func start(t *testing.T, pickle bool, change func(*Config)) *harness {
	t.Helper()
	return startOver(t, &ingesttest.Recorder{}, pickle, change)
}

func startOver(t *testing.T, recorder *ingesttest.Recorder, pickle bool, change func(*Config)) *harness {
	t.Helper()
	h := &harness{T: t, recorder: recorder, served: make(chan error, 1)}
	h.pipeline, h.reg = ingesttest.NewPipeline(h.recorder, nil)
	cfg := DefaultConfig()
	cfg.RetryFor = 100 * time.Millisecond
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	if o := (Options{Registerer: h.reg}); pickle {
		h.server = NewPickleServer(h.pipeline, cfg, o)
	} else {
		h.server = NewLineServer(h.pipeline, cfg, o)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = ln.Addr().String()
	go func() { h.served <- h.server.Serve(context.Background(), ln) }()
	t.Cleanup(h.stop)
	return h
}

func (h *harness) dial() net.Conn {
	h.Helper()
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { c.Close() })
	return c
}

// send writes data in pieces and waits until the server has read all of it.
func (h *harness) send(data []byte, piece int) {
	h.Helper()
	c := h.dial()
	if err := ingesttest.WritePieces(c, data, piece); err != nil {
		h.Fatal(err)
	}
	c.(*net.TCPConn).CloseWrite()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		h.Fatalf("the server answered %d bytes, %v", n, err)
	}
	h.stop()
}

func (h *harness) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		h.Error(err)
	}
	if err := <-h.served; err != nil {
		h.Error(err)
	}
	h.served <- nil
}

func (h *harness) refused() map[string]float64 {
	return ingesttest.Counters(h.T, h.reg, "varve_ingest_rejected_total")
}

// asStored writes a golden line, PATH VALUE MS, as the Recorder does.
func asStored(line string) string {
	words := strings.Split(line, " ")
	path, value, ms := strings.Join(words[:len(words)-2], " "), words[len(words)-2], words[len(words)-1]
	parts := strings.Split(path, ";")
	f, _ := strconv.ParseFloat(value, 64)
	return fmt.Sprintf("%s{%s} double %s %v", parts[0], strings.Join(parts[1:], ","), ms, f)
}

// TestRecordings sends what real clients have sent. The golden files were written by
// Python's own pickle and float.
func TestRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/*.[tp]*")
	if err != nil || len(files) < 17 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden, err := os.ReadFile(strings.TrimSuffix(file, filepath.Ext(file)) + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(golden)) {
			want = append(want, asStored(strings.TrimSuffix(line, "\n")))
		}
		for _, piece := range []int{1, 7, 1428, len(data)} {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(file), piece), func(t *testing.T) {
				h := start(t, filepath.Ext(file) == ".pickle", nil)
				h.send(data, piece)
				if got := h.recorder.Text(); got != strings.Join(want, "\n") {
					t.Errorf("stored\n%.2000s\nwant\n%.2000s", got, strings.Join(want, "\n"))
				}
			})
		}
	}
}

// TestFaultyLines: each is refused alone, by its reason, whatever its neighbours are.
func TestFaultyLines(t *testing.T) {
	h := start(t, false, func(c *Config) { c.MaxLine = 64 })
	h.send([]byte("a.b 1 100\nbad\nbad;a 1 100\nc nan 100\nc 1 nan\n\xff\xfe 1 100\n"+strings.Repeat("x", 5000)+" 1 100\nd 2 100\r\n"+
		strings.Repeat("y", 65)+"\n\n  \ntail 1 10"), 1000)
	if got, want := h.recorder.Text(), asStored("a.b 1 100000")+"\n"+asStored("d 2 100000"); got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	for reason, n := range map[string]float64{"bad_syntax": 1, "bad_tag": 1, "not_finite": 1, "bad_time": 1, "bad_utf8": 1, "line_too_long": 2, "unterminated": 1} {
		if got := h.refused()["carbon,"+reason]; got != n {
			t.Errorf("%v refused as %s, want %v; all: %v", got, reason, n, h.refused())
		}
	}
	latest, _ := h.pipeline.Rejected()
	for _, r := range latest { // no setting bounds carbon's lines, so the reason names none
		if r.Reason == "line_too_long" && r.Detail != "line is longer than 64 bytes" {
			t.Errorf("a long line is refused because %q", r.Detail)
		}
	}
}

func framed(pickle string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(pickle))), pickle...)
}

const onePoint = "\x80\x02]q\x00X\x03\x00\x00\x00a.bq\x01Kd\x47\x3f\xf8\x00\x00\x00\x00\x00\x00\x86q\x02\x86q\x03a."

// TestFaultyPickles: a frame that is no pickle costs itself, an item that is no point
// costs itself, and only a frame that is too long costs the connection.
func TestFaultyPickles(t *testing.T) {
	h := start(t, true, func(c *Config) { c.MaxPickle = units.KiB })
	var data []byte
	for _, p := range []string{onePoint, "cos\nsystem\n.", "", "garbage", onePoint, "](K\x01K\x02te."} {
		data = append(data, framed(p)...)
	}
	data = append(data, 0, 0, 4, 1)
	data = append(data, framed(onePoint)...)
	c := h.dial()
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of a frame that is too long is still open: %v", err)
	}
	h.stop()
	if got, want := h.recorder.Text(), asStored("a.b 1.5 100000")+"\n"+asStored("a.b 1.5 100000"); got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	for reason, n := range map[string]float64{"bad_syntax": 4, "body_too_large": 1} {
		if got := h.refused()["pickle,"+reason]; got != n {
			t.Errorf("%v refused as %s, want %v; all: %v", got, reason, n, h.refused())
		}
	}
}

// TestFramesInVain: frames without points cost the connection, those with points between
// them keep it.
func TestFramesInVain(t *testing.T) {
	nothing := framed("].")
	few := append(bytes.Repeat(nothing, mostInVain-1), framed(onePoint)...)
	h := start(t, true, nil)
	h.send(append(bytes.Clone(few), few...), 10_000)
	if samples, _ := h.recorder.Count(); samples != 2 || len(h.refused()) != 0 {
		t.Errorf("%d samples, want 2; refused: %v", samples, h.refused())
	}
	h = start(t, true, nil)
	c := h.dial()
	if _, err := c.Write(bytes.Repeat(nothing, mostInVain)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open: %v", err)
	}
	h.stop()
	if got := h.refused()["pickle,bad_syntax"]; got != 1 {
		t.Errorf("refused: %v", h.refused())
	}
}

// TestLongFramesInVain: two long frames without a point cost the connection, one does not.
func TestLongFramesInVain(t *testing.T) {
	long := framed("]" + strings.Repeat("]", 1<<20-100) + ".")
	h := start(t, true, nil)
	h.send(slices.Concat(long, framed(onePoint), long, framed(onePoint)), 1<<20)
	if samples, _ := h.recorder.Count(); samples != 2 || h.refused()["pickle,bad_syntax"] != 2 {
		t.Errorf("%d samples, want 2; refused: %v, want 2", samples, h.refused())
	}
	h = start(t, true, nil)
	h.send(slices.Concat(long, long), 1<<20)
	if got := h.refused()["pickle,bad_syntax"]; got != 3 {
		t.Errorf("refused: %v, want both and the end of the connection", h.refused())
	}
}

// TestItemsInVain: frames of items that are no points are in vain, those of points whose
// value is none are not.
func TestItemsInVain(t *testing.T) {
	const size = 1 << 20
	frames := func(item string) []byte {
		long := framed("](" + strings.Repeat(item, (size-100)/len(item)/2) + "e(" + strings.Repeat(item, (size-100)/len(item)/2) + "e.")
		return append(bytes.Clone(long), long...)
	}
	for _, c := range []struct {
		name string
		data []byte
		cut  bool
	}{
		{"numbers", frames("K\x01K\x01\x86"), true},
		{"points", frames("X\x01\x00\x00\x00aK\x01N\x86\x86"), false},
	} {
		h := start(t, true, nil)
		h.send(c.data, size)
		// The end of a connection counts as one more refusal.
		refused := h.refused()
		items := int(refused["pickle,bad_syntax"]+refused["pickle,bad_value"]) % 2
		if cut := items == 1; cut != c.cut {
			t.Errorf("%s: refused %v, the connection was cut: %v, want %v", c.name, refused, cut, c.cut)
		}
	}
}

// TestSharedTexts: what the items of a pickle share costs them little, since it is not examined again
// for each.
func TestSharedTexts(t *testing.T) {
	const items = 2000
	text := func(s string) string {
		return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
	}
	for _, c := range []struct{ name, path, when, reason string }{
		{"path as long as many lines", strings.Repeat(".", 20_000) + "a", "100", "name_too_long"},
		{"name that is too long", strings.Repeat("a", 10_000), "100", "name_too_long"},
		{"control character", strings.Repeat("a", 10_000) + "\x01", "100", "bad_name"},
		{"padded number", "a", strings.Repeat(" ", 20_000) + "100", "bad_time"},
	} {
		h := start(t, true, nil)
		h.send(framed("]"+text(c.path)+text(c.when)+"K\x01\x86\x86q\x00a"+strings.Repeat("h\x00a", items-1)+"."), 1<<20)
		if samples, _ := h.recorder.Count(); samples != 0 || h.refused()["pickle,"+c.reason] != items {
			t.Errorf("%s: %d samples, refused %v", c.name, samples, h.refused())
		}
	}
}

// TestSharedPathThatIsTaken: a long path that the items of a pickle share is examined once for all
// that are stored together, also if its sender may only write some metrics. Nothing remembers the
// series of such a sender for long.
func TestSharedPathThatIsTaken(t *testing.T) {
	const items = 300
	path := "mine"
	for i := range 40 {
		path += fmt.Sprintf(";tag%02d=%s", i, strings.Repeat("v", 240))
	}
	for _, prefix := range []string{"", "mine"} {
		recorder := &ingesttest.Recorder{}
		pipeline, reg := ingesttest.NewPipeline(recorder, nil)
		h := &harness{T: t, recorder: recorder, pipeline: pipeline, reg: reg, served: make(chan error, 1), server: NewPickleServer(pipeline, DefaultConfig(), Options{Registerer: reg})}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		h.addr = ln.Addr().String()
		ctx := principal.With(context.Background(), principal.Principal{Name: "someone", Rights: principal.Write, Prefix: prefix})
		go func() { h.served <- h.server.Serve(ctx, ln) }()
		h.send(framed("]X"+string(binary.LittleEndian.AppendUint32(nil, uint32(len(path))))+path+"KdK\x01\x86\x86q\x00a"+strings.Repeat("h\x00a", items-1)+"."), 1<<20)
		if samples, appends := recorder.Count(); samples != items || appends != 1 {
			t.Errorf("prefix %q: %d samples in %d batches, want %d in 1; refused %v", prefix, samples, appends, items, h.refused())
		}
	}
}

// TestRefusedPathsOfFrames: a refused path is forgotten with its frame, whose memory is used again.
func TestRefusedPathsOfFrames(t *testing.T) {
	bad := func(c string) []byte {
		return framed("]X\x00\x08\x00\x00" + strings.Repeat("a", 2047) + c + "KdK\x01\x86\x86a.")
	}
	h := start(t, true, nil)
	h.send(slices.Concat(bad("\x01"), bad("b"), bad("\x01"), bad("b")), 10_000)
	if samples, _ := h.recorder.Count(); samples != 2 || h.refused()["pickle,bad_name"] != 2 {
		t.Errorf("%d samples, want 2; refused %v, want 2", samples, h.refused())
	}
}

// TestDecodersAreUsedAgain: what a decoder has grown to for a long pickle serves for the next.
func TestDecodersAreUsedAgain(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it empties pools
	const frames = 20
	long := framed(")" + strings.Repeat("\x85", 1<<20-100) + ".")
	h := start(t, true, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	h.send(bytes.Repeat(append(bytes.Clone(long), framed(onePoint)...), frames), 1<<20)
	runtime.ReadMemStats(&after)
	const most = 24 << 20 // of it 2 are the test's, 2 the frame's; a new decoder takes 45
	if each := (after.TotalAlloc - before.TotalAlloc) / frames; each > most {
		t.Errorf("a frame of 1 MiB takes %d MiB of memory, want at most %d", each>>20, most>>20)
	}
}

// TestFramesTogether: frames that arrive together are stored together, those without points
// and damaged ones among them. The batches of more points than fit into one are cut anywhere.
func TestFramesTogether(t *testing.T) {
	var few, many []byte
	for range 20 {
		for _, p := range []string{onePoint, "].", onePoint, "garbage"} {
			few = append(few, framed(p)...)
		}
	}
	h := start(t, true, nil)
	h.send(few, len(few))
	if samples, appends := h.recorder.Count(); samples != 40 || appends != 1 {
		t.Errorf("%d samples in %d batches, want 40 in 1", samples, appends)
	}
	if got := h.refused(); len(got) != 1 || got["pickle,bad_syntax"] != 20 {
		t.Errorf("refused: %v, want 20", got)
	}

	const points, frames = 600, 100
	var want strings.Builder
	for i := range frames {
		p := "](" + strings.Repeat("X\x03\x00\x00\x00a.bK"+string([]byte{byte(i)})+"K\x01\x86\x86", points) + "e."
		many = append(many, framed(p)...)
		want.WriteString(strings.Repeat(asStored(fmt.Sprintf("a.b 1 %d", i*1000))+"\n", points))
	}
	h = start(t, true, nil)
	h.send(many, len(many))
	if h.recorder.Text() != strings.TrimSuffix(want.String(), "\n") {
		samples, appends := h.recorder.Count()
		t.Errorf("%d samples in %d batches, want %d, in order", samples, appends, points*frames)
	}
	if _, appends := h.recorder.Count(); appends > frames/2 {
		t.Errorf("%d batches for %d frames", appends, frames)
	}
	if got := h.refused(); len(got) != 0 {
		t.Errorf("refused: %v", got)
	}
}

// TestFrameBeforeACutOne: a frame that is there is stored, although the next one behind it
// has begun and does not go on.
func TestFrameBeforeACutOne(t *testing.T) {
	stored := make(chan int, 1)
	h := startOver(t, &ingesttest.Recorder{OnAppend: func(b *store.Batch) error { stored <- len(b.Samples); return nil }}, true, nil)
	c := h.dial()
	if _, err := c.Write(slices.Concat(framed(onePoint), framed(onePoint)[:10])); err != nil {
		t.Fatal(err)
	}
	select {
	case n := <-stored:
		if n != 1 {
			t.Errorf("%d samples are stored, want 1", n)
		}
	case <-time.After(time.Minute):
		t.Fatal("the frame in front is not stored")
	}
}

// TestBusyConnectionsRefuseOthers: a connection whose points are being stored keeps its place, and a
// newcomer is refused.
func TestBusyConnectionsRefuseOthers(t *testing.T) {
	for _, c := range []struct {
		protocol string
		point    []byte
	}{
		{"carbon", []byte("a.b 1.5 100\n")},
		{"pickle", framed(onePoint)},
	} {
		storing, proceed := make(chan struct{}), make(chan struct{})
		recorder := &ingesttest.Recorder{OnAppend: func(*store.Batch) error {
			storing <- struct{}{}
			<-proceed
			return nil
		}}
		h := startOver(t, recorder, c.protocol == "pickle", func(c *Config) { c.MaxConnections = 1 })
		busy := h.dial()
		if _, err := busy.Write(c.point); err != nil {
			t.Fatal(err)
		}
		<-storing
		other := h.dial()
		other.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := other.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection beyond the limit: %v", c.protocol, err)
		}
		close(proceed)
		h.stop()
		for name, want := range map[string]float64{"refused": 1, "evicted": 0} {
			if n := ingesttest.Counters(t, h.reg, "varve_"+c.protocol+"_connections_"+name+"_total")[""]; n != want {
				t.Errorf("%s: %s connections: %v, want %v", c.protocol, name, n, want)
			}
		}
		if got := h.recorder.Text(); got != asStored("a.b 1.5 100000") {
			t.Errorf("%s: stored %s", c.protocol, got)
		}
	}
}

// TestPicklesCutShort: what is announced is not allocated, and not stored.
func TestPicklesCutShort(t *testing.T) {
	for n := range len(onePoint) + 3 {
		h := start(t, true, nil)
		h.send(framed(onePoint)[:n+1], 100)
		if samples, _ := h.recorder.Count(); samples != 0 {
			t.Fatalf("a frame cut after %d bytes stored %d samples", n+1, samples)
		}
		if h.refused()["pickle,unterminated"] != 1 {
			t.Fatalf("a frame cut after %d bytes is not counted: %v", n+1, h.refused())
		}
	}
}

// TestLongPickles: more points than a batch has, and a frame above what is read
// without a place.
func TestLongPickles(t *testing.T) {
	const points = 3*ingest.BlockSamples + 17
	var b bytes.Buffer
	b.WriteString("](")
	for i := range points {
		b.WriteString("X\x03\x00\x00\x00a.bM")
		b.Write([]byte{byte(i), byte(i >> 8)})
		b.WriteString("K\x01\x86\x86")
	}
	b.WriteString("e.")
	h := start(t, true, nil)
	h.send(append(framed(b.String()), framed(onePoint)...), 10_000)
	if samples, appends := h.recorder.Count(); samples != points+1 || appends != 5 {
		t.Errorf("%d samples in %d batches, want %d in 5", samples, appends, points+1)
	}
	if len(h.refused()) != 0 {
		t.Errorf("refused: %v", h.refused())
	}
}

// away is a store that cannot be written to for some attempts.
type away struct {
	*ingesttest.Recorder
	failures int
	err      error
}

func (a *away) Append(ctx context.Context, b *store.Batch) error {
	if a.failures > 0 {
		a.failures--
		return a.err
	}
	return a.Recorder.Append(ctx, b)
}

// TestStoreIsAway: points wait for a store, and are counted when it does not come back.
func TestStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		failures int
		err      error
		stored   int
		reason   string // of the first three frames
	}{
		{3, &store.UnavailableError{Reason: "away"}, 3, ""},
		{1 << 30, &store.UnavailableError{Reason: "away"}, 0, "unavailable"},
		{1, &store.InputError{Reason: "no"}, 1, "refused"},
		{1, errors.New("a fault of the store"), 0, "unavailable"},
	} {
		h := &harness{T: t, recorder: &ingesttest.Recorder{}, served: make(chan error, 1)}
		h.pipeline, h.reg = ingesttest.NewPipeline(&away{h.recorder, c.failures, c.err}, nil)
		cfg := DefaultConfig()
		cfg.RetryFor = time.Minute
		if c.reason != "" {
			cfg.RetryFor = 100 * time.Millisecond
		}
		h.server = NewPickleServer(h.pipeline, cfg, Options{Registerer: h.reg})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		h.addr = ln.Addr().String()
		go func() { h.served <- h.server.Serve(context.Background(), ln) }()
		conn := h.dial()
		conn.Write(slices.Concat(framed(onePoint), framed(onePoint), framed("garbage")))
		for c.reason != "" && h.refused()["pickle,"+c.reason] == 0 {
			time.Sleep(time.Millisecond)
		}
		conn.Write(framed(onePoint))
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		conn.Read(make([]byte, 1))
		h.stop()
		if samples, _ := h.recorder.Count(); samples != c.stored {
			t.Errorf("%v: %d samples stored, want %d", c.err, samples, c.stored)
		}
		if c.reason != "" && h.refused()["pickle,"+c.reason] != 3 { // a frame that is no pickle counts as a point
			t.Errorf("%v: refused %v, want 3 as %s", c.err, h.refused(), c.reason)
		}
	}
}

// startLarge starts a server of pickles with other bounds of large frames.
func startLarge(t *testing.T, change func(*largeFrames)) (*harness, *largeFrames) {
	t.Helper()
	h := &harness{T: t, recorder: &ingesttest.Recorder{}, served: make(chan error, 1)}
	h.pipeline, h.reg = ingesttest.NewPipeline(h.recorder, nil)
	h.server = NewPickleServer(h.pipeline, DefaultConfig(), Options{Registerer: h.reg})
	large := h.server.Handler().(*pickles).large
	change(large)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = ln.Addr().String()
	go func() { h.served <- h.server.Serve(context.Background(), ln) }()
	return h, large
}

// stall sends a part of a large frame: so much that it needs a place.
func (h *harness) stall() net.Conn {
	h.Helper()
	c := h.dial()
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, 2*smallFrame), make([]byte, smallFrame)...)); err != nil {
		h.Fatal(err)
	}
	return c
}

// ends waits until the server has closed a connection.
func (h *harness) ends(c net.Conn) {
	h.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute)) // only a test that fails waits for so long
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		h.Errorf("the connection goes on: %v", err)
		c.Close()
	}
}

// waitFor waits until a number of large frames have places, and another number wait.
func (s *largeFrames) waitFor(t *testing.T, taken, waiting int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		has, waits := len(s.mu.taken), len(s.mu.waiting)
		s.mu.Unlock()
		if has == taken && waits == waiting {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d large frames have places and %d wait, want %d and %d", has, waits, taken, waiting)
		}
	}
}

// largePickle is a frame of largePoints points, which needs a place.
var largePickle = framed("](" + strings.Repeat("(U\x03a.b(KdG\x3f\xf8\x00\x00\x00\x00\x00\x00tt", largePoints) + "e.")

const largePoints = smallFrame / 16

// TestLargeFrameThatStalls: a large frame that does not arrive in time costs the connection, and others
// get its place.
func TestLargeFrameThatStalls(t *testing.T) {
	h, large := startLarge(t, func(l *largeFrames) { l.within = time.Millisecond })
	h.ends(h.stall())
	h.stop()
	if n := h.refused()["pickle,unterminated"]; n != 1 {
		t.Errorf("%v pickles are counted as cut off", n)
	}
	large.waitFor(t, 0, 0)
}

// A large frame that only trickles, or is only announced, keeps no other one out.
func TestLargeFramesThatTrickle(t *testing.T) {
	h, large := startLarge(t, func(l *largeFrames) { l.limit, l.patience = 2, time.Millisecond })
	first, second := h.stall(), h.stall()
	large.waitFor(t, 2, 0)
	if _, err := h.dial().Write(append(binary.BigEndian.AppendUint32(nil, 2*smallFrame), "announced"...)); err != nil {
		t.Fatal(err)
	}
	c := h.dial()
	if _, err := c.Write(largePickle); err != nil {
		t.Fatal(err)
	}
	c.(*net.TCPConn).CloseWrite()
	h.ends(c)
	if samples, _ := h.recorder.Count(); samples != largePoints {
		t.Errorf("%d samples are stored", samples)
	}
	first.Close()
	second.Close()
	h.stop()
	latest, _ := h.pipeline.Rejected()
	slow := 0
	for _, r := range latest {
		if strings.Contains(r.Detail, "while others waited") {
			slow++
		}
	}
	if slow != 1 {
		t.Errorf("%d pickles lost their places: %v", slow, latest)
	}
	large.waitFor(t, 0, 0)
}

// brought returns how much has come of the frames that have places.
func (s *largeFrames) brought() (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.mu.taken {
		bytes += p.brought.Load()
	}
	return bytes
}

// A large frame that arrives slowly keeps its place as long as nobody waits for it. What has arrived counts.
func TestSlowLargeFrame(t *testing.T) {
	h, large := startLarge(t, func(l *largeFrames) { l.limit, l.patience = 1, 0 })
	c := h.dial()
	half := len(largePickle) - 100
	if _, err := c.Write(largePickle[:half]); err != nil {
		t.Fatal(err)
	}
	large.waitFor(t, 1, 0)
	for end := time.Now().Add(time.Minute); large.brought() != int64(half-lengthBytes-smallFrame); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes have arrived of %d", large.brought(), half)
		}
	}
	large.endSlow(time.Now().Add(time.Hour))
	if _, err := c.Write(largePickle[half:]); err != nil {
		t.Fatal(err)
	}
	c.(*net.TCPConn).CloseWrite()
	h.ends(c)
	if samples, _ := h.recorder.Count(); samples != largePoints {
		t.Errorf("%d samples are stored", samples)
	}
	h.stop()
}

// A connection returns one end of a connection without a client.
func connection(t *testing.T) *stream.Conn {
	t.Helper()
	other, end := net.Pipe()
	c, err := stream.NewListener(onlyConn{other}, stream.Options{Limit: 1}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); end.Close() })
	return c.(*stream.Conn)
}

// A slow frame loses its place to one of a sender with no more places than its own, and not once it is
// whole.
func TestSlowSenderOfFew(t *testing.T) {
	s, c := newLargeFrames(), connection(t)
	s.limit, s.patience = 3, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	sender := func(n byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{n}), 32) }
	wait := func(n byte) { waiters.Go(func() { s.enter(ctx, c, sender(n)) }) }
	one, two, other := s.enter(ctx, c, sender(1)), s.enter(ctx, c, sender(2)), s.enter(ctx, c, sender(2))
	two.brought.Store(1)
	other.brought.Store(2)
	later := time.Now().Add(2 * time.Hour)
	wait(2)
	s.waitFor(t, 3, 1)
	s.endSlow(later)
	other.brought.Store(0)
	s.endSlow(later.Add(time.Second)) // the place that two lost is enough for the one that waits
	if one.lost || !two.lost || other.lost {
		t.Errorf("places are lost: %v of the sender of one, %v and %v of that of two", one.lost, two.lost, other.lost)
	}
	if !s.arrived(two, true) || !s.arrived(other, true) {
		t.Error("a whole frame is refused")
	}
	wait(3)
	s.waitFor(t, 3, 2)
	s.endSlow(later.Add(time.Minute))
	if !one.lost || two.lost || s.arrived(one, false) {
		t.Error("a slow frame keeps its place although a sender without one waits")
	}
	cancel()
	waiters.Wait()
	for _, p := range []*largeFrame{one, two, other} {
		s.leave(p)
	}
	s.waitFor(t, 0, 0)
}

// The next place goes to a sender that has the fewest, and of those to the one that has waited for longest.
func TestPlacesOfSenders(t *testing.T) {
	s := newLargeFrames()
	s.limit = 2
	c := connection(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan *largeFrame, 10)
	var waiters sync.WaitGroup
	enter := func(sender byte) {
		waiters.Go(func() { got <- s.enter(ctx, c, netip.PrefixFrom(netip.AddrFrom4([4]byte{sender}), 32)) })
	}
	var has []*largeFrame
	for range 2 {
		enter(1)
		has = append(has, <-got)
	}
	for i, sender := range []byte{1, 1, 2, 3, 2} {
		enter(sender)
		s.waitFor(t, 2, i+1)
	}
	for i, want := range []byte{2, 1, 3, 1} {
		s.arrived(has[i], true)
		s.leave(has[i])
		p := <-got
		has = append(has, p)
		if first := p.network.Addr().As4()[0]; first != want {
			t.Errorf("place %d is given to %d, want %d", i, first, want)
		}
	}
	cancel()
	if p := <-got; p != nil {
		t.Error("a place is given after the end")
	}
	waiters.Wait()
	s.waitFor(t, 2, 0)
}

// An onlyConn is a listener with one connection.
type onlyConn struct{ net.Conn }

func (l onlyConn) Accept() (net.Conn, error) { return l.Conn, nil }
func (l onlyConn) Addr() net.Addr            { return l.LocalAddr() }

// TestStaleBlocks: a block that is parsed again, since the store has forgotten series meanwhile, is stored whole and
// once, whatever it has been cut into.
func TestStaleBlocks(t *testing.T) {
	const points = 3
	for _, c := range []struct {
		protocol string
		data     []byte
	}{
		{"carbon", bytes.Repeat([]byte("a.b 1.5 100\n"), points)},
		{"pickle", bytes.Repeat(framed(onePoint), points)},
		{"pickle", framed("](" + strings.Repeat("(U\x03a.b(KdG\x3f\xf8\x00\x00\x00\x00\x00\x00tt", points) + "e.")},
	} {
		recorder := &ingesttest.Recorder{}
		stale := 2
		recorder.OnAppend = func(*store.Batch) error {
			if stale--; stale >= 0 {
				recorder.Forget()
			}
			return nil
		}
		h := startOver(t, recorder, c.protocol == "pickle", nil)
		h.send(c.data, len(c.data))
		want := strings.TrimSuffix(strings.Repeat(asStored("a.b 1.5 100000")+"\n", points), "\n")
		if got := recorder.Text(); got != want || stale > 0 {
			t.Errorf("%s: stored\n%s\nwant\n%s", c.protocol, got, want)
		}
		if len(h.refused()) != 0 {
			t.Errorf("%s: refused %v", c.protocol, h.refused())
		}
	}
}

func TestConfig(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"max_line":        func(c *Config) { c.MaxLine = 63 },
		"max_pickle":      func(c *Config) { c.MaxPickle = 65 * units.MiB },
		"max_connections": func(c *Config) { c.MaxConnections = 0 },
		"read_buffer":     func(c *Config) { c.ReadBuffer = 1 },
		"retry_for":       func(c *Config) { c.RetryFor = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), key+":") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestPartOfTheStoreRefuses: what a part of the store refuses is counted, and a connection
// does not wait for it: what comes behind it is for other parts, too.
func TestPartOfTheStoreRefuses(t *testing.T) {
	pickle := "(lp0\n(S'b'\n(I100\nI1\ntta(S'a'\n(I100\nI1\ntta."
	for _, c := range []struct {
		protocol string
		first    []byte
		second   []byte
	}{
		{"carbon", []byte("b 1 100\na 1 100\n"), []byte("a 1 200\n")},
		{"pickle", framed(pickle), framed(strings.ReplaceAll(pickle, "I100", "I200"))},
	} {
		h := startOver(t, &ingesttest.Recorder{Refused: "b"}, c.protocol == "pickle", func(c *Config) { c.RetryFor = time.Hour })
		conn := h.dial()
		conn.Write(c.first)
		for h.refused()[c.protocol+",unavailable"] == 0 {
			time.Sleep(time.Millisecond)
		}
		conn.Write(c.second)
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		conn.Read(make([]byte, 1))
		h.stop()
		if got, want := h.recorder.Text(), asStored("a 1 100000")+"\n"+asStored("a 1 200000"); got != want {
			t.Errorf("%s: stored\n%s\nwant\n%s", c.protocol, got, want)
		}
		stored := ingesttest.Counters(t, h.reg, "varve_ingest_samples_total")[c.protocol]
		if _, appends := h.recorder.Count(); appends != 2 || stored != 2 {
			t.Errorf("%s: %d batches, %v counted as stored", c.protocol, appends, stored)
		}
		refused := map[string]float64{"carbon": 1, "pickle": 2}[c.protocol]
		if got := h.refused()[c.protocol+",unavailable"]; got != refused {
			t.Errorf("%s: %v refused, want %v", c.protocol, got, refused)
		}
	}
}

// TestSeriesThatCannotBeCreatedYet: while the store creates no series, points of new ones wait, in
// all protocols and with paths of any length.
func TestSeriesThatCannotBeCreatedYet(t *testing.T) {
	long := strings.Repeat("p", shortPath+1)
	pickled := func(path string) []byte {
		return framed("]((T" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(path)))) + path + "(KdG\x3f\xf8\x00\x00\x00\x00\x00\x00tte.")
	}
	for what, c := range map[string]struct {
		pickle bool
		data   []byte
	}{
		"line": {false, []byte("a.b 1.5 100\n")}, "pickle": {true, pickled("a.b")}, "pickle of a long path": {true, pickled(long)},
	} {
		failures := 2
		recorder := &ingesttest.Recorder{OnCreate: func(model.Series) error {
			if failures--; failures >= 0 {
				return &store.UnavailableError{Reason: "away"}
			}
			return nil
		}}
		h := startOver(t, recorder, c.pickle, func(cfg *Config) { cfg.RetryFor = time.Minute })
		h.send(c.data, len(c.data))
		if n, _ := recorder.Count(); n != 1 || len(h.refused()) != 0 {
			t.Errorf("%s: %d points are stored, refused %v", what, n, h.refused())
		}
	}
}

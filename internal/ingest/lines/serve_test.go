package lines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest/ingesttest"
	"varve/internal/store"
	"varve/internal/stream"
)

// A script is a connection whose reads are known before. It ends with an error.
type script struct {
	reads   []string
	end     error
	written bytes.Buffer
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.reads) == 0 {
		return 0, s.end
	}
	n := copy(p, s.reads[0])
	if s.reads[0] = s.reads[0][n:]; s.reads[0] == "" {
		s.reads = s.reads[1:]
	}
	return n, nil
}

func (s *script) Write(p []byte) (int, error)    { return s.written.Write(p) }
func (*script) Close() error                     { return nil }
func (*script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*script) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7} }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) Accept() (net.Conn, error)      { return s, nil }
func (*script) Addr() net.Addr                   { return &net.TCPAddr{} }

// A recorder stores blocks as they come. err fails all of them.
type recorder struct {
	blocks []string
	err    func(block string) error
}

func (r *recorder) Store(_ context.Context, block []byte) (replies int, err error) {
	if r.err != nil {
		err = r.err(string(block))
	}
	if err == nil {
		r.blocks = append(r.blocks, string(block))
	}
	return bytes.Count(block, []byte("?")), err
}

// served is what became of a connection.
type served struct {
	*recorder
	refused  map[string]float64
	details  []string // of refused inputs, newest first, with what is kept of the input
	log      string
	answers  string
	received float64
	left     int // reads that were not made
}

func serve(t *testing.T, parser *recorder, change func(*Protocol), end error, reads ...string) served {
	t.Helper()
	pipeline, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	received := prometheus.NewCounter(prometheus.CounterOpts{Name: "received"})
	reg.MustRegister(received)
	var log bytes.Buffer
	p := &Protocol{
		Name: "telnet", Pipeline: pipeline, Counts: pipeline.Protocol("telnet"), Logger: slog.New(slog.NewTextHandler(&log, nil)), Received: received,
		MaxLine: 20, MaxLineKey: "telnet.max_line", ReadBuffer: 4 * FirstBuffer, RetryFor: time.Second, Reply: []byte("yes\n"),
		NewParser: func(remote string) Parser {
			if remote != "10.0.0.1:7" {
				t.Errorf("remote %q", remote)
			}
			return parser
		},
	}
	if change != nil {
		change(p)
	}
	s := &script{reads: reads, end: end}
	nc, err := stream.NewListener(s, stream.Options{Limit: 1}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.ServeConn(t.Context(), nc.(*stream.Conn))
	out := served{recorder: parser, refused: ingesttest.Counters(t, reg, "varve_ingest_rejected_total"), log: log.String(), answers: s.written.String(), left: len(s.reads)}
	out.received = ingesttest.Counters(t, reg, "received")[""]
	list, _, _ := ingesttest.Rejections(t, pipeline)
	for _, r := range list {
		out.details = append(out.details, r.Detail+": "+r.Input)
	}
	return out
}

// Lines are stored however they are cut into reads. Those that are too long, or without an
// end, are counted and not stored; the others are.
func TestLinesAreStored(t *testing.T) {
	long := strings.Repeat("x", 21)
	for name, tc := range map[string]struct {
		reads   []string
		want    string
		refused map[string]float64
	}{
		"whole":                      {[]string{"a\nb\n"}, "a\nb\n", nil},
		"in pieces":                  {[]string{"a", "a\nb", "b\n", "c", "\n"}, "aa\nbb\nc\n", nil},
		"nothing":                    {nil, "", nil},
		"without its end":            {[]string{"a\nb"}, "a\n", map[string]float64{"telnet,unterminated": 1}},
		"blanks at the end":          {[]string{"a\n \r"}, "a\n", nil},
		"as long as may be":          {[]string{long[1:], "\n"}, long[1:] + "\n", nil},
		"too long":                   {[]string{"a\n" + long, "xxx", "x\nb\n"}, "a\nb\n", map[string]float64{"telnet,line_too_long": 1}},
		"too long, the end later":    {[]string{long, "\n", "b\n"}, "b\n", map[string]float64{"telnet,line_too_long": 1}},
		"too long twice":             {[]string{long, "\n" + long, long, "\nb\n"}, "b\n", map[string]float64{"telnet,line_too_long": 2}},
		"too long and without end":   {[]string{"a\n", long, long}, "a\n", map[string]float64{"telnet,line_too_long": 1}},
		"too long, in one read":      {[]string{"a\n" + long + "\nb\n"}, "a\n" + long + "\nb\n", nil}, // the parser refuses it
		"HTTP":                       {[]string{"POST / HTTP/1.1\r\n", "a\n"}, "", map[string]float64{"telnet,other_protocol": 1}},
		"HTTP in pieces":             {[]string{"\r\nPOST / ", "HTTP/1.1\r\na\n"}, "\r\n", map[string]float64{"telnet,other_protocol": 1}},
		"HTTP behind the first line": {[]string{"a\n", "POST / HTTP/1.1\n"}, "a\nPOST / HTTP/1.1\n", nil},
	} {
		got := serve(t, &recorder{}, nil, io.EOF, tc.reads...)
		if blocks := strings.Join(got.blocks, ""); blocks != tc.want {
			t.Errorf("%s: stored %q, want %q", name, blocks, tc.want)
		}
		if !maps.Equal(got.refused, tc.refused) {
			t.Errorf("%s: refused %v, want %v", name, got.refused, tc.refused)
		}
		if got.log != "" {
			t.Errorf("%s: logged %s", name, got.log)
		}
	}
}

// What is kept of a refused input is the line itself, and the reason names the setting.
func TestRefusedLinesAreShown(t *testing.T) {
	long := strings.Repeat("x", 21)
	got := serve(t, &recorder{}, nil, io.EOF, "a\n", long, "\n", "tail")
	want := []string{"the connection ended inside this line: tail", "line is longer than telnet.max_line, 20 bytes: " + long}
	if !slices.Equal(got.details, want) {
		t.Errorf("%q, want %q", got.details, want)
	}
	if got.received != 2+21+1+4 {
		t.Errorf("%v bytes were received", got.received)
	}
	if got := serve(t, &recorder{}, nil, io.EOF, "\r\nGET / HTTP/1.1\r\nHost: x\r\n"); len(got.details) != 1 || !strings.HasSuffix(got.details[0], ": GET / HTTP/1.1\r") {
		t.Errorf("%q", got.details)
	}
	if got := serve(t, &recorder{}, nil, io.EOF, "GET / HTTP/1.1\n", "a\n"); got.left != 1 {
		t.Error("a connection of another protocol was read on")
	}
}

// Lines longer than the buffer are read, and a full buffer grows up to ReadBuffer for more lines.
func TestBufferGrowsForLines(t *testing.T) {
	line := strings.Repeat("x", 3*FirstBuffer)
	got := serve(t, &recorder{}, func(p *Protocol) { p.MaxLine = 4 * FirstBuffer }, io.EOF, line+"\na\n")
	if strings.Join(got.blocks, "") != line+"\na\n" || len(got.refused) != 0 {
		t.Errorf("%d blocks, refused %v", len(got.blocks), got.refused)
	}
	many := strings.Repeat("0123456789abcde\n", 16*FirstBuffer/16)
	got = serve(t, &recorder{}, nil, io.EOF, many)
	if strings.Join(got.blocks, "") != many {
		t.Errorf("%d blocks of other lines", len(got.blocks))
	}
	var sizes []int
	for _, b := range got.blocks {
		sizes = append(sizes, len(b)/FirstBuffer)
	}
	if !slices.Equal(sizes, []int{1, 2, 4, 4, 4, 1}) {
		t.Errorf("blocks of %v buffers, want those of a buffer that grows to 4", sizes)
	}
}

// Answers are sent for what was stored, also if only a part was.
func TestAnswers(t *testing.T) {
	if got := serve(t, &recorder{}, nil, io.EOF, "a?\nb\n", "c?\nd?\n"); got.answers != "yes\nyes\nyes\n" {
		t.Errorf("answers %q", got.answers)
	}
}

// A connection goes on after lines that the store refuses, or of which it stores a part; it ends when
// the store cannot take them, so that the client sends them again. All are counted.
func TestLinesThatAreNotStored(t *testing.T) {
	away := &store.UnavailableError{Reason: "the disk is gone"}
	for name, tc := range map[string]struct {
		err     error
		goesOn  bool
		answers string
		refused map[string]float64
	}{
		"refused":     {&store.InputError{Reason: "no such thing"}, true, "", map[string]float64{"telnet,refused": 3}},
		"a part":      {&store.PartError{Stored: 1, Refused: 2, Err: away}, true, "yes\nyes\n", map[string]float64{"telnet,unavailable": 2}},
		"no part":     {&store.PartError{Stored: 0, Refused: 3, Err: away}, false, "", map[string]float64{"telnet,unavailable": 3}},
		"unavailable": {away, false, "", map[string]float64{"telnet,unavailable": 3}},
		"a fault":     {errors.New("a fault"), false, "", map[string]float64{"telnet,unavailable": 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{err: func(block string) error {
				if strings.HasPrefix(block, "a") {
					return fmt.Errorf("store: %w", tc.err)
				}
				return nil
			}}
			got := serve(t, r, nil, io.EOF, "a?\na?\na\n", "b\n")
			if goesOn := strings.Join(r.blocks, "") == "b\n"; goesOn != tc.goesOn || goesOn != (got.left == 0) {
				t.Errorf("%s: goes on %t, stored %q", name, goesOn, r.blocks)
			}
			if !maps.Equal(got.refused, tc.refused) || got.answers != tc.answers {
				t.Errorf("%s: refused %v, want %v; answers %q", name, got.refused, tc.refused, got.answers)
			}
			if logged := strings.Contains(got.log, "lines not stored, closing the connection") && strings.Contains(got.log, "lines=3"); logged == tc.goesOn {
				t.Errorf("%s: logged %q", name, got.log)
			}
			if len(got.details) != 1 || !strings.Contains(got.details[0], tc.err.Error()) {
				t.Errorf("%s: shown is %q", name, got.details)
			}
		})
	}
}

// Lines are offered again to a store that is away for a moment.
func TestLinesAreOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := &recorder{err: func(string) error {
			if tries++; tries < 4 {
				return &store.UnavailableError{Reason: "in a moment"}
			}
			return nil
		}}
		if got := serve(t, r, nil, io.EOF, "a?\n"); !slices.Equal(r.blocks, []string{"a?\n"}) || got.answers != "yes\n" || len(got.refused) != 0 {
			t.Errorf("stored %q, answers %q, refused %v", r.blocks, got.answers, got.refused)
		}
	})
}

// The usual ends of a connection are not logged.
func TestUnusualEndsAreLogged(t *testing.T) {
	for _, tc := range []struct {
		end    error
		logged bool
	}{
		{io.EOF, false},
		{net.ErrClosed, false},
		{os.ErrDeadlineExceeded, false},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{&net.OpError{Op: "read", Err: syscall.EPIPE}, false},
		{&net.OpError{Op: "read", Err: syscall.ETIMEDOUT}, false},
		{&net.OpError{Op: "read", Err: syscall.EIO}, true},
		{errors.New("odd"), true},
	} {
		got := serve(t, &recorder{}, nil, tc.end, "a\n", "tail")
		if logged := strings.Contains(got.log, "telnet: connection ended"); logged != tc.logged {
			t.Errorf("%v: logged %q", tc.end, got.log)
		}
		if !slices.Equal(got.blocks, []string{"a\n"}) || got.refused["telnet,unterminated"] != 1 {
			t.Errorf("%v: stored %q, refused %v", tc.end, got.blocks, got.refused)
		}
	}
}

package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"varve/internal/ingest"
	"varve/internal/principal"
	"varve/internal/store"
	"varve/internal/timeline"
)

// A reader follows a timeline as a browser does.
type reader struct {
	t      *testing.T
	cancel context.CancelFunc
	answer *http.Response
	lines  *bufio.Scanner
	last   string // id
}

// follow begins to follow, and waits until the answer has begun: events that are appended from then
// on arrive.
func (s *served) follow(path string, last string) *reader {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	request, err := http.NewRequestWithContext(ctx, "GET", s.url+root+path, nil)
	must(s.t, err)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	answer, err := http.DefaultClient.Do(request)
	must(s.t, err)
	s.t.Cleanup(func() { cancel(); answer.Body.Close() })
	r := &reader{t: s.t, cancel: cancel, answer: answer, lines: bufio.NewScanner(answer.Body)}
	r.lines.Buffer(nil, 4<<20)
	if answer.StatusCode == http.StatusOK {
		if data := r.next(); data != "" {
			s.t.Fatalf("the answer begins with %s", data)
		}
	}
	return r
}

// next returns the data of the next message, which may be none, and remembers its id.
func (r *reader) next() (data string) {
	r.t.Helper()
	for r.lines.Scan() {
		field, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch field {
		case "id":
			r.last = value
		case "data":
			data = value
		case "":
			if value == "" {
				return data
			}
		}
	}
	return "over"
}

// event returns the data of the next message that has some.
func (r *reader) event() string {
	r.t.Helper()
	for {
		if data := r.next(); data != "" {
			return data
		}
	}
}

func (s *served) appendOne(name string, i int) {
	s.t.Helper()
	s.wantPart(200, `"accepted":1`, "POST", "/"+name+"/events", shown(i))
}

func shown(i int) string {
	return fmt.Sprintf(`{"time":%d,"id":"e%d","type":"t%d","data":%d}`, 1000-i, i, i%2, i)
}

// A reader gets all events as they arrive, late events too. After a broken connection it
// continues without a gap or a repeat, wherever it broke.
func TestTail(t *testing.T) {
	s := serve(t)
	s.appendOne("t", 0)
	r := s.follow("/t/tail", "")
	cursors := []string{r.last}
	for i := 1; i <= 20; i++ {
		s.appendOne("t", i)
		if got := r.event(); got != shown(i) {
			t.Fatalf("event %d arrives as %s", i, got)
		}
		cursors = append(cursors, r.last)
	}
	r.cancel()
	for from := 0; from < 20; from += 3 {
		for _, again := range []*reader{s.follow("/t/tail", cursors[from]), s.follow("/t/tail?cursor="+cursors[from], ""), s.follow("/t/tail?cursor=old", cursors[from])} {
			for i := from + 1; i <= 20; i++ {
				if got := again.event(); got != shown(i) {
					t.Fatalf("from %d: event %d arrives as %s", from, i, got)
				}
			}
			again.cancel()
		}
	}
	odd := s.follow("/t/tail?type=t1&cursor="+cursors[0], "")
	for i := 1; i <= 20; i += 2 {
		if got := odd.event(); got != shown(i) {
			t.Fatalf("of a type: event %d arrives as %s", i, got)
		}
	}
}

// An idle reader gets heartbeats with the cursor. A reader of a timeline that is not there
// gets its first event.
func TestHeartbeat(t *testing.T) {
	s := serve(t)
	s.api.beat = time.Millisecond
	r := s.follow("/later/tail", "")
	for range 3 {
		before := r.last
		if data := r.next(); data != "" || r.last != before || before == "" {
			t.Fatalf("%q, cursor %q after %q", data, r.last, before)
		}
	}
	s.appendOne("later", 1)
	if got := r.event(); got != shown(1) {
		t.Errorf("got %s", got)
	}
}

// Answers end when the server stops.
func TestTailsEndWithTheServer(t *testing.T) {
	s := serve(t)
	r := s.follow("/t/tail", "")
	s.stop()
	if got := r.event(); got != "over" {
		t.Errorf("got %s", got)
	}
	if err := r.lines.Err(); err != nil {
		t.Errorf("the answer was cut: %v", err)
	}
}

func TestTailsMax(t *testing.T) {
	s := serve(t, func(c *timeline.Config, _ *ingest.Config) { c.TailsMax = 2 })
	r := s.follow("/t/tail", "")
	s.follow("/t/tail", "")
	s.wantPart(503, "limit timeline.tails_max of 2", "GET", "/t/tail", "")
	r.cancel()
	deadline := time.Now().Add(time.Minute)
	for {
		again := s.follow("/t/tail", "")
		if again.answer.StatusCode == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a reader that has left is not free")
		}
	}
	answer, err := http.Head(s.url + root + "/t/tail")
	must(t, err)
	answer.Body.Close()
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %v", answer)
	}
}

// A reader that does not read is disconnected, and can continue where it was.
func TestSlowReader(t *testing.T) {
	s := serve(t)
	s.api.patience = 100 * time.Millisecond
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer c.Close()
	fmt.Fprintf(c, "GET %s/slow/tail HTTP/1.1\r\nHost: x\r\n\r\n", root)
	in := bufio.NewReader(c)
	var last string
	for last == "" { // until the answer has begun
		line, err := in.ReadString('\n')
		must(t, err)
		if cursor, ok := strings.CutPrefix(line, "id: "); ok {
			last = strings.TrimSpace(cursor) // on a busy machine, the reader may be cut off right here
		}
	}
	const n = 60
	for i := range n { // far beyond what the system's buffers hold
		s.wantPart(200, `"accepted":1`, "POST", "/slow/events", fmt.Sprintf(`{"time":%d,"id":"e%d","data":"%s"}`, i, i, strings.Repeat("x", 1<<19)))
	}
	for deadline := time.Now().Add(time.Minute); s.slow() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the reader is not cut off")
		}
	}
	must(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	sawEnd := false
	for !sawEnd {
		line, err := in.ReadString('\n')
		if cursor, ok := strings.CutPrefix(line, "id: "); ok && err == nil {
			last = strings.TrimSpace(cursor)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err != nil && strings.Contains(err.Error(), "reset") {
			sawEnd = true
		} else {
			must(t, err)
		}
		if strings.Contains(line, fmt.Sprintf(`"id":"e%d"`, n-1)) {
			t.Fatal("the system's buffers hold all that was sent")
		}
	}
	s.api.patience = time.Minute
	r := s.follow("/slow/tail", last)
	for {
		if got := r.event(); strings.Contains(got, fmt.Sprintf(`"id":"e%d"`, n-1)) {
			break
		} else if got == "over" {
			t.Fatal("the rest does not arrive")
		}
	}
}

// slow is how many readers were cut off since they were slow.
func (s *served) slow() float64 {
	var m dto.Metric
	must(s.t, s.api.cut.WithLabelValues("slow").Write(&m))
	return m.Counter.GetValue()
}

// fly takes the memory for events that are on their way, except for n bytes, for readers of two other
// addresses. The function that it returns gives it back.
func (s *served) fly(n int64) (rest func()) {
	s.t.Helper()
	const kept = tailMemory / tailShare
	crowd, other := principal.NetworkOf("192.0.2.1:1"), principal.NetworkOf("192.0.2.2:1")
	enter := func(sender netip.Prefix, bytes int64) { // once the readers before have sent theirs
		_, _, err := s.api.flying.Enter(s.t.Context(), sender, bytes)
		must(s.t, err)
	}
	enter(crowd, tailMemory-kept)
	enter(other, kept-n) // second, so that it is of the reserve
	return func() {
		s.api.flying.Leave(crowd, tailMemory-kept)
		s.api.flying.Leave(other, kept-n)
	}
}

// Events that are on their way to all readers are bounded.
func TestTailMemory(t *testing.T) {
	s := serve(t)
	r := s.follow("/t/tail", "")
	rest := s.fly(0)
	s.appendOne("t", 1)
	if got := r.event(); got != "over" {
		t.Errorf("got %s", got)
	}
	rest()
	if got := s.follow("/t/tail", r.last).event(); got != shown(1) {
		t.Errorf("after that: %s", got)
	}
}

// A reader gets data that is stored separately, in one answer, even if the outstanding data takes
// more memory than may be in flight. An event that was deleted is left out, with the one that the
// reader had last.
func TestTailOfPayloads(t *testing.T) {
	for _, layout := range []string{`{"mode":"index"}`, `{"mode":"hybrid","threshold":1000}`} {
		s := serve(t)
		s.wantPart(200, `"version":1`, "POST", "/t/layout", layout)
		before := s.follow("/t/tail", "")
		before.cancel() // it does not read what it would get
		const n = 200   // less than what a reader is given at once
		shown := func(i int) string {
			size := 16 << 10
			if i%3 == 0 {
				size = 10
			}
			return fmt.Sprintf(`{"time":%d,"id":"e%d","type":"","data":"%s"}`, 1000+i, i, strings.Repeat("x", size))
		}
		var all []string
		for i := range n {
			all = append(all, shown(i))
		}
		s.wantPart(200, `"accepted":200`, "POST", "/t/events", "["+strings.Join(all, ",")+"]")
		s.fly(1 << 20)
		cursors := []string{before.last}
		r := s.follow("/t/tail", before.last)
		for i := range n {
			if got := r.event(); got != shown(i) {
				t.Fatalf("%s: event %d arrives as %.100s", layout, i, got)
			}
			cursors = append(cursors, r.last)
		}
		s.want(204, "", "DELETE", "/t/events?from=1002&until=1004", "")
		r = s.follow("/t/tail", cursors[3]) // that of event 2
		for i := 5; i < n; i++ {
			if got := r.event(); got != shown(i) {
				t.Fatalf("%s: after a delete, event %d arrives as %.100s", layout, i, got)
			}
		}
	}
}

// TestTailMemoryOfOneAddress: readers of one address whose events are on their way for long do not cut readers
// of another.
func TestTailMemoryOfOneAddress(t *testing.T) {
	s := serve(t)
	r := s.follow("/t/tail", "")
	crowd := principal.NetworkOf("192.0.2.1:1")
	n := 0
	for s.api.flying.TryEnter(crowd, 1<<20) {
		n++
	}
	s.appendOne("t", 1)
	if got := r.event(); got != shown(1) {
		t.Errorf("got %s, while %d MiB are on their way to others", got, n)
	}
}

// TestTailsOfOneAddress: readers of one address, however many, leave places for others.
func TestTailsOfOneAddress(t *testing.T) {
	s := serve(t, func(c *timeline.Config, _ *ingest.Config) { c.TailsMax = 16 })
	crowd := timeline.TailQuery{Timeline: "t", Sender: principal.NetworkOf("192.0.2.1:1")}
	for range 14 {
		sub, err := s.api.engine.Tail(t.Context(), crowd)
		must(t, err)
		defer sub.Close()
	}
	_, err := s.api.engine.Tail(t.Context(), crowd)
	if want := "limit timeline.tails_max of 16 reached: readers that follow timelines; 14 do, and of one address at most 14 may"; !errors.As(err, new(*store.LimitError)) || err.Error() != want {
		t.Errorf("one address has more than seven eighths of the places: %v, want %s", err, want)
	}
	for range 2 {
		if r := s.follow("/t/tail", ""); r.answer.StatusCode != http.StatusOK {
			t.Errorf("another address gets status %d", r.answer.StatusCode)
		}
	}
	s.wantPart(503, "limit timeline.tails_max of 16", "GET", "/t/tail", "")
}

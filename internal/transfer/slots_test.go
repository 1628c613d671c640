package transfer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/principal"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/units"
)

// startOneSlot serves exports and imports, one at a time, with short turns.
func startOneSlot(t *testing.T, s store.Store) *httptest.Server {
	c := DefaultConfig()
	c.MaxConcurrent = 1
	api := NewAPI(s, newPipeline(s, nil), c, prometheus.NewRegistry(), nil)
	api.slots.turn, api.slots.rate = time.Millisecond, units.GiB
	mux := http.NewServeMux()
	for _, r := range api.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Checked())
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

const importedLine = `{"name":"m","tags":{"h":"a"},"datapoints":[[1,1]]}`

// importUntilTaken sends a line again and again until it gets a slot.
func importUntilTaken(t *testing.T, server *httptest.Server) {
	t.Helper()
	for range 1000 {
		r, err := server.Client().Post(server.URL+"/api/v1/import", "", strings.NewReader(importedLine))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatal("a slow client keeps its slot")
}

// An announcing body closes taken after left bytes have been read.
type announcing struct {
	io.ReadCloser
	left  int
	taken chan struct{}
}

func (a *announcing) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if a.left -= n; n > 0 && a.left <= 0 && a.left+n > 0 {
		close(a.taken)
	}
	return n, err
}

// An import whose client sends nothing loses its slot to another one. What the client
// has sent is stored, and the answer says where to resume.
func TestSlowImportGivesWay(t *testing.T) {
	s := reference.New(nil)
	server := startOneSlot(t, s)
	whole := strings.Replace(importedLine, `"m"`, `"slow"`, 1) + "\n"
	parts := []string{whole, whole[:20]}
	taken := make(chan struct{})
	handler := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 { // the request of the slow client
			r.Body = &announcing{r.Body, len(parts[0] + parts[1]), taken}
		}
		handler.ServeHTTP(w, r)
	})
	body, send := io.Pipe()
	defer send.Close()
	answer := make(chan string, 1)
	go func() {
		r, err := server.Client().Post(server.URL+"/api/v1/import", "", body)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		answer <- fmt.Sprint(r.StatusCode, r.Header.Get("Retry-After"), string(text))
	}()
	for _, part := range parts {
		if _, err := io.WriteString(send, part); err != nil {
			t.Fatal(err)
		}
	}
	<-taken
	importUntilTaken(t, server)
	got := <-answer
	for _, want := range []string{"503", `"offset":54,"line":1,"points":1,"rejected":0`, "less than 1GiB a second",
		"others wait for the slot; everything up to line 1 is stored: send what follows it, from byte 54"} {
		if !strings.Contains(got, want) {
			t.Errorf("answer %s, want %s", got, want)
		}
	}
	if text := dump(t, s); !strings.Contains(text, "slow") {
		t.Errorf("the line that came whole is not stored: %s", text)
	}
}

// An import that loses its slot between two reads also answers at once, without waiting
// for the rest of its body.
func TestImportGivesWayBetweenReads(t *testing.T) {
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := newSlot(time.Now, time.Minute, slowRate, w)
		p.yield() // while no read is pending
		_, err := slotBody{r.Body, p}.Read(make([]byte, 1))
		ended <- err
	}))
	t.Cleanup(server.Close)
	body, send := io.Pipe()
	defer send.Close()
	server.Client().Timeout = 2 * time.Minute
	r, err := server.Client().Post(server.URL, "", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if err := <-ended; !errors.As(err, new(*yieldedError)) {
		t.Error(err)
	}
}

// An export whose client reads nothing loses its slot, too. Its connection is closed,
// so that the client does not mistake a part for the whole.
func TestSlowExportGivesWay(t *testing.T) {
	s := reference.New(nil)
	server := startOneSlot(t, s)
	var points []string
	for i := range 100_000 {
		points = append(points, fmt.Sprintf("[%d,%q]", i, strings.Repeat("x", 100)))
	}
	r, err := server.Client().Post(server.URL+"/api/v1/import", "", strings.NewReader(`{"name":"big","tags":{"h":"a"},"datapoints":[`+strings.Join(points, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	if r.Body.Close(); r.StatusCode != http.StatusOK {
		t.Fatal(r.Status)
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(256 << 10)
	if _, err := io.WriteString(conn, "GET /api/v1/export HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	importUntilTaken(t, server)
	if _, err := io.Copy(io.Discard, response.Body); err == nil {
		t.Error("the export that gave way looks complete")
	}
}

// A client is slow only if the transfer waits for it and it transfers little, and only
// after a turn.
func TestSlowClients(t *testing.T) {
	for _, c := range []struct {
		name   string
		client time.Duration // to transfer a piece of 64 KiB
		work   time.Duration // of the server, between pieces
		pieces int
		slow   bool
	}{
		{"trickles", time.Second, 0, 120, true},
		{"trickles for less than a turn", time.Second, 0, 50, false},
		{"steady", time.Second / 4, 0, 1000, false},
		{"waits for the store", time.Second / 2, time.Second, 120, false},
		{"quick", time.Millisecond, 0, 1_000_000, false},
	} {
		now := time.Unix(0, 0)
		p := newSlot(func() time.Time { return now }, time.Minute, slowRate, httptest.NewRecorder())
		piece := func(client time.Duration) {
			p.wait(true, func() (int, error) { now = now.Add(client); return int(64 * units.KiB), nil })
		}
		for range c.pieces {
			piece(c.client)
			now = now.Add(c.work)
		}
		if _, slow := p.slow(); slow != c.slow {
			t.Errorf("%s: slow is %v", c.name, slow)
		}
	}

	// A client that was fast before does not keep its slot.
	now := time.Unix(0, 0)
	p := newSlot(func() time.Time { return now }, time.Minute, slowRate, httptest.NewRecorder())
	for range 10_000 {
		p.wait(false, func() (int, error) { now = now.Add(time.Millisecond); return int(units.MiB), nil })
	}
	for range 200 {
		p.wait(false, func() (int, error) { now = now.Add(time.Second); return 1000, nil })
	}
	if rate, slow := p.slow(); !slow || rate != 1000 {
		t.Errorf("quick, then slow: slow is %v at %v bytes/s", slow, rate)
	}
	p.yield()
	if _, err := p.wait(false, func() (int, error) { t.Error("read after the slot was given up"); return 0, nil }); !errors.As(err, new(*yieldedError)) {
		t.Error(err)
	}
}

// A silent client keeps its slot for only seconds while others wait. A client that
// transfers a little now and then keeps it for a turn.
func TestSilentClients(t *testing.T) {
	for writing, most := range map[bool]time.Duration{false: silence, true: unread} {
		now := time.Unix(0, 0)
		p := newSlot(func() time.Time { return now }, time.Minute, slowRate, httptest.NewRecorder())
		for range int(time.Minute / most) { // little, and within a turn
			p.wait(writing, func() (int, error) {
				now = now.Add(most - time.Second)
				if _, slow := p.slow(); slow {
					t.Errorf("slow after %v", most-time.Second)
				}
				return 1, nil
			})
		}
		_, err := p.wait(writing, func() (int, error) {
			now = now.Add(most)
			if rate, slow := p.slow(); !slow || rate != 0 {
				t.Errorf("after %v of silence slow is %v at %v bytes/s", most, slow, rate)
			}
			p.yield()
			return 0, errBroken
		})
		if want := fmt.Sprintf("the client transferred nothing for %v, and others wait for the slot", most); err == nil || err.Error() != want {
			t.Errorf("ended with %v, want %s", err, want)
		}
	}
	now := time.Unix(0, 0)
	p := newSlot(func() time.Time { return now }, time.Minute, slowRate, httptest.NewRecorder())
	now = now.Add(time.Hour)
	if _, slow := p.slow(); slow {
		t.Error("a transfer that waits for the store, not for its client, is slow")
	}
}

// A large write of an export is divided into small ones, so that the progress of a
// client that reads steadily is visible.
func TestExportMovesInPieces(t *testing.T) {
	out := &pieces{ResponseRecorder: httptest.NewRecorder()}
	w := &slotWriter{out, newSlot(time.Now, time.Minute, slowRate, out)}
	if n, err := w.Write(make([]byte, 10*writeBytes+1)); n != 10*writeBytes+1 || err != nil {
		t.Error(n, err)
	}
	if out.largest != writeBytes || out.Body.Len() != 10*writeBytes+1 {
		t.Errorf("a piece of %d bytes, %d in all", out.largest, out.Body.Len())
	}
}

type pieces struct {
	*httptest.ResponseRecorder
	largest int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.ResponseRecorder.Write(b)
}

// Transfers of one address, however fast, leave a slot for others.
func TestTransfersOfOneAddressLeaveASlot(t *testing.T) {
	all := newSlots(4)
	enter := func(client string) (leave func()) {
		r := httptest.NewRequest("GET", "/api/v1/export", http.NoBody)
		r.RemoteAddr = client
		_, _, leave = all.enter(httptest.NewRecorder(), r)
		return leave
	}
	for range 3 {
		if enter("192.0.2.1:1") == nil {
			t.Fatal("three transfers of one address do not run at once")
		}
	}
	if enter("192.0.2.1:1") != nil {
		t.Error("one address has all slots")
	}
	for range 2 { // one after the other
		leave := enter("192.0.2.2:1")
		if leave == nil {
			t.Fatal("another address gets no slot")
		}
		if enter("192.0.2.3:1") != nil || enter("192.0.2.2:2") != nil {
			t.Error("five transfers run at once")
		}
		leave()
	}
}

// A request whose address could not have the last slot does not end the slow transfer that has it. One of an
// address without a slot does.
func TestLastSlotIsTakenOnlyByThoseWhoMayHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSlots(4)
		enter := func(client string) bool {
			r := httptest.NewRequest("GET", "/api/v1/export", http.NoBody)
			r.RemoteAddr = client
			own, _, _ := all.enter(httptest.NewRecorder(), r)
			return own != nil
		}
		for _, client := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.2:1"} {
			if !enter(client) {
				t.Fatalf("no slot for %s", client)
			}
		}
		var last *slot
		for s := range all.taken {
			if s.sender == principal.NetworkOf("192.0.2.2:1") {
				last, s.blocked = s, s.now()
			}
		}
		time.Sleep(silence)
		if enter("192.0.2.1:4") || last.gaveUp() != nil {
			t.Errorf("an address with three of four slots ended the transfer of another one: %v", last.gaveUp())
		}
		if enter("192.0.2.3:1") || last.gaveUp() == nil { // this transfer never gives its slot back
			t.Error("an address without a slot did not end a slow transfer")
		}
	})
}

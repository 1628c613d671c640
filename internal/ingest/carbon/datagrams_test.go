package carbon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/principal"
	"varve/internal/store"
)

// A udpHarness is a server of datagrams on loopback.
type udpHarness struct {
	*testing.T
	recorder *ingesttest.Recorder
	reg      *prometheus.Registry
	server   *DatagramServer
	addr     *net.UDPAddr
	served   chan error
}

func startUDP(t *testing.T, change func(*Config)) *udpHarness {
	h := &udpHarness{T: t, recorder: &ingesttest.Recorder{}, served: make(chan error, 1)}
	pipeline, reg := ingesttest.NewPipeline(h.recorder, nil)
	h.reg = reg
	cfg := DefaultConfig()
	cfg.RetryFor = 100 * time.Millisecond
	if change != nil {
		change(&cfg)
	}
	h.server = NewDatagramServer(pipeline, cfg, Options{Registerer: reg})
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	h.addr = c.LocalAddr().(*net.UDPAddr)
	go func() { h.served <- h.server.Serve(context.Background(), c, nil) }()
	return h
}

// send sends datagrams, one after the other, each once the one before was received: the
// operating system may drop what waits.
func (h *udpHarness) send(datagrams ...string) {
	h.Helper()
	c, err := net.DialUDP("udp", nil, h.addr)
	if err != nil {
		h.Fatal(err)
	}
	defer c.Close()
	before := h.count("varve_carbon_udp_datagrams_total")[""]
	for i, d := range datagrams {
		if _, err := c.Write([]byte(d)); err != nil {
			h.Fatal(err)
		}
		h.until(func() bool { return h.count("varve_carbon_udp_datagrams_total")[""] == before+float64(i+1) })
	}
}

func (h *udpHarness) until(done func() bool) {
	h.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatal("nothing happens")
		}
	}
}

func (h *udpHarness) count(name string) map[string]float64 {
	return ingesttest.Counters(h.T, h.reg, name)
}

func (h *udpHarness) stop() {
	h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(h.server.Shutdown(ctx), <-h.served); err != nil {
		h.Error(err)
	}
}

// TestDatagrams: a datagram holds whole lines, of which the last may lack its end, and a
// faulty line costs itself alone.
func TestDatagrams(t *testing.T) {
	h := startUDP(t, func(c *Config) { c.MaxLine = 64 })
	h.send("a 1 100\nb;x=1 2 100\r\nc 3 100", "", "\n\n", "bad", "a nan 200\n\xff\xfe 1 100\nd 4 100\n"+strings.Repeat("x", 65)+" 1 1",
		strings.Repeat("e 5 100\n", 8000)) // of nearly the size that UDP has
	h.stop()
	stored := strings.Split(h.recorder.Text(), "\n")
	if len(stored) != 8004 || stored[2] != asStored("c 3 100000") || stored[3] != asStored("d 4 100000") {
		t.Errorf("%d samples stored: %.300s", len(stored), stored)
	}
	refused := h.count("varve_ingest_rejected_total")
	for reason, n := range map[string]float64{"bad_syntax": 1, "not_finite": 1, "bad_utf8": 1, "line_too_long": 1} {
		if refused["carbon_udp,"+reason] != n {
			t.Errorf("%v refused as %s, want %v", refused, reason, n)
		}
	}
}

// TestDatagramsAreStoredAtTheStop: what was received is stored before Serve returns.
func TestDatagramsAreStoredAtTheStop(t *testing.T) {
	h := startUDP(t, nil)
	began, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.recorder.OnAppend = func(*store.Batch) error {
		once.Do(func() { close(began); <-goOn })
		return nil
	}
	h.send("a 1 100")
	<-began
	h.send("b 1 100", "c 1 100")
	close(goOn)
	h.stop()
	if samples, appends := h.recorder.Count(); samples != 3 || appends != 2 {
		t.Errorf("%d samples in %d batches, want 3 in 2", samples, appends)
	}
	c, err := net.ListenUDP("udp", h.addr)
	if err != nil {
		t.Fatalf("the port is not free after the stop: %v", err)
	}
	c.Close()
}

// TestDatagramsOfAConnectionThatFails: Serve returns why it can receive no more.
func TestDatagramsOfAConnectionThatFails(t *testing.T) {
	pipeline, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := NewDatagramServer(pipeline, DefaultConfig(), Options{Registerer: reg}).Serve(t.Context(), c, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got error %v, want %v", err, net.ErrClosed)
	}
}

// TestDatagramsOfAStoreThatIsAway: each line is stored or counted.
func TestDatagramsOfAStoreThatIsAway(t *testing.T) {
	for _, c := range []struct {
		failures int
		err      error
		stored   int
		reason   string
	}{
		{2, &store.UnavailableError{Reason: "away"}, 2, ""},
		{1 << 30, &store.UnavailableError{Reason: "away"}, 0, "unavailable"},
		{1 << 30, &store.InputError{Reason: "no"}, 0, "refused"},
		{1 << 30, errors.New("a fault of the store"), 0, "unavailable"},
	} {
		h := startUDP(t, func(cfg *Config) {
			if c.reason == "" {
				cfg.RetryFor = time.Minute
			}
		})
		left := c.failures
		h.recorder.OnAppend = func(*store.Batch) error {
			if left--; left < 0 {
				return nil
			}
			return c.err
		}
		h.send("a 1 100\nb 1 100")
		h.stop()
		if samples, _ := h.recorder.Count(); samples != c.stored {
			t.Errorf("%v: %d samples stored, want %d", c.err, samples, c.stored)
		}
		if got := h.count("varve_ingest_rejected_total"); c.reason != "" && got["carbon_udp,"+c.reason] != 2 {
			t.Errorf("%v: refused %v, want 2 as %s", c.err, got, c.reason)
		}
	}
}

// TestDatagramsThatAPartOfTheStoreRefuses: they are counted, and those of others are stored.
func TestDatagramsThatAPartOfTheStoreRefuses(t *testing.T) {
	h := startUDP(t, func(c *Config) { c.RetryFor = time.Hour })
	h.recorder.Refused = "b"
	h.send("b 1 100\na 1 100")
	h.until(func() bool { return h.count("varve_ingest_rejected_total")["carbon_udp,unavailable"] > 0 })
	h.send("a 1 200")
	h.stop()
	if got, want := h.recorder.Text(), asStored("a 1 100000")+"\n"+asStored("a 1 200000"); got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	if got := h.count("varve_ingest_rejected_total")["carbon_udp,unavailable"]; got != 1 {
		t.Errorf("%v refused", got)
	}
}

// TestDatagramsBeyondTheInbox: while the store is slow a bounded number waits, and the
// rest is counted. Nothing is both or neither.
func TestDatagramsBeyondTheInbox(t *testing.T) {
	h := startUDP(t, func(c *Config) { c.ReadBuffer = maxDatagram })
	goOn := make(chan struct{})
	h.recorder.OnAppend = func(*store.Batch) error { <-goOn; return nil }
	const lines, sent = 1000, 3 * inboxBlocks
	full := strings.Repeat("a 1 100"+strings.Repeat(" ", 50)+"\n", lines) // of which a block has room for one
	for range sent {
		h.send(full)
	}
	refused := func() float64 { return h.count("varve_ingest_rejected_total")["carbon_udp,unavailable"] }
	if dropped := refused(); dropped < lines*float64(sent-inboxBlocks*maxDatagram/len(full)-1) { // one is being stored
		t.Errorf("%v lines dropped of %d", dropped, lines*sent)
	}
	close(goOn)
	h.stop()
	if samples, _ := h.recorder.Count(); float64(samples)+refused() != lines*sent {
		t.Errorf("%d samples stored and %v dropped of %d", samples, refused(), lines*sent)
	}
}

// TestStopOfDatagramsIsBounded: a store that hangs does not keep the server.
func TestStopOfDatagramsIsBounded(t *testing.T) {
	h := startUDP(t, func(c *Config) { c.RetryFor = time.Hour })
	h.recorder.OnAppend = func(*store.Batch) error { return &store.UnavailableError{Reason: "away"} }
	h.send("a 1 100")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := h.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped with %v", err)
	}
	if err := <-h.served; err != nil {
		t.Error(err)
	}
	if n := h.count("varve_ingest_rejected_total")["carbon_udp,unavailable"]; n != 1 {
		t.Errorf("%v lines are counted, want 1", n)
	}
	if err := h.server.Shutdown(context.Background()); err != nil {
		t.Errorf("stopped again with %v", err)
	}
}

// TestSendersOfDatagrams: a refused line is shown with who sent it.
func TestSendersOfDatagrams(t *testing.T) {
	recorder := &ingesttest.Recorder{}
	pipeline, reg := ingesttest.NewPipeline(recorder, nil)
	s := NewDatagramServer(pipeline, DefaultConfig(), Options{Registerer: reg})
	in := newInbox(0)
	for i := range 3 {
		in.put([]byte("bad"), netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:9", i)), principal.Principal{})
	}
	in.end()
	s.store(context.Background(), in)
	latest, total := pipeline.Rejected()
	senders := map[string]bool{}
	for _, r := range latest {
		senders[r.Remote] = r.Reason == ingest.BadSyntax.String()
	}
	if total != 3 || len(senders) != 3 || !senders["192.0.2.2:9"] {
		t.Errorf("%d rejections, of %v", total, senders)
	}
}

// TestDatagramsOfAlternatingSenders: datagrams of many senders are stored together, each with the
// rights and the name of its sender.
func TestDatagramsOfAlternatingSenders(t *testing.T) {
	const each = 200
	recorder := &ingesttest.Recorder{}
	pipeline, reg := ingesttest.NewPipeline(recorder, nil)
	s := NewDatagramServer(pipeline, DefaultConfig(), Options{Registerer: reg})
	in := newInbox(0)
	for i := range each {
		for _, by := range []principal.Principal{{Name: "anna"}, {Name: "bert"}, {Name: "carl", Prefix: "c."}, {Name: "dora", Prefix: "c."}} {
			from := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(by.Name[0]))
			if !in.put(fmt.Appendf(nil, "%s.%d 1 100", by.Name[:1], i), from, by) {
				t.Fatalf("datagram %d of %s is dropped", i, by.Name)
			}
		}
	}
	in.end()
	s.store(context.Background(), in)
	if samples, appends := recorder.Count(); samples != 3*each || appends != 2 {
		t.Errorf("%d samples in %d batches, want %d in 2", samples, appends, 3*each)
	}
	latest, total := pipeline.Rejected()
	if total != each {
		t.Errorf("%d rejections, want %d", total, each)
	}
	for _, r := range latest {
		if r.Remote != "192.0.2.1:100" || !strings.Contains(r.Detail, "dora may only write") {
			t.Errorf("rejection of %s: %s", r.Remote, r.Detail)
		}
	}
}

// Datagrams of a tenant are stored and counted by that tenant's server, also while the store
// of another one hangs.
func TestDatagramsOfTenants(t *testing.T) {
	own, acme := &ingesttest.Recorder{}, &ingesttest.Recorder{}
	ownPipeline, ownReg := ingesttest.NewPipeline(own, nil)
	acmePipeline, acmeReg := ingesttest.NewPipeline(acme, nil)
	s := NewDatagramServer(ownPipeline, DefaultConfig(), Options{Registerer: ownReg})
	s.HandOver("acme", NewDatagramServer(acmePipeline, DefaultConfig(), Options{Registerer: acmeReg}))
	goOn := make(chan struct{})
	own.OnAppend = func(*store.Batch) error { <-goOn; return nil }
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var turn atomic.Int64
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(context.Background(), c, func(netip.Addr) (principal.Principal, error) {
			switch turn.Add(1) {
			case 1:
				return principal.Principal{Tenant: principal.Default}, nil
			case 2:
				return principal.Principal{Tenant: "acme"}, nil
			}
			return principal.Principal{}, errors.New("no rule")
		})
	}()
	h := &udpHarness{T: t, reg: ownReg, addr: c.LocalAddr().(*net.UDPAddr), server: s, served: served}
	h.send("a 1 100", "b 1 100\nbad", "c 1 100")
	h.until(func() bool { n, _ := acme.Count(); return n == 1 })
	close(goOn)
	h.stop()
	if got := own.Text(); got != asStored("a 1 100000") {
		t.Errorf("the default tenant has %s", got)
	}
	if got := acme.Text(); got != asStored("b 1 100000") {
		t.Errorf("acme has %s", got)
	}
	if got := ingesttest.Counters(t, acmeReg, "varve_ingest_rejected_total"); got["carbon_udp,bad_syntax"] != 1 {
		t.Errorf("acme's refusals: %v", got)
	}
	if got := h.count("varve_ingest_rejected_total"); got["carbon_udp,forbidden"] != 1 || got["carbon_udp,bad_syntax"] != 0 {
		t.Errorf("other refusals: %v", got)
	}
}

// A sender whose datagrams fill the inbox leaves room for those of others, and two such senders for
// those of a third. All addresses of an IPv6 network are one sender.
func TestSharesOfTheInbox(t *testing.T) {
	in := newInbox(0)
	fill := func(addr string, data []byte) (n int) {
		for a := netip.MustParseAddr(addr); in.put(data, netip.AddrPortFrom(a, uint16(n)), principal.Principal{}); n++ {
			if a.Is6() {
				a = a.Next()
			}
		}
		return n
	}
	for _, data := range [][]byte{[]byte("a 1 100"), make([]byte, maxDatagram)} {
		most := min(inboxBlocks*maxDatagram/len(data), inboxBlocks*ingest.BlockSamples)
		if n := fill("192.0.2.1", data); n < most/2-1 || n > most/2+1 {
			t.Errorf("one sender has %d of %d datagrams of %d bytes", n, most, len(data))
		}
		if n := fill("2001:db8::1", data); n < most/4-1 || n > most/4+1 {
			t.Errorf("the second sender has %d of %d datagrams of %d bytes", n, most, len(data))
		}
		if n := fill("192.0.2.2", data); n < most/8-1 {
			t.Errorf("the third sender has %d of %d datagrams of %d bytes", n, most, len(data))
		}
		for in.mu.all.datagrams > 0 {
			in.next()
		}
		if in.mu.all != (share{}) || len(in.mu.shares) != 0 {
			t.Errorf("the empty inbox has %+v of %d senders", in.mu.all, len(in.mu.shares))
		}
	}
}

func BenchmarkInbox(b *testing.B) {
	in := newInbox(256 << 10)
	data, from := []byte("some.path.of.a.metric 1.5 1700000000"), netip.MustParseAddrPort("192.0.2.1:9")
	b.ReportAllocs()
	for b.Loop() {
		for !in.put(data, from, principal.Principal{}) {
			block, _ := in.next()
			in.recycle(block)
		}
	}
}

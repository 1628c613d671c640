package carbon

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/principal"
)

// Texts of Python 2 have quotes and escapes. An escape that Python does not make stays as it is.
func TestUnquote(t *testing.T) {
	for quoted, want := range map[string]string{
		`'a.b'`: "a.b", `"a.b"`: "a.b", `'a"b'`: `a"b`, `'a\'b'`: "a'b", `"a\"b"`: `a"b`, `'a\\b'`: `a\b`, `'\n\r\t'`: "\n\r\t", `'\x41\xfF'`: "A\xff", `'\q'`: `\q`, `'a\'`: `a\`,
		`''`: "", `'a' `: "a", "'a'\t\r": "a",
		`a`: "error", `'`: "error", `'a"`: "error", `"a'`: "error", ``: "error", `aa`: "error", `'\x4'`: "error", `'\xg0'`: "error",
	} {
		p := &pickle{own: []byte("before")}
		got := "error"
		if v, err := p.unquote([]byte(quoted)); err == nil {
			got = string(p.text(v))
		}
		if got != want {
			t.Errorf("%s: %q, want %q", quoted, got, want)
		}
	}
}

// Texts of protocol 0 are Latin-1, with escapes of four or eight digits. Another escape stays as it is.
func TestUnescape(t *testing.T) {
	for escaped, want := range map[string]string{
		``: "", `a.b`: "a.b", "\xe9": "é", `\u0061.b`: "a.b", `a\u00e9`: "aé", `\U0001F600.b`: "😀.b", `a\U00000062`: "ab", `\`: `\`, `\q`: `\q`,
		`\u006`: "error", `\U0000006`: "error", `\u00g1`: "error", `\U0000006g`: "error", `\ud800`: "error", `\U00110000`: "error", `\u`: "error", `\U`: "error",
	} {
		p := &pickle{own: []byte("before")}
		got := "error"
		if v, err := p.unescape([]byte(escaped)); err == nil {
			got = string(p.text(v))
		}
		if got != want {
			t.Errorf("%q: %q, want %q", escaped, got, want)
		}
	}
}

// What appends to something other than a list is an error.
func TestPickledAppendToNoList(t *testing.T) {
	for _, text := range []string{"NK\x01a.", "K\x01a.", "a.", "(K\x01e.", "N(K\x01e.", "U\x01a(e.", "(NK\x01al.", "(N(K\x01el."} {
		if got := pickled([]byte(text)); got != "error" {
			t.Errorf("%q: %q, want an error", text, got)
		}
	}
}

// What is remembered under a number that was used before takes the place of that, as in Python.
func TestPickledAgainUnderTheSameNumber(t *testing.T) {
	point := func(name, use string) string {
		return "(" + name + "(K\x01K\x02t" + use + "t"
	}
	first, second := "U\x01aq\x00", "U\x01bq\x00"
	all := "](" + point(first, "") + point(second, "") + point("h\x00", "") + "e."
	if got, want := pickled([]byte(all)), pickled([]byte("]("+point("U\x01a", "")+point("U\x01b", "")+point("U\x01b", "")+"e.")); got != want || got == "error" {
		t.Errorf("%s, want %s", got, want)
	}
}

// Integers have 16 bytes at most. A longer one is an error, and not a point without a value.
func TestPickledLongIntegers(t *testing.T) {
	point := func(bytes string) string {
		return "]((U\x01a(K\x01\x8a" + string([]byte{byte(len(bytes))}) + bytes + "tte."
	}
	for n, want := range map[int]string{0: "a 0 1000", 1: "a 1 1000", 16: "a 1 1000", 17: "error", 255: "error"} {
		bytes := strings.Repeat("\x00", n)
		if n > 0 {
			bytes = "\x01" + bytes[1:]
		}
		if got := pickled([]byte(point(bytes))); got != want {
			t.Errorf("an integer of %d bytes: %q, want %q", n, got, want)
		}
	}
	if got := pickled([]byte("]((U\x01a(K\x01\x8a\x11tte.")); got != "error" {
		t.Errorf("an integer whose bytes are not there: %q", got)
	}
}

// The memo is filled one after the other, from 0 or 1 on. A number that leaves out others is an error.
func TestPickledMemoWithAGap(t *testing.T) {
	point := func(number string) string { return "]((U\x01aq" + number + "(K\x01K\x02tte." }
	for number, want := range map[string]string{"\x00": "a 2 1000", "\x01": "a 2 1000", "\x02": "error", "\x05": "error"} {
		if got := pickled([]byte(point(number))); got != want {
			t.Errorf("remembered as number %q: %q, want %q", number, got, want)
		}
	}
}

// A server of datagrams that was stopped before it began takes none, and closes the socket; one whose
// context ends says so.
func TestDatagramsAfterTheStop(t *testing.T) {
	pipeline, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	s := NewDatagramServer(pipeline, DefaultConfig(), Options{Registerer: reg})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	listen := func() *net.UDPConn {
		t.Helper()
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := listen()
	if err := s.Serve(context.Background(), c, nil); err != nil {
		t.Error(err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is open: %v", err)
	}
	pipeline, reg = ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewDatagramServer(pipeline, DefaultConfig(), Options{Registerer: reg}).Serve(ctx, listen(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// An empty datagram takes no place in the inbox and is not counted as dropped when that is full.
func TestEmptyDatagram(t *testing.T) {
	pipeline, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	d := desk{NewDatagramServer(pipeline, DefaultConfig(), Options{Registerer: reg}), newInbox(0)}
	d.take(nil, netip.AddrPort{}, principal.Principal{})
	if n := d.in.mu.all.datagrams; n != 0 {
		t.Errorf("%d datagrams wait", n)
	}
	d.in.mu.all.datagrams = inboxBlocks * ingest.BlockSamples
	d.take(nil, netip.AddrPort{}, principal.Principal{})
	if _, total := pipeline.Rejected(); total != 0 {
		t.Errorf("%d inputs are refused", total)
	}
}

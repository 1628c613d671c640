package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// Lines of net/http that differ by the address of a client have one message.
func TestHTTPLog(t *testing.T) {
	for line, want := range map[string]string{
		"http2: server connection error from 127.0.0.1:41000: connection error: PROTOCOL_ERROR\n":   `msg="http2: server connection error from" detail="127.0.0.1:41000: connection error: PROTOCOL_ERROR"`,
		"http2: server: error reading preface from client [::1]:41000: EOF":                         `msg="http2: server: error reading preface from client" detail="[::1]:41000: EOF"`,
		"http: panic serving 127.0.0.1:41000: fault\ngoroutine 1":                                   `msg="http: panic serving" detail="127.0.0.1:41000: fault\ngoroutine 1"`,
		"http: Accept error: accept tcp 127.0.0.1:80: accept4: too many open files; retrying in 1s": `msg="http: Accept error: accept tcp" detail="127.0.0.1:80: accept4: too many open files; retrying in 1s"`,
		"http: URL query contains semicolon, which is no longer a supported separator":              `msg="http: URL query contains semicolon, which is no longer a supported separator"`,
		"127.0.0.1:41000": `msg="" detail=127.0.0.1:41000`,
		"":                `msg=""`,
	} {
		var out bytes.Buffer
		slog.NewLogLogger(httpLog{slog.NewTextHandler(&out, nil)}, slog.LevelWarn).Print(line)
		if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), "level=WARN "); got != want {
			t.Errorf("%q is logged as %s, want %s", line, got, want)
		}
	}
}

package server

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A request that says in two ways where it ends is the last one of its connection, wherever
// its header was read; others are not.
func TestRequestsThatEndTwice(t *testing.T) {
	s := start(t, withRoutes(route("POST", "/hello", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		hello(w, r)
	})))
	const (
		whole   = "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
		chunked = "POST /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
		twice   = "POST /hello HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	)
	for _, tc := range []struct {
		name    string
		writes  []string
		answers int  // that the connection still has
		ends    bool // with the last of them
	}{
		{"alone", []string{twice + whole}, 1, true},
		{"with the length last", []string{"POST /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + whole}, 1, true},
		{"behind others", []string{whole + whole + twice + whole}, 3, true},
		{"later", []string{whole, chunked, twice + whole}, 3, true},
		{"without a route", []string{strings.Replace(twice, "/hello", "/none", 1) + whole}, 1, true},
		{"by chunks alone", []string{chunked, chunked, chunked}, 3, false},
		{"with other requests that are read already", []string{chunked + twice + whole}, 1, true},
		{"of the server as a whole", []string{strings.Replace(twice, "POST /hello", "OPTIONS *", 1) + whole}, 1, true},
		{"of the server as a whole, once", []string{"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" + whole}, 2, false},
		{"by chunks before HTTP/1.1", []string{"POST /hello HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" + whole}, 1, true},
		{"by chunks alone before HTTP/1.1", []string{"POST /hello HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + whole}, 1, true},
		{"before HTTP/1.1", []string{chunked, "POST /hello HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}", whole}, 3, false},
		{"by chunks, with a length behind it", []string{chunked + whole + chunked + whole}, 4, false},
		{"by a length, with chunks behind it", []string{whole + chunked + whole}, 3, false},
		{"by chunks with a length in them", []string{strings.Replace(chunked, "2\r\n{}", "13\r\n\nContent-Length: 4\n", 1) + whole + chunked}, 3, false},
		{"by both in turn", []string{whole, chunked, whole, chunked}, 4, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := s.dial()
			w.t = t
			got := 0
			var response *http.Response
			for i, text := range tc.writes {
				w.send(text)
				last := i == len(tc.writes)-1
				for got < tc.answers && (last || got <= i) {
					response, _ = w.answer()
					got++
				}
			}
			if response.Close != tc.ends {
				t.Errorf("the last answer: close=%v, want %v", response.Close, tc.ends)
			}
			if !tc.ends {
				return
			}
			if _, err := w.r.Peek(1); !errors.Is(err, io.EOF) {
				t.Errorf("the connection goes on: %v", err)
			}
		})
	}
}

// Headers are found however the text is cut into reads.
func TestFraming(t *testing.T) {
	for head, want := range map[string]bool{
		"POST / HTTP/1.1\r\nContent-Type: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n":              true,
		"POST / HTTP/1.1\nTRANSFER-encoding: chunked\nX: y\ncontent-LENGTH: 4\n\n":                                   true,
		"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n{}{}POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n":      false,
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n": false,
		"POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\nX-Transfer-Encoding: a\r\n\r\n":                false,
		"Transfer-Encoding: a\r\nX-Content-Length: 1\r\n Content-Length: 1\r\nContent\rLength: 1\r\nContent-Lengt":   false,
		"POST / HTTP/1.1\nContent-Len\nContent-Length: 4\nTransfer\nTransfer-Encoding: chunked\n\n":                  true, // a line of a part of a name
		"Content-Length: a\r\nTransfer\r\nTransfer-Length: 1\r\nContent-Encoding: a\r\nTransfer-Encodin":             false,
	} {
		for cut := range len(head) {
			var f framing
			f.look([]byte(head[:cut]))
			f.look([]byte(head[cut:]))
			if got := f.twice.Load(); got != want {
				t.Errorf("%q cut at %d: twice %t", head, cut, got)
			}
		}
	}
}

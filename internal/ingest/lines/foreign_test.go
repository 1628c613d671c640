package lines

import (
	"strings"
	"testing"

	"varve/internal/ingest"
)

// TestOpening: a connection is of another protocol if it begins with a request of HTTP or
// with TLS. It is told from the first line, or from a line too long to wait for its end.
func TestOpening(t *testing.T) {
	const most = 20
	long := strings.Repeat("x", most)
	for _, c := range []struct {
		data  string
		want  *ingest.Fault
		known bool
	}{
		{"", nil, false},
		{"\r\n\n", nil, false},
		{"put m 1 2 h=a", nil, false},
		{"put m 1 2 h=a\n", nil, true},
		{"\r\n\nput m 1 2 h=a\n", nil, true},
		{"GET / HTTP/1.1", nil, false},
		{"GET / HTTP/1.1\n", faultHTTP, true},
		{"\r\n\nGET / HTTP/1.1\r\nHost: a\r\n", faultHTTP, true},
		{"any thing HTTP/\n", faultHTTP, true},
		{"GET / http/1.1\n", nil, true},
		{"GET HTTP/1.1\n", nil, true},
		{"GET / HTTP/1.1 x\n", nil, true},
		{"version\nGET / HTTP/1.1\n", nil, true},
		{"GET /" + long[:most-5], nil, false},
		{"GET /" + long[:most-4], faultHTTP, true},
		{"PRI /" + long, faultHTTP, true},
		{"GETS /" + long, nil, true},
		{"get /" + long, nil, true},
		{"put " + long, nil, true},
		{"GET /" + long + " a\n", faultHTTP, true},
		{"\x16", nil, false},
		{"\x16\x03", faultTLS, true},
		{"\x16\x03\x01\x02", faultTLS, true},
		{"\x16\x02\n", nil, true},
		{"\n\x16\x03\x01", faultTLS, true},
	} {
		if got, known := opening([]byte(c.data), most); got != c.want || known != c.known {
			t.Errorf("%q: %v, known %t, want %v, known %t", c.data, got, known, c.want, c.known)
		}
	}
}

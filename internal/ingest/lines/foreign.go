package lines

import (
	"bytes"
	"slices"

	"varve/internal/ingest"
)

// A web page can make a browser connect to any port and send a request whose body
// the page chooses: a POST of text/plain needs no consent of the server. The lines of
// such a body would be commands or samples. The page cannot choose the first line, so a
// connection whose first line is an HTTP request is closed, with all that follows.
//
// The same holds for TLS. A page of https makes a browser send a ClientHello, and a
// server that the browser reached under that name before may have chosen the session
// ticket in it.

var (
	faultHTTP = ingest.Faultf(ingest.OtherProtocol, "the connection began with an HTTP request, so it was closed and nothing of it was stored; HTTP uses the port of server.http_addr")
	faultTLS  = ingest.Faultf(ingest.OtherProtocol, "the connection began with TLS, so it was closed and nothing of it was stored; this port takes plain lines")
)

// handshake is how a ClientHello begins: a record of type handshake, version 3.
var handshake = []byte{22, 3}

// methods are those that a browser sends, and PRI, with which HTTP/2 begins. They reveal a request
// whose first line is too long to wait for its end.
var methods = []string{"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PRI"}

// opening examines the beginning of a connection. known reports whether there is enough of it to
// decide; fault is not nil if it belongs to another protocol. Empty lines before the first one do
// not count. most is the length beyond which the end of a line is not awaited.
func opening(data []byte, most int) (fault *ingest.Fault, known bool) {
	data = bytes.TrimLeft(data, "\r\n")
	if bytes.HasPrefix(data, handshake) {
		return faultTLS, true
	}
	line, _, ended := bytes.Cut(data, []byte{'\n'})
	switch {
	case ended && isRequestLine(line), len(line) > most && beginsWithMethod(line):
		return faultHTTP, true
	}
	return nil, ended || len(line) > most
}

// isRequestLine recognizes three words of which the last is a version of HTTP. A line of
// telnet has one word or four, and the third of carbon is a number.
func isRequestLine(line []byte) bool {
	words := bytes.Fields(line)
	return len(words) == 3 && bytes.HasPrefix(words[2], []byte("HTTP/"))
}

func beginsWithMethod(line []byte) bool {
	method, _, _ := bytes.Cut(line, []byte{' '})
	return slices.Contains(methods, string(method))
}

// Package fastpath answers plain requests of HTTP/1.1 on the goroutine that reads them.
//
// net/http starts a goroutine for each request, which reads on to notice a client
// that leaves, and waits for its end before the next request. On a machine with few
// cores the two handovers take as long as a short query: of 185 us of CPU for a query
// of 360 points they were 65. Here nothing is handed over. Whether a client has left
// is looked at now and then, and only while a request takes long. On Linux and without TLS,
// reading and writing do not wake Go's monitor thread either: see socket. Over TLS the lane is
// the same; crypto/tls is between it and the connection.
//
// # What is plain
//
//   - a header of at most 4 KiB and 64 lines that arrives in one piece, maybe with the
//     begin of its body, and has no bytes but visible ASCII, spaces and CR LF
//   - GET, POST, PUT or DELETE of a path, by HTTP/1.1
//   - one Host, at most one Content-Length, no Transfer-Encoding, Expect, Upgrade or
//     Trailer; a Connection that says keep-alive or close
//
// That is what clients send nearly always. With the first request that is anything
// else a connection goes to net/http, together with what was read of it, and stays
// there: all that is rare, wrong or hostile is met by one implementation.
//
//	listener --> Serve --plain--> handler --> answer --+
//	               ^  |                                |
//	               |  +--anything else--> net/http     |
//	               +-----------------------------------+
//
// Requests are parsed by [http.ReadRequest], after the look at their bytes. Handlers
// see the same requests, and clients the same answers, as with net/http.
package fastpath

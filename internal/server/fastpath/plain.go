package fastpath

import "bytes"

// Bounds on the header of a plain request.
const (
	maxHeader = 4 << 10
	maxLines  = 64
)

// A head is what is known of a plain header before it is parsed.
type head struct {
	last  bool // the client ends the connection after it
	host  bool
	sized bool // there is a Content-Length
}

var (
	lineEnd   = []byte("\r\n")
	headerEnd = []byte("\r\n\r\n")
	version   = []byte(" HTTP/1.1")
)

// plainHead examines the header at the beginning of p. ok is false if the header is incomplete or
// not plain.
func plainHead(p []byte) (h head, ok bool) {
	end := bytes.Index(p, headerEnd)
	if end < 0 {
		return head{}, false
	}
	line, rest, _ := bytes.Cut(p[:end+len(lineEnd)], lineEnd)
	if !plainRequest(line) {
		return head{}, false
	}
	for n := 0; len(rest) > 0; n++ {
		if line, rest, _ = bytes.Cut(rest, lineEnd); n == maxLines || !h.add(line) {
			return head{}, false
		}
	}
	return h, h.host
}

// plainRequest reports whether line is one of the methods, a path and the version.
func plainRequest(line []byte) bool {
	target, ok := bytes.CutSuffix(line, version)
	if !ok {
		return false
	}
	for _, method := range [...]string{"POST ", "GET ", "PUT ", "DELETE "} {
		if len(target) > len(method) && string(target[:len(method)]) == method {
			target = target[len(method):]
			return target[0] == '/' && all(target, visible)
		}
	}
	return false
}

// add examines a line of the header, and reports whether it is plain.
func (h *head) add(line []byte) bool {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 || !all(name, token) || !all(value, visible|space) {
		return false
	}
	value = bytes.Trim(value, " ")
	switch {
	case isName(name, "Host"):
		if h.host || len(value) == 0 || !all(value, hostname) {
			return false
		}
		h.host = true
	case isName(name, "Content-Length"):
		if h.sized || len(value) == 0 || len(value) > 18 || !all(value, digit) {
			return false
		}
		h.sized = true
	case isName(name, "Connection"):
		h.last = h.last || bytes.EqualFold(value, []byte("close"))
		return h.last || bytes.EqualFold(value, []byte("keep-alive"))
	case isName(name, "Transfer-Encoding"), isName(name, "Expect"), isName(name, "Upgrade"), isName(name, "Trailer"):
		return false
	}
	return true
}

// isName compares names of headers without regard to case.
func isName(name []byte, with string) bool {
	return len(name) == len(with) && name[0]|0x20 == with[0]|0x20 && bytes.EqualFold(name, []byte(with))
}

// Kinds of bytes. A byte can be of several.
const (
	visible  = 1 << iota // visible ASCII
	token                // what names of headers are made of (RFC 9110, 5.6.2)
	hostname             // names, addresses and ports
	digit
	space
)

var kinds = func() (k [256]uint8) {
	for c := '!'; c <= '~'; c++ {
		k[c] |= visible
	}
	for c := '0'; c <= '9'; c++ {
		k[c] |= token | hostname | digit
	}
	for c := 'a'; c <= 'z'; c++ {
		k[c] |= token | hostname
		k[c-'a'+'A'] |= token | hostname
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		k[c] |= token
	}
	for _, c := range "-._:[]" {
		k[c] |= hostname
	}
	k[' '] |= space
	return k
}()

// all reports whether all bytes of p are of one of the kinds.
func all(p []byte, of uint8) bool {
	for _, c := range p {
		if kinds[c]&of == 0 {
			return false
		}
	}
	return true
}

package carbon

import (
	"math"

	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
)

// A line is a parsed text line. Its path shares the line's memory.
type line struct {
	path  []byte
	value float64
	ms    int64 // now: see parseTime

	// Senders write many lines with one time, which is compared before it is parsed.
	timeWord    [16]byte
	timeWordLen int
}

// Faults that need no detail of their line are made once: a flood of bad lines costs no more than
// it must.
var (
	faultWords  = ingest.Faultf(ingest.BadSyntax, "want: <path> <value> <time>, words without blanks")
	faultTime   = ingest.Faultf(ingest.BadTime, "time must be seconds since 1970, or -1 for now")
	faultValue  = ingest.Faultf(ingest.BadValue, "value must be a number, such as 5, -0.25 or 1e-05")
	faultFinite = ingest.Faultf(ingest.NotFinite, "value must be finite and fit a 64-bit float")
)

// parse reads a line without its line feed. empty is true for a line of separators only. nowMS is
// the time that -1 stands for.
func (l *line) parse(b []byte, nowMS int64) (empty bool, f *ingest.Fault) {
	var value, at []byte
	if l.path, b = ingest.CutWord(b); len(l.path) == 0 {
		return true, nil
	}
	value, b = ingest.CutWord(b)
	at, b = ingest.CutWord(b)
	if rest, _ := ingest.CutWord(b); len(at) == 0 || len(rest) > 0 {
		return false, faultWords
	}
	var ok bool
	if l.value, ok = parseFloat(value); !ok {
		return false, faultValue
	}
	if math.IsNaN(l.value) || math.IsInf(l.value, 0) {
		return false, faultFinite
	}
	if l.timeWordLen > 0 && string(at) == string(l.timeWord[:l.timeWordLen]) {
		return false, nil // l.ms is the last line's
	}
	l.timeWordLen = 0
	if l.ms, ok = parseTime(at, nowMS); !ok {
		return false, faultTime
	}
	if len(at) <= len(l.timeWord) && at[0] != '-' { // -1 is another time in the next block
		l.timeWordLen = copy(l.timeWord[:], at)
	}
	return false, nil
}

// parseAlike is parse for a line with the path head and tail together, and the time of the previous
// line; words are one blank apart. It does not look for words, and reports whether the line is such
// a line, and without a fault. It leaves l.path alone.
func (l *line) parseAlike(b []byte, head, tail string) bool {
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	b, ok := ingest.CutText(b, head)
	if !ok {
		return false
	}
	if b, ok = ingest.CutText(b, tail); !ok {
		return false
	}
	end := len(b) - l.timeWordLen - 1 // of the value
	if l.timeWordLen == 0 || end < 1 || b[0] != ' ' || b[end] != ' ' || string(b[end+1:]) != string(l.timeWord[:l.timeWordLen]) {
		return false
	}
	n := decimal.Scan(b[1:end]) // a number, so it has no blank
	if n.Len == 0 || n.Len != end-1 {
		return false
	}
	l.value = n.Float64(b[1:end])
	return !math.IsInf(l.value, 0)
}

// parseTime reads seconds. Fractions are cut off; if the result is -1, it means now.
func parseTime(b []byte, nowMS int64) (ms int64, ok bool) {
	if s, whole, inRange := decimal.Int(b); whole {
		return timeOf(float64(s), nowMS, inRange)
	}
	s, ok := parseFloat(b)
	return timeOf(s, nowMS, ok)
}

// timeOf is the time in ms of seconds.
func timeOf(seconds float64, nowMS int64, ok bool) (int64, bool) {
	const limit = math.MaxInt64 / 1000 // no float64: the next one is greater
	if !ok || !(math.Abs(seconds) < 2*limit) {
		return 0, false
	}
	switch s := int64(seconds); {
	case s == -1:
		return nowMS, true
	case s > limit || s < -limit:
		return 0, false
	default:
		return s * 1000, true
	}
}

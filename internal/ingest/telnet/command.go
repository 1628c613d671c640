package telnet

import (
	"bytes"
	"math"

	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
	"varve/internal/model"
)

// Verb is what a line asks for.
type Verb uint8

const (
	None    Verb = iota // an empty line
	Put                 // a sample
	Version             // the server's version
)

// A Command is one parsed line. Its slices share the line's memory.
type Command struct {
	Verb   Verb
	Kind   model.Kind // Long, Double or String
	Metric []byte
	TimeMS int64
	Long   int64
	Double float64
	Text   []byte // value of a String
	Tags   []byte // the rest of the line, for ParseTags

	// Senders write many lines with one time, so the time of a line is compared with that of
	// the previous line before it is parsed.
	timeWord    [timeWordBytes]byte
	timeWordLen int
	timeSeconds bool
}

// timeWordBytes is the longest time that is remembered.
const timeWordBytes = 16

// secondsBelow is where a put's time stops being seconds.
const secondsBelow = 3_000_000_000

// Faults that need no detail of their line are made once: a flood of bad lines costs no more than
// it must.
var (
	faultCommand = ingest.Faultf(ingest.BadCommand, "unknown command; put, putm, puts and version are known")
	faultWords   = ingest.Faultf(ingest.BadSyntax, "want: put <metric> <time> <value> <tag=value>...")
	faultMetric  = ingest.Faultf(ingest.BadName, "metricName may not be empty.")
	faultTime    = ingest.Faultf(ingest.BadTime, "time must be whole seconds or milliseconds since 1970, within 64 bits of milliseconds; a metric name with blanks needs quotes: put \"disk free\" ...")
	faultValue   = ingest.Faultf(ingest.BadValue, "value must be a decimal number, such as 5, -0.25 or 1e-05")
	faultWhole   = ingest.Faultf(ingest.BadValue, "a whole number with an exponent and no point may be meant as a long or as a double; write 100000 or 1.0e5 for 1e5")
	faultFinite  = ingest.Faultf(ingest.NotFinite, "value must be finite and fit a 64-bit float")
	faultTTL     = ingest.Faultf(ingest.BadTTL, "tag[%s] must be a number", ttlTag)
)

// Parse reads one line without its line feed. c is meaningless after a fault.
func (c *Command) Parse(line []byte) *ingest.Fault {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	verb, rest, ok := word(line)
	if !ok {
		c.Verb = None
		return nil
	}
	switch string(verb) {
	case "put":
		return c.parsePut(rest, true, false)
	case "putm":
		return c.parsePut(rest, false, false)
	case "puts":
		return c.parsePut(rest, false, true)
	case "version":
		c.Verb = Version
		return nil
	}
	return faultCommand
}

func (c *Command) parsePut(rest []byte, seconds, text bool) *ingest.Fault {
	var at, value []byte
	var ok bool
	if c.Metric, rest, ok = word(rest); !ok {
		return faultWords
	}
	if at, rest, ok = word(rest); !ok {
		return faultWords
	}
	if value, c.Tags, ok = word(rest); !ok {
		return faultWords
	}
	c.Verb = Put
	if len(c.Metric) == 0 {
		return faultMetric
	}
	if !c.parseTime(at, seconds) {
		return faultTime
	}
	if text {
		c.Kind, c.Text = model.String, value
		return nil
	}
	return c.parseValue(value)
}

// ParseAlike is Parse for a put line whose metric is spelt head, which is one word
// without a quote at its front, and whose tags are spelt tail; words are one blank
// apart. It finds time and value without looking for words, and reports whether the
// line is such a line, and without a fault.
func (c *Command) ParseAlike(line []byte, head, tail string) bool {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	rest, ok := ingest.CutText(line, "put ")
	if !ok {
		return false
	}
	if rest, ok = ingest.CutText(rest, head); !ok || len(rest) < len(tail)+1 || rest[0] != ' ' {
		return false
	}
	words := rest[1:]
	if len(tail) > 0 {
		end := len(words) - len(tail)
		if end < 0 || tail[0] > ' ' || string(words[end:]) != tail {
			return false
		}
		words = words[:end]
	}
	at := bytes.IndexByte(words, ' ')
	if at < 0 || !c.parseTime(words[:at], true) {
		return false
	}
	value := words[at+1:]
	n := decimal.Scan(value) // a number, so it has no blank and no quote
	if n.Len == 0 || n.Len != len(value) || c.setNumber(&n, value) != nil {
		return false
	}
	c.Verb, c.Metric, c.Tags = Put, line[4:4+len(head)], line[len(line)-len(tail):]
	return true
}

func (c *Command) parseTime(word []byte, seconds bool) bool {
	if c.timeWordLen > 0 && seconds == c.timeSeconds && string(word) == string(c.timeWord[:c.timeWordLen]) {
		return true // c.TimeMS is that line's
	}
	c.timeWordLen = 0
	ms, ok, inRange := decimal.Int(word)
	if !ok || !inRange {
		return false
	}
	if seconds && ms < secondsBelow {
		if ms < math.MinInt64/1000 {
			return false
		}
		ms *= 1000
	}
	c.TimeMS = ms
	if len(word) <= timeWordBytes {
		c.timeWordLen, c.timeSeconds = copy(c.timeWord[:], word), seconds
	}
	return true
}

// parseValue reads a number. Digits alone are a long when they fit 64 bits. With
// a point, beyond 64 bits or with a fraction the number is a double: Icinga and
// Dropwizard send whole numbers beyond 64 bits, and printf's %g writes 1e-05;
// KairosDB refuses both. An exponent without a point whose number is whole and
// fits 64 bits, such as 1e5, is refused as in KairosDB.
func (c *Command) parseValue(word []byte) *ingest.Fault {
	n := decimal.Scan(word)
	if n.Len > 0 && n.Len == len(word) {
		return c.setNumber(&n, word)
	}
	if f, ok := decimal.Float(word); ok && bytes.ContainsAny(word, ".eE") { // +1.5
		if n = decimal.Scan(word[1:]); wholeExponent(&n) {
			return faultWhole
		}
		c.Double = f
	} else if decimal.IsWord(word) {
		return faultFinite
	} else {
		return faultValue
	}
	return c.setDouble()
}

// setNumber takes a word that is the number n.
func (c *Command) setNumber(n *decimal.Number, word []byte) *ingest.Fault {
	if v, fits := n.Int64(); fits {
		c.Kind, c.Long = model.Long, v
		return nil
	}
	if wholeExponent(n) {
		return faultWhole
	}
	c.Double = n.Float64(word)
	return c.setDouble()
}

func (c *Command) setDouble() *ingest.Fault {
	if math.IsInf(c.Double, 0) {
		return faultFinite
	}
	c.Kind = model.Double
	return nil
}

// wholeExponent reports whether n is a number such as 1e5: with an exponent,
// without a point, whole and within 64 bits.
func wholeExponent(n *decimal.Number) bool {
	if !n.E || n.Dot {
		return false
	}
	_, whole := n.Whole()
	return whole
}

// word splits the first word off b. Words are separated by bytes up to and including the blank. A
// word that begins with a quote ends at the next quote before a separator or the end; without one
// it takes the rest of the line. Other quotes belong to the word. ok is false when there is no
// word.
func word(b []byte) (w, rest []byte, ok bool) {
	i := 0
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	if i == len(b) {
		return nil, nil, false
	}
	if b[i] == '"' {
		return quotedWord(b[i+1:])
	}
	end := i + 1
	for end < len(b) && b[end] > ' ' {
		end++
	}
	return b[i:end], b[end:], true
}

func quotedWord(b []byte) (w, rest []byte, ok bool) {
	for i := range b {
		if b[i] == '"' && (i+1 == len(b) || b[i+1] <= ' ') {
			return b[:i], b[i+1:], true
		}
	}
	return b, nil, true
}

// ttlTag is the tag that sets the time-to-live and is not stored.
const ttlTag = "kairos_opt.ttl"

// ParseTags reads the words name=value of a command's tags. Text after a second
// equals sign is dropped, as KairosDB does. Without a tag add=tag is added. It
// stops at the first tag beyond most, which the pipeline refuses. The names share
// tail's memory.
func ParseTags(tail []byte, n *ingest.Names, most int) *ingest.Fault {
	for len(n.Tags) <= most {
		quoted := bytes.HasPrefix(bytes.TrimLeftFunc(tail, func(r rune) bool { return r <= ' ' }), []byte{'"'})
		w, rest, ok := word(tail)
		if !ok {
			break
		}
		tail = rest
		if quoted && bytes.IndexByte(w, '"') >= 0 {
			return ingest.Faultf(ingest.BadTag, `tag[%d] has quotes inside; they go around the whole of a tag: "name=value"`, len(n.Tags))
		}
		name, value, ok := bytes.Cut(w, []byte{'='})
		if !ok || (len(value) == 0) {
			return ingest.Faultf(ingest.BadTag, "tag[%d] must be in the format 'name=value'.", len(n.Tags))
		}
		value, _, _ = bytes.Cut(value, []byte{'='})
		if len(name) == 0 {
			return ingest.Faultf(ingest.BadTag, "tag[%d].name may not be empty.", len(n.Tags))
		}
		if len(value) == 0 {
			return ingest.Faultf(ingest.BadTag, "tag[%d].value may not be empty.", len(n.Tags))
		}
		if string(name) == ttlTag {
			if f := parseTTL(value, n); f != nil {
				return f
			}
			continue
		}
		n.Tags = append(n.Tags, model.Tag{Name: ingest.View(name), Value: ingest.View(value)})
	}
	if len(n.Tags) == 0 {
		n.Tags = append(n.Tags, model.Tag{Name: "add", Value: "tag"})
	}
	return nil
}

func parseTTL(value []byte, n *ingest.Names) *ingest.Fault {
	v, ok, inRange := decimal.Int(value)
	if !ok {
		return faultTTL
	}
	if !inRange {
		v = math.MaxInt64
	}
	ttl, f := ingest.SentTTL(v)
	n.TTL = ttl
	return f
}

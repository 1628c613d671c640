package render

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"varve/internal/graphite/function"
	"varve/internal/graphite/pytext"
)

// A document writes JSON with the spaces of Python's encoder, ", " and ": ", or
// with Options.Pretty one element a line.
type document struct {
	*writer
	depth int
	first bool // the open list or object is still empty
}

func (d *document) open(bracket byte) {
	d.WriteByte(bracket)
	d.depth++
	d.first = true
}

func (d *document) close(bracket byte) {
	d.depth--
	if !d.first {
		d.line()
	}
	d.WriteByte(bracket)
	d.first = false
}

// next begins an element.
func (d *document) next() {
	switch {
	case d.first:
		d.first = false
	case d.options.Pretty:
		d.WriteByte(',')
	default:
		d.WriteString(", ")
	}
	d.line()
}

func (d *document) line() {
	if !d.options.Pretty {
		return
	}
	d.WriteByte('\n')
	for range d.depth {
		d.WriteString("  ")
	}
}

func (d *document) key(k string) {
	d.next()
	d.text(k)
	d.WriteString(": ")
}

func (w *writer) text(s string) {
	w.scratch = appendJSON(w.scratch[:0], s)
	w.Write(w.scratch)
}

func (w *writer) integer(n int64) {
	w.scratch = strconv.AppendInt(w.scratch[:0], n, 10)
	w.Write(w.scratch)
}

// number writes a value. Infinity is 1e9999, as in Graphite: JSON parsers read that
// as infinity.
func (w *writer) number(v float64) {
	switch {
	case v != v:
		w.WriteString("null")
	case math.IsInf(v, 1):
		w.WriteString("1e9999")
	case math.IsInf(v, -1):
		w.WriteString("-1e9999")
	default:
		w.scratch = pytext.AppendFloat(w.scratch[:0], v)
		w.Write(w.scratch)
	}
}

// title writes the name of a series, or null.
func (w *writer) title(s *function.Series) {
	if s.Nameless() {
		w.WriteString("null")
		return
	}
	w.text(s.Name)
}

// appendJSON appends a string in ASCII, with escapes for all other characters.
func appendJSON(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', byte(r))
		case r == '\n':
			out = append(out, `\n`...)
		case r == '\r':
			out = append(out, `\r`...)
		case r == '\t':
			out = append(out, `\t`...)
		case r >= ' ' && r < 0x7f:
			out = append(out, byte(r))
		case r > 0xffff:
			r -= 0x10000
			for _, half := range [...]rune{0xd800 + r>>10, 0xdc00 + r&0x3ff} {
				out = append(out, '\\', 'u', hex[half>>12&15], hex[half>>8&15], hex[half>>4&15], hex[half&15])
			}
		default:
			out = append(out, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		}
	}
	return append(out, '"')
}

func writeJSON(w *writer, series []*function.Series) error {
	d := &document{writer: w}
	if !slices.ContainsFunc(series, func(s *function.Series) bool { return len(s.Values) > 0 }) {
		series = nil
	}
	span := spanOf(series)
	d.open('[')
	for _, s := range series {
		merged, rows, err := consolidated(*s, w.options, span)
		if err != nil {
			return err
		}
		rows = rows[:shown(&merged, len(rows))]
		if w.options.NoNullPoints && !slices.ContainsFunc(rows, func(v float64) bool { return v == v }) {
			continue
		}
		d.next()
		d.open('{')
		d.key("target")
		w.title(s)
		d.key("tags")
		d.tags(s.Tags)
		d.key("datapoints")
		if err := d.points(&merged, rows); err != nil {
			return err
		}
		d.close('}')
	}
	d.close(']')
	return nil
}

func (d *document) tags(tags function.Tags) {
	names := make([]string, 0, len(tags))
	for tag := range tags {
		names = append(names, tag)
	}
	slices.Sort(names)
	d.open('{')
	for _, tag := range names {
		d.key(tag)
		d.text(tags[tag])
	}
	d.close('}')
}

// shown returns how many of the rows have a time no later than the end of the series.
func shown(s *function.Series, rows int) int {
	if s.End < s.Start {
		return 0
	}
	return int(min(int64(rows), (s.End-s.Start)/(s.Step*int64(s.PerPoint()))+1))
}

// points writes pairs of value and time.
func (d *document) points(s *function.Series, rows []float64) error {
	d.open('[')
	step := s.Step * int64(s.PerPoint())
	for i, v := range rows {
		at := s.Start + int64(i)*step
		if v != v && d.options.NoNullPoints {
			continue
		}
		if err := d.failed(); err != nil {
			return err
		}
		d.next()
		d.open('[')
		d.next()
		d.number(v)
		d.next()
		d.integer(at)
		d.close(']')
	}
	d.close(']')
	return d.failed()
}

func writeRickshaw(w *writer, series []*function.Series) error {
	d := &document{writer: w}
	d.open('[')
	for _, s := range series {
		rows, err := s.Rows()
		if err != nil {
			return err
		}
		d.next()
		d.open('{')
		d.key("target")
		w.title(s)
		d.key("datapoints")
		d.open('[')
		for i, v := range rows {
			at := s.Start + int64(i)*s.Step
			if at >= s.End {
				break
			}
			if err := d.failed(); err != nil {
				return err
			}
			d.next()
			d.open('{')
			d.key("x")
			d.integer(at)
			d.key("y")
			d.number(v)
			d.close('}')
		}
		d.close(']')
		d.close('}')
		if err := d.failed(); err != nil {
			return err
		}
	}
	d.close(']')
	return nil
}

// writeDygraph writes one row for each time of the first series, with times in
// milliseconds.
func writeDygraph(w *writer, series []*function.Series) error {
	if len(series) == 0 {
		w.WriteString("{}")
		return nil
	}
	columns := make([][]float64, len(series))
	w.WriteString(`{"labels" : ["Time"`)
	for i, s := range series {
		rows, err := s.Rows()
		if err != nil {
			return err
		}
		columns[i] = rows
		w.WriteString(", ")
		w.title(s)
	}
	w.WriteString(`], "data" : [`)
	for i := range columns[0] {
		if err := w.failed(); err != nil {
			return err
		}
		if i > 0 {
			w.WriteString(", ")
		}
		w.WriteByte('[')
		w.integer((series[0].Start + int64(i)*series[0].Step) * 1000)
		for _, column := range columns {
			w.WriteString(", ")
			w.number(column[i])
		}
		w.WriteByte(']')
	}
	w.WriteString("]}")
	return nil
}

// ValidCallback reports whether a name may be a JSONP callback. It allows only letters,
// digits, _, $ and dots, since anything else could be a script.
func ValidCallback(name string) bool {
	if name == "" || len(name) > 128 || !utf8.ValidString(name) {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '$' && c != '.' {
			return false
		}
	}
	return true
}

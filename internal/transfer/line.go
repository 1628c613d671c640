package transfer

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"varve/internal/datatype"
	"varve/internal/ingest/jsontext"
	"varve/internal/ingest/kairosjson"
	"varve/internal/model"
)

// An export starts a new line after LinePoints points, or once the line has lineBytes.
const (
	LinePoints = 10_000
	lineBytes  = 1 << 20
)

// A LineWriter builds the lines of one series. The zero value is ready for Begin.
type LineWriter struct {
	head   []byte // the line before the type or the points
	typ    model.Type
	kind   model.Kind
	known  *datatype.Type // nil: values are base64, unless they are numbers or strings
	name   string         // the end of a point: the name of its type
	text   []byte         // the unfinished line of JSON values, if not empty
	raw    []byte         // the unfinished line of base64 values, if not empty
	points int            // in text
	raws   int            // points in raw
}

// Begin starts a series.
func (l *LineWriter) Begin(s model.Series) {
	l.typ, l.kind = s.Type, s.Type.Kind()
	l.known = datatype.All().Stored(s.Type)
	l.name = `,"` + l.kind.String() + `"]`
	if l.known != nil {
		l.name = `,"` + l.known.Name + `"]`
	}
	l.text, l.raw, l.points, l.raws = l.text[:0], l.raw[:0], 0, 0
	l.head = jsontext.AppendText(append(l.head[:0], `{"name":`...), s.Metric)
	if s.Tags.Len() == 0 {
		l.head = append(l.head, `,"skip_validate":true,`...)
		return
	}
	l.head = append(l.head, `,"tags":{`...)
	first := true
	for name, value := range s.Tags.All() {
		if !first {
			l.head = append(l.head, ',')
		}
		first = false
		l.head = append(jsontext.AppendText(l.head, name), ':')
		l.head = jsontext.AppendText(l.head, value)
	}
	l.head = append(l.head, `},`...)
}

// Add adds the i-th sample of a block.
func (l *LineWriter) Add(c *model.Columns, i int) {
	if l.asText(c, i) {
		return
	}
	if l.raws == 0 {
		l.raw = append(append(l.raw, l.head...), `"type":`...)
		l.raw = append(jsontext.AppendText(l.raw, kairosjson.RawType+string(l.typ)), `,"datapoints":[`...)
	} else {
		l.raw = append(l.raw, ',')
	}
	l.raws++
	l.raw = append(strconv.AppendInt(append(l.raw, '['), c.Times[i], 10), `,"`...)
	var word [8]byte
	value := word[:0]
	switch {
	case l.kind.Fixed():
		value = binary.BigEndian.AppendUint64(value, c.Values[i])
	case l.kind.Variable():
		value = c.Bytes(i)
	}
	l.raw = append(base64.StdEncoding.AppendEncode(l.raw, value), `"]`...)
}

// asText adds a sample to the line of JSON values. It returns false if JSON cannot
// express the value.
func (l *LineWriter) asText(c *model.Columns, i int) bool {
	was := len(l.text)
	if l.points == 0 {
		l.text = append(append(l.text, l.head...), `"datapoints":[`...)
	} else {
		l.text = append(l.text, ',')
	}
	l.text = append(strconv.AppendInt(append(l.text, '['), c.Times[i], 10), ',')
	ok := true
	switch {
	case l.kind == model.Long:
		l.text = strconv.AppendInt(l.text, int64(c.Values[i]), 10)
	case l.kind == model.Double:
		v := math.Float64frombits(c.Values[i])
		if ok = v-v == 0; ok {
			l.text = appendDouble(l.text, v)
		}
	case l.kind == model.String:
		if ok = utf8.Valid(c.Bytes(i)); ok {
			l.text = jsontext.AppendText(l.text, string(c.Bytes(i)))
		}
	case l.known != nil:
		var err error
		l.text, err = l.known.Append(l.text, c.Bytes(i), appendDouble)
		ok = err == nil
	default:
		ok = false
	}
	if !ok {
		l.text = l.text[:was]
		return false
	}
	l.points++
	l.text = append(l.text, l.name...)
	return true
}

// appendDouble appends the shortest number that reads back as v, with a point
// or an exponent, so that every reader takes it for a double.
func appendDouble(dst []byte, v float64) []byte {
	from := len(dst)
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, v, format, -1, 64)
	for i, c := range dst[from:] {
		switch c {
		case '.':
			return dst
		case 'e': // 1e+30 becomes 1.0e+30: without a point it would be a long
			tail := string(dst[from+i:])
			return append(append(dst[:from+i], ".0"...), tail...)
		}
	}
	return append(dst, ".0"...)
}

// Full reports whether a line has reached its limit.
func (l *LineWriter) Full() bool {
	return l.points >= LinePoints || l.raws >= LinePoints || len(l.text) >= lineBytes || len(l.raw) >= lineBytes
}

// Take completes the unfinished lines, appends them to dst, and returns their number
// and that of their points.
func (l *LineWriter) Take(dst []byte) (_ []byte, lines, points int) {
	for _, line := range []*[]byte{&l.text, &l.raw} {
		if len(*line) > 0 {
			dst = append(append(dst, *line...), "]}\n"...)
			lines++
		}
		*line = (*line)[:0]
	}
	points = l.points + l.raws
	l.points, l.raws = 0, 0
	return dst, lines, points
}

// Package render parses the parameters of Graphite's render API and writes
// evaluated series in its formats: json, csv, raw, pickle, msgpack, dygraph and
// rickshaw. It does not depend on HTTP: a front end passes the parameters of the
// request and the writer of the answer. Large answers are written piece by piece.
package render

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"time"

	"varve/internal/graphite/function"
)

// Options are the options of an answer.
type Options struct {
	Format string // as in the request; see Known
	JSONP  string // the callback, or ""
	Pretty bool   // JSON with line breaks

	// MaxDataPoints limits the points of each series; 0 is no limit. Only the format
	// json uses MaxDataPoints and NoNullPoints.
	MaxDataPoints int64
	NoNullPoints  bool

	Zone *time.Location // of times in csv; UTC if nil
}

// writers are the formats.
var writers = map[string]struct {
	contentType string
	write       func(*writer, []*function.Series) error
}{
	"json":     {"application/json", writeJSON},
	"csv":      {"text/csv", writeCSV},
	"raw":      {"text/plain", writeRaw},
	"pickle":   {"application/pickle", writePickle},
	"msgpack":  {"application/x-msgpack", writeMsgpack},
	"dygraph":  {"application/json", writeDygraph},
	"rickshaw": {"application/json", writeRickshaw},
}

// scripts are the formats that support JSONP.
var scripts = map[string]bool{"json": true, "dygraph": true, "rickshaw": true}

// Known reports whether Write supports a format.
func Known(format string) bool {
	_, ok := writers[format]
	return ok
}

// ContentType returns the media type of an answer.
func (o Options) ContentType() string {
	if o.JSONP != "" && scripts[o.Format] {
		return "text/javascript"
	}
	return writers[o.Format].contentType
}

// A writer buffers an answer. It keeps the first error of the writer below.
type writer struct {
	*bufio.Writer
	options Options
	scratch []byte
}

// failed returns the first error of w. Loops over points check it, so that they end when
// the client has disconnected.
func (w *writer) failed() error {
	_, err := w.Write(nil)
	return err
}

// Write writes the answer. Errors of the series (a consolidation that does not
// exist, series of different lengths in dygraph) are found before the first byte
// is written, and are *function.ParamErrors. Errors of w are not.
func Write(w io.Writer, o Options, series []*function.Series) error {
	format, ok := writers[o.Format]
	if !ok {
		return fmt.Errorf("unknown format %.32q; use json, csv, raw, pickle, msgpack, dygraph or rickshaw", o.Format)
	}
	if err := check(o, series); err != nil {
		return &function.ParamError{Reason: err.Error()}
	}
	out := &writer{Writer: bufio.NewWriterSize(w, 32<<10), options: o}
	call := o.JSONP != "" && scripts[o.Format]
	if call {
		out.WriteString(o.JSONP + "(")
	}
	if err := format.write(out, series); err != nil {
		return err
	}
	if call {
		out.WriteByte(')')
	}
	return out.Flush()
}

// check finds errors that would otherwise occur after the beginning of the answer is
// written.
func check(o Options, series []*function.Series) error {
	rows, span := -1, spanOf(series)
	for _, s := range series {
		few := *s
		if len(few.Values) > 0 {
			few.Values = few.Values[:min(len(few.Values), 2)] // two suffice: maxDataPoints=1 merges them
		}
		if _, _, err := consolidated(few, o, span); err != nil {
			return err
		}
		if o.Format != "dygraph" {
			continue
		}
		values, err := s.Rows()
		if err != nil {
			return err
		}
		if rows < 0 {
			rows = int(max((s.End-s.Start+s.Step-1)/s.Step, 0))
		}
		if len(values) != rows {
			return fmt.Errorf("dygraph: the series %.200s has %d points, but the first series has %d; all must have the same number", s.Name, len(values), rows)
		}
	}
	return nil
}

// spanOf returns the seconds between the earliest start and the latest end.
func spanOf(series []*function.Series) int64 {
	if len(series) == 0 {
		return 0
	}
	start, end := series[0].Start, series[0].End
	for _, s := range series {
		start, end = min(start, s.Start), max(end, s.End)
	}
	return end - start
}

// consolidated returns a copy of s and its rows. In the format json, it merges
// values to MaxDataPoints.
func consolidated(s function.Series, o Options, span int64) (function.Series, []float64, error) {
	if o.Format == "json" && o.MaxDataPoints > 0 {
		limit(&s, o.MaxDataPoints, span)
	}
	rows, err := s.Rows()
	return s, rows, err
}

// limit merges values so that a range of span seconds has at most the given number
// of points. Merged points are at multiples of their distance, so that they do not
// move when the range does. For that, values of up to one merged point are dropped
// at the beginning, and the time of a point is one step after its first value, as
// in Graphite.
func limit(s *function.Series, points, span int64) {
	if points == 1 {
		s.Consolidate(len(s.Values))
		return
	}
	available := float64(span) / float64(s.Step)
	if float64(points) >= available {
		return
	}
	perPoint := int64(math.Ceil(available / float64(points)))
	distance := perPoint * s.Step
	nudge := distance + s.Start%s.Step - s.Start%distance
	s.Start += nudge
	drop := max(nudge/s.Step-1, 0)
	s.Values = s.Values[min(drop, int64(len(s.Values))):]
	s.Consolidate(int(perPoint))
}

// name returns the name in an answer. A series without a name is None, because raw and
// the binary formats have no null there.
func name(s *function.Series) string {
	if s.Nameless() {
		return "None"
	}
	return s.Name
}

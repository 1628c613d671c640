package render

import (
	"cmp"
	"strings"
	"time"

	"varve/internal/graphite/function"
	"varve/internal/graphite/pytext"
)

// writeCSV writes the name, local time and value of each point. A null value is empty.
func writeCSV(w *writer, series []*function.Series) error {
	zone := cmp.Or(w.options.Zone, time.UTC)
	for _, s := range series {
		rows, err := s.Rows()
		if err != nil {
			return err
		}
		title := s.Name
		if s.Nameless() {
			title = ""
		}
		if strings.ContainsAny(title, ",\"\r\n") {
			title = `"` + strings.ReplaceAll(title, `"`, `""`) + `"`
		}
		for i, v := range rows {
			w.WriteString(title)
			w.WriteByte(',')
			at := time.Unix(s.Start+int64(i)*s.Step, 0).In(zone)
			w.scratch = at.AppendFormat(w.scratch[:0], time.DateTime)
			w.scratch = append(w.scratch, ',')
			if v == v {
				w.scratch = pytext.AppendFloat(w.scratch, v)
			}
			w.scratch = append(w.scratch, '\r', '\n')
			if _, err := w.Write(w.scratch); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRaw writes one line for each series: name, start, end, step and values.
func writeRaw(w *writer, series []*function.Series) error {
	for _, s := range series {
		rows, err := s.Rows()
		if err != nil {
			return err
		}
		w.WriteString(name(s))
		for _, n := range [...]int64{s.Start, s.End, s.Step} {
			w.WriteByte(',')
			w.integer(n)
		}
		w.WriteByte('|')
		for i, v := range rows {
			if i > 0 {
				w.WriteByte(',')
			}
			w.scratch = pytext.AppendFloat(w.scratch[:0], v)
			if _, err := w.Write(w.scratch); err != nil {
				return err
			}
		}
		if err := w.WriteByte('\n'); err != nil {
			return err
		}
	}
	return nil
}

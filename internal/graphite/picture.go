package graphite

import (
	"image/png"
	"net/http"
	"net/url"

	"varve/internal/graphite/chart"
	"varve/internal/graphite/function"
	"varve/internal/graphite/render"
	"varve/internal/query"
)

// picture parses the parameters of a picture. It returns nil if the format is no picture.
func picture(format string, form url.Values) (options *chart.Options, err error) {
	if chart.Formats[format] == "" {
		return nil, nil
	}
	o, err := chart.Parse(form)
	return &o, err
}

// draw answers with a picture of the series.
func draw(w http.ResponseWriter, s *query.Session, r *render.Request, o chart.Options, series []*function.Series) error {
	format := r.Options.Format
	if err := s.Reserve(o.Bytes(series)); err != nil {
		return err
	}
	c, err := chart.New(o, series, r.Function.From, r.Function.Until, s.Look)
	if err != nil {
		return err
	}
	if format == "svg" {
		w.Header().Set("Content-Type", chart.Formats[format])
		return sent(c.WriteSVG(s.Look, s.Writer(w)))
	}
	pixels, err := c.Draw(s.Look)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", chart.Formats[format])
	return sent(png.Encode(s.Writer(w), pixels))
}

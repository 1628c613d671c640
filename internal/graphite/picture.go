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

// picture reads the parameters of a picture, if one is asked for; else options is nil.
// Graphite's default format is png, which Parse of render fills in.
func picture(format string, form url.Values) (options *chart.Options, err error) {
	if chart.Formats[format] == "" {
		return nil, nil
	}
	o, err := chart.Parse(form)
	return &o, err
}

// draw answers with a picture of series.
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

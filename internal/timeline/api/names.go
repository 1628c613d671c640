package api

import (
	"net/http"
	"strconv"

	"varve/internal/ingest/jsontext"
	"varve/internal/query"
	"varve/internal/timeline"
)

// names answers GET /api/v1/timelines.
func (a *API) names(w http.ResponseWriter, r *http.Request) error {
	p, err := parametersOf(r, "")
	if err != nil {
		return err
	}
	limit, err := p.limit(timeline.NamesMax)
	if err != nil {
		return err
	}
	prefix, cursor := p.values.Get("prefix"), p.values.Get("cursor")
	return a.within(r, func(s *query.Session) error {
		list, next, err := a.engine.Names(s.Context(), prefix, cursor, limit, s.Yield)
		if err != nil {
			return err
		}
		return sendBody(w, s, appendNames(nil, list, next))
	})
}

func appendNames(to []byte, list []timeline.Named, next string) []byte {
	to = append(to, `{"timelines":[`...)
	for i := range list {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(to, `{"name":`...)
		to = append(jsontext.AppendText(to, list[i].Name), ',')
		to = appendStart(to, list[i].Start)
		to = append(to, `,"newest":`...)
		to = appendPosition(to, list[i].Newest)
		to = append(to, `,"rate":`...)
		to = strconv.AppendFloat(to, list[i].Rate, 'g', 6, 64)
		to = append(to, '}')
	}
	to = append(to, ']')
	if next != "" {
		to = append(to, `,"cursor":`...)
		to = jsontext.AppendText(to, next)
	}
	return append(to, '}')
}

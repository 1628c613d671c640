package kairos

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"varve/internal/query"
	"varve/internal/units"
)

// getSlow sends one query after the other: all together may have a megabyte.
func (a *API) getSlow(w http.ResponseWriter, r *http.Request) error {
	out := newAnswer(w, r, flushSize)
	return out.fault(encodeSlow(out, a.engine.Slow().Threshold(), a.engine.Slow().List()))
}

func encodeSlow(out *answer, threshold time.Duration, list []query.SlowQuery) error {
	out.buf = append(out.buf, `{"queries":[`...)
	for i := range list {
		text, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		out.buf = append(out.buf, text...)
		if err := out.advance(); err != nil {
			return err
		}
	}
	out.buf = append(out.buf, `],"threshold_ms":`...)
	out.buf = strconv.AppendFloat(out.buf, units.Milliseconds(threshold), 'f', -1, 64)
	out.buf = append(out.buf, '}')
	return out.finish()
}

package kairos

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"varve/internal/query"
)

// getRunning lists the running queries, each with the metric it works on. The first
// three members are KairosDB's, including the blanks in their names. Queries are looked
// up one by one, so that a slow client does not keep the text of a query that has
// ended.
func (a *API) getRunning(w http.ResponseWriter, r *http.Request) error {
	return a.answer(w, r, func(out *answer) error {
		out.max = flushSize
		return a.encodeRunning(r, out)
	})
}

func (a *API) encodeRunning(r *http.Request, out *answer) error {
	out.buf = append(out.buf, `{"queries":[`...)
	some := false
	for id := uint64(0); ; id++ {
		q, ok := a.runningFrom(id)
		if !ok {
			break
		}
		id = q.ID
		if need := runningRoom * int64(len(q.Text)); need > freeBuffer {
			q.Text = "" // do not keep it while the answer waits for memory
			if err := out.memory.AtLeast(need); err != nil {
				return err
			}
			if q, ok = a.runningFrom(id); !ok || q.ID != id {
				continue
			}
		}
		if some {
			out.buf = append(out.buf, ',')
		}
		some = true
		if err := a.engine.Parse(r.Context(), r.RemoteAddr, query.OperatorTexts, func() error { a.appendRunning(out, &q); return nil }); err != nil {
			return err
		}
		q.Text = "" // do not keep it while the client reads, either
		if err := out.advance(); err != nil {
			return err
		}
	}
	out.buf = fmt.Appendf(out.buf, `],"queries waiting":%d}`, a.engine.Queued())
	return nil
}

// runningRoom is how much longer than its text the description of a query is, at most,
// unless the text is full of escapes.
const runningRoom = 2

// runningFrom returns the first running query whose id is not below id.
func (a *API) runningFrom(id uint64) (q query.Running, ok bool) {
	all := a.engine.Running()
	i := slices.IndexFunc(all, func(q query.Running) bool { return q.ID >= id })
	if i < 0 {
		return q, false
	}
	return all[i], true
}

// appendRunning parses the text of a query.
func (a *API) appendRunning(out *answer, q *query.Running) {
	top, err := parseValue(q.Text)
	dst := append(out.buf, `{"query hash":`...)
	dst = appendText(dst, hashIn(top, q))
	dst = append(dst, `,"metric name":`...)
	dst = appendText(dst, q.Metric)
	dst = append(dst, `,"query JSON":`...)
	if err == nil {
		dst = top.appendJSON(dst, false)
	} else {
		dst = appendText(dst, q.Text)
	}
	dst = fmt.Appendf(dst, `,"id":%d,"client":`, q.ID)
	dst = appendText(dst, q.Client)
	out.buf = fmt.Appendf(dst, `,"age_ms":%d,"series":%d,"samples":%d}`, a.now().Sub(q.Start).Milliseconds(), q.Series, q.Samples)
}

// hashOf returns the hash of the metric that a query is computing, or of the query's
// text if that is not JSON.
func hashOf(q *query.Running) string {
	top, _ := parseValue(q.Text) // nil with an error
	return hashIn(top, q)
}

// hashIn is hashOf for a caller that has parsed the text.
func hashIn(top *value, q *query.Running) string {
	if top != nil {
		if metrics := top.member("metrics"); metrics != nil && q.Index < len(metrics.items) {
			return identityOf(top, &metrics.items[q.Index]).hash()
		}
	}
	return identity(sha256.Sum256([]byte(q.Text))).hash()
}

// killQuery ends all queries with a hash, or the one with an id. It answers 204
// whether there was one or not, as KairosDB does.
func (a *API) killQuery(w http.ResponseWriter, r *http.Request) error {
	wanted := r.PathValue("hash")
	for _, q := range a.engine.Running() {
		found := wanted == strconv.FormatUint(q.ID, 10)
		if len(wanted) == hashLen {
			if err := a.engine.Parse(r.Context(), r.RemoteAddr, query.OperatorTexts, func() error { found = wanted == hashOf(&q); return nil }); err != nil {
				return err
			}
		}
		if found {
			a.engine.Cancel(q.ID)
		}
	}
	writeDone(w)
	return nil
}

package kairos

import (
	"crypto/sha256"
	"net/http"
	"strconv"
	"sync"
	"time"

	"varve/internal/query"
)

// getRunning lists the queries that run now, each with the metric it works on.
// The first three members are KairosDB's, blanks in their names included.
func (a *API) getRunning(w http.ResponseWriter, r *http.Request) {
	dropBody(r)
	if err := a.mayParse(r.Context()); err != nil { // the texts of all queries are parsed
		a.fail(w, r, err)
		return
	}
	parsed := sync.OnceFunc(a.parsed) // called before a slow client takes the answer
	defer parsed()
	out := newAnswer(w, r, int(a.config.ResponseBuffer))
	out.buf = append(out.buf, `{"queries":[`...)
	for i, q := range a.engine.Running() {
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		out.buf = appendRunning(out.buf, &q, a.now())
	}
	parsed()
	out.buf = append(out.buf, `],"queries waiting":`...)
	out.buf = strconv.AppendInt(out.buf, int64(a.engine.Queued()), 10)
	out.buf = append(out.buf, '}')
	if err := out.finish(); err != nil {
		a.abandon(out, r, err)
	}
}

func appendRunning(dst []byte, q *query.Running, now time.Time) []byte {
	dst = append(dst, `{"query hash":`...)
	dst = appendText(dst, hashOf(q))
	dst = append(dst, `,"metric name":`...)
	dst = appendText(dst, q.Metric)
	dst = append(dst, `,"query JSON":`...)
	if top, err := parseValue(q.Text); err == nil {
		dst = top.appendJSON(dst, false)
	} else {
		dst = appendText(dst, q.Text)
	}
	dst = append(dst, `,"id":`...)
	dst = strconv.AppendUint(dst, q.ID, 10)
	dst = append(dst, `,"client":`...)
	dst = appendText(dst, q.Client)
	dst = append(dst, `,"age_ms":`...)
	dst = strconv.AppendInt(dst, now.Sub(q.Start).Milliseconds(), 10)
	dst = append(dst, `,"series":`...)
	dst = strconv.AppendInt(dst, q.Series, 10)
	dst = append(dst, `,"samples":`...)
	dst = strconv.AppendInt(dst, q.Samples, 10)
	return append(dst, '}')
}

// hashOf returns the hash of the metric that a query works on, or of its text
// where that is no JSON.
func hashOf(q *query.Running) string {
	top, err := parseValue(q.Text)
	if err == nil {
		if metrics := top.member("metrics"); metrics != nil && q.Index < len(metrics.items) {
			return identityOf(top, &metrics.items[q.Index]).hash()
		}
	}
	return identity(sha256.Sum256([]byte(q.Text))).hash()
}

// killQuery ends all queries with a hash, or the one with an id. It answers 204
// whether there was one or not, as KairosDB does.
func (a *API) killQuery(w http.ResponseWriter, r *http.Request) {
	dropBody(r)
	if err := a.mayParse(r.Context()); err != nil { // for the hashes
		a.fail(w, r, err)
		return
	}
	defer a.parsed()
	hash := r.PathValue("hash")
	for _, q := range a.engine.Running() {
		if hash == strconv.FormatUint(q.ID, 10) || hash == hashOf(&q) {
			a.engine.Cancel(q.ID)
		}
	}
	writeDone(w)
}

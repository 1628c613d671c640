package opentsdb

import (
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"

	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/ingest"
)

// A Handler answers POST /api/put.
type Handler struct {
	p     *ingest.Pipeline
	json  *ingest.Protocol
	lines *ingest.Protocol
	log   *slog.Logger
	pools [2]sync.Pool // of *parser, for JSON and for lines
}

// New makes a Handler. A nil logger logs nothing.
func New(p *ingest.Pipeline, log *slog.Logger) *Handler {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	h := &Handler{p: p, json: p.Protocol("opentsdb_json"), lines: p.Protocol("opentsdb_lines"), log: log}
	for i, proto := range []*ingest.Protocol{h.json, h.lines} {
		h.pools[i].New = func() any {
			return newParser(p, p.NewWriter(proto, "", p.Config().BusyWait))
		}
	}
	return h
}

// Routes lists what the Handler serves.
func (h *Handler) Routes() []httpapi.Route {
	return []httpapi.Route{httpapi.On(http.MethodPost, "/api/put", httpapi.Write, h.ServeHTTP).ByMetric()}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := h.p.ReadBody(w, r, r.Header.Get("Content-Encoding") == "gzip")
	if err != nil {
		h.fail(w, r, err)
		return
	}
	defer body.Release()

	lines := isLines(r, body.Bytes)
	pool := &h.pools[0]
	if lines {
		pool = &h.pools[1]
	}
	p := pool.Get().(*parser)
	defer pool.Put(p)
	p.w.SetRemote(r.RemoteAddr)
	p.reset(body.Bytes, lines)
	defer p.reset(nil, lines) // keeps nothing of the body
	ctx, cancel := h.p.StoreContext(r)
	defer cancel()
	stored, err := p.w.IngestAll(ctx, r.Context(), p.next)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.answer(w, r, p, stored)
}

// next prepares the next block for Writer.IngestAll.
func (p *parser) next() (most int, fill func() error) {
	if p.done {
		return 0, nil
	}
	from := p.progress
	// The shortest line has 5 bytes, "a 1 1", and its end.
	return min(ingest.BlockSamples, len(p.s.Rest())/6+1), func() error {
		p.progress = from
		return p.block()
	}
}

// A summary is the answer to ?summary, with Errors to ?details.
type summary struct {
	Errors  *[]pointError `json:"errors,omitempty"`
	Failed  int           `json:"failed"`
	Success int           `json:"success"`
}

type pointError struct {
	Datapoint json.RawMessage `json:"datapoint"`
	Error     string          `json:"error"`
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, p *parser, stored int) {
	query := r.URL.Query()
	details, short := query.Has("details"), query.Has("summary")
	switch {
	case p.held > 0: // the rest is stored; when sent again, the new series get their turn
		why := ingest.Message(p.heldWhy) + "; all other valid points are stored"
		failure.Answer(w, r, nil, failure.Later(h.p.NewSeriesIn(p.held), why), form)
	case p.unparsed != "":
		writeError(w, http.StatusBadRequest, "Unable to parse the given JSON", p.unparsed)
	case details || short:
		s := summary{Failed: p.failed, Success: stored}
		if details {
			s.Errors = p.pointErrors()
		}
		status := http.StatusOK
		if p.failed > 0 {
			status = http.StatusBadRequest
		}
		writeJSON(w, status, s)
	case p.failed > 0:
		writeError(w, http.StatusBadRequest, "One or more data points had errors",
			"Please see the TSD logs or append \"details\" to the put request")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// pointErrors lists the faults in the answer, each with its point: as it was sent if that is strict
// JSON, else as text. Only the beginning of a long point is repeated.
func (p *parser) pointErrors() *[]pointError {
	list := make([]pointError, 0, p.shown)
	for _, f := range p.faults[:p.shown] {
		point := json.RawMessage(f.point)
		if len(f.point) > pointBytes || !json.Valid(f.point) {
			point, _ = json.Marshal(strings.ToValidUTF8(string(f.point[:min(pointBytes, len(f.point))]), "�"))
		}
		list = append(list, pointError{point, f.text})
	}
	return &list
}

// fail answers an error that ended the request.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.p.Fail(h.json, r, err)
	if f, ok := errors.AsType[*ingest.Fault](err); ok && f.Reason == ingest.BodyTooLarge {
		err = failure.New(http.StatusRequestEntityTooLarge, err.Error())
	}
	failure.Answer(w, r, h.log, err, form)
}

// form is OpenTSDB's form of errors.
func form(w http.ResponseWriter, status int, texts ...string) {
	details := ""
	if seconds := w.Header().Get("Retry-After"); seconds != "" {
		details = "Send the same request again after " + seconds + " s; a point that arrives twice is stored once"
	}
	writeError(w, status, strings.Join(texts, "; "), details)
}

// writeError answers in OpenTSDB's form.
func writeError(w http.ResponseWriter, status int, message, details string) {
	type body struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Details string `json:"details,omitempty"`
	}
	writeJSON(w, status, map[string]body{"error": {status, message, details}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain texts, numbers and JSON that was checked
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	w.Write(text)
}

// isLines reports whether a body is plain text lines: its content type says
// so, and it does not begin like JSON.
func isLines(r *http.Request, body []byte) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || (media != "text/plain" && media != "application/graphite") {
		return false
	}
	word, _ := ingest.CutWord(body)
	return len(word) == 0 || (word[0] != '{' && word[0] != '[')
}

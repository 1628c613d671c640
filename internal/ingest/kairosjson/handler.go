package kairosjson

import (
	"cmp"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"sync"

	"varve/internal/datatype"
	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/ingest"
)

// A Handler answers POST /api/v1/datapoints.
type Handler struct {
	p     *ingest.Pipeline
	proto *ingest.Protocol
	log   *slog.Logger
	types datatype.Registry
	pool  sync.Pool // of *parser
}

// New makes a Handler. A nil logger logs nothing.
func New(p *ingest.Pipeline, log *slog.Logger) *Handler {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	h := &Handler{p: p, proto: p.Protocol("kairosdb_json"), log: log, types: datatype.All()}
	h.pool.New = func() any {
		return newParser(p, p.NewWriter(h.proto, "", p.Config().BusyWait), h.types)
	}
	return h
}

// Routes lists what the Handler serves.
func (h *Handler) Routes() []httpapi.Route {
	return []httpapi.Route{httpapi.On(http.MethodPost, "/api/v1/datapoints", httpapi.Write, h.ServeHTTP).ByMetric()}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := h.p.ReadBody(w, r, isGzip(r))
	if err != nil {
		h.fail(w, r, err, nil)
		return
	}
	defer body.Release()

	p := h.pool.Get().(*parser)
	defer h.pool.Put(p)
	p.w.SetRemote(r.RemoteAddr)
	p.reset(body.Bytes)
	defer p.reset(nil) // keeps nothing of the body
	ctx, cancel := h.p.StoreContext(r)
	defer cancel()
	stored, err := p.w.IngestAll(ctx, r.Context(), p.next)
	if err != nil {
		h.fail(w, r, err, p.answer())
		return
	}
	switch {
	case p.held > 0: // the rest is stored; when sent again, the new series get their turn
		httpapi.AskLater(w.Header(), h.p.NewSeriesIn(p.held))
		httpapi.WriteBusy(w)
	case p.messages > 0:
		w.Header().Set(httpapi.Stored, strconv.Itoa(stored))
		httpapi.WriteErrors(w, http.StatusBadRequest, p.answer()...)
	default:
		httpapi.SetHeaders(w.Header())
		w.WriteHeader(http.StatusNoContent)
	}
}

// next prepares the next block for Writer.IngestAll.
func (p *parser) next() (most int, fill func() error) {
	if p.done() {
		return 0, nil
	}
	from := p.progress
	// The shortest point has 5 bytes, and a comma.
	return min(ingest.BlockSamples, len(p.s.Rest())/6+1), func() error {
		p.progress = from
		return p.block()
	}
}

// fail answers an error that ended the request, after what is told of the points before it.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error, told []string) {
	h.p.Fail(h.proto, r, err)
	failure.Answer(w, r, h.log, err, func(w http.ResponseWriter, status int, texts ...string) {
		httpapi.WriteErrors(w, status, append(told, texts...)...)
	})
}

// isGzip follows KairosDB: by encoding, or by the type that it deprecates.
func isGzip(r *http.Request) bool {
	if r.Header.Get("Content-Encoding") == "gzip" {
		return true
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "application/gzip"
}

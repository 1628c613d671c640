package transfer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/clip"
	"varve/internal/collectors"
	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/store"
)

// An API is export and import over HTTP, which KairosDB does not have.
type API struct {
	store    store.Viewer
	pipeline *ingest.Pipeline
	config   Config
	log      *slog.Logger
	slots    *slots
	exported prometheus.Counter
	active   prometheus.Gauge
	yields   prometheus.Counter
}

// NewAPI returns an API. config must be valid. With a nil log, nothing is logged.
func NewAPI(s store.Viewer, p *ingest.Pipeline, config Config, r prometheus.Registerer, log *slog.Logger) *API {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	set := collectors.Named("varve_transfer_")
	a := &API{
		store: s, pipeline: p, config: config, log: log,
		slots:    newSlots(config.MaxConcurrent),
		exported: set.Counter("exported_points_total", "Points written by exports. Imported ones are varve_ingest_samples_total{protocol=\"import\"}."),
		active:   set.Gauge("active", "Imports and exports that run now; at most 4."),
		yields:   set.Counter("yields_total", "Imports and exports that were aborted because their client was slow and others waited for the slot."),
	}
	set.MustRegister(r)
	return a
}

// Routes lists the endpoints.
func (a *API) Routes() []httpapi.Route {
	return []httpapi.Route{
		httpapi.On(http.MethodGet, "/api/v1/export", httpapi.Read, a.guard(a.export)).Taking("metric", "start", "end", "buckets").ByMetric().OnRecord(),
		httpapi.On(http.MethodPost, "/api/v1/import", httpapi.Write, a.guard(a.importLines)).Taking().ByMetric(),
	}
}

// guard limits the requests that run at once.
func (a *API) guard(h func(*slotWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		own, request, leave := a.slots.enter(w, r)
		if own == nil {
			httpapi.WriteUnavailable(w, r, fmt.Sprintf("%d of at most %d exports and imports are already running; the last slot is kept for an address that has none", a.slots.used.InUse(), a.config.MaxConcurrent))
			return
		}
		defer leave()
		a.active.Inc()
		defer a.active.Dec()
		h(own, request)
	}
}

// clippedBytes is how many bytes of a client's text a message repeats.
const clippedBytes = 100

// rangeOf parses start and end: inclusive, in ms since the Unix epoch. An empty one
// is no restriction.
func rangeOf(start, end string) (model.TimeRange, error) {
	within := model.AllTime
	for _, b := range []struct {
		name, text string
		into       *int64
	}{{"start", start, &within.StartMS}, {"end", end, &within.EndMS}} {
		if b.text == "" {
			continue
		}
		v, err := strconv.ParseInt(b.text, 10, 64)
		if err != nil {
			return within, fmt.Errorf("%s %q is not a time in milliseconds", b.name, clip.Text(b.text, clippedBytes))
		}
		*b.into = v
	}
	if within.EndMS < within.StartMS {
		return within, fmt.Errorf("end %d is before start %d", within.EndMS, within.StartMS)
	}
	return within, nil
}

func (a *API) export(w *slotWriter, r *http.Request) {
	params := r.URL.Query()
	within, err := rangeOf(params.Get("start"), params.Get("end"))
	if err != nil {
		httpapi.WriteErrors(w, http.StatusBadRequest, err.Error())
		return
	}
	out := &lazyWriter{w: w, zip: strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")}
	e := exporter{out: out}
	switch buckets := params.Get("buckets"); buckets {
	case "", "false":
	case "true":
		e.mode, e.separate = store.WithoutBuckets, true
	case "none":
		e.mode = store.WithoutBuckets
	default:
		httpapi.WriteErrors(w, http.StatusBadRequest, fmt.Sprintf("buckets is %q, but must be true, false or none", clip.Text(buckets, clippedBytes)))
		return
	}
	if err := principal.Of(r.Context()).Check(params["metric"]...); err != nil {
		failure.Answer(w, r, a.log, err, httpapi.WriteErrors)
		return
	}
	if r.Method == http.MethodHead {
		out.begin() // headers only: reading the points would be wasted
		return
	}
	err = a.exportAll(r, params["metric"], within, e)
	if err == nil {
		err = out.finish()
	}
	if err == nil {
		return
	}
	if yielded := w.slot.gaveUp(); yielded != nil {
		a.yields.Inc()
		err = yielded
	}
	if out.begun {
		failure.Abort(r, a.log, err)
	}
	failure.Answer(w, r, a.log, err, httpapi.WriteErrors)
}

func (a *API) exportAll(r *http.Request, metrics []string, within model.TimeRange, e exporter) error {
	one := func(metric string) error {
		points, err := export(r.Context(), a.store, metric, within, e, nil)
		a.exported.Add(float64(points))
		return err
	}
	for _, metric := range metrics {
		if err := one(metric); err != nil {
			return err
		}
	}
	if metrics != nil {
		return nil
	}
	for metric, err := range Metrics(r.Context(), a.store) {
		if err != nil {
			return err
		}
		if err := one(metric); err != nil {
			return err
		}
	}
	return nil
}

// A lazyWriter sends the header with the first bytes, so that an earlier failure
// can still set the status.
type lazyWriter struct {
	w      http.ResponseWriter
	zip    bool
	begun  bool
	packed *gzip.Writer
}

func (l *lazyWriter) begin() {
	l.begun = true
	h := l.w.Header()
	httpapi.SetHeaders(h)
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Vary", "Accept-Encoding")
	if l.zip {
		h.Set("Content-Encoding", "gzip")
		l.packed, _ = gzip.NewWriterLevel(l.w, gzip.BestSpeed) // the level is known
	}
}

func (l *lazyWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !l.begun {
		l.begin()
	}
	if l.packed != nil {
		return l.packed.Write(p)
	}
	return l.w.Write(p)
}

func (l *lazyWriter) finish() error {
	if !l.begun {
		l.begin()
	}
	if l.packed != nil {
		return l.packed.Close()
	}
	return nil
}

// maxFaults limits the rejected lines that an answer names. A client that sends one
// block per request learns of every rejected line.
const maxFaults = BlockLines

// maxReport limits the bytes of the reasons that an answer gives. It is as much as kairosjson.Lines
// tells of one block.
const maxReport = 1 << 20

// reportFull is the reason of lines whose own reasons exceed maxReport.
const reportFull = "its faults are not listed, because the report is full; see /admin/rejected"

// A Report is the answer to an import.
type Report struct {
	Position
	Faults []Rejected `json:"faults,omitempty"` // the first maxFaults, numbered by line of the body
	Errors []string   `json:"errors,omitempty"` // Faults as text, and the error that ended the import

	bytes int // of the reasons in Faults
}

// reject adds a line that was refused.
func (r *Report) reject(x Rejected) {
	if len(r.Faults) == maxFaults {
		return
	}
	text := strings.Join(x.Reasons, "; ")
	if len(text) > maxReport-r.bytes {
		x.Reasons, text = []string{reportFull}, reportFull
	} else {
		r.bytes += len(text)
	}
	r.Faults = append(r.Faults, x)
	r.Errors = append(r.Errors, fmt.Sprintf("line %d: %s", x.Line, text))
}

func (a *API) importLines(w *slotWriter, r *http.Request) {
	body, err := Unpack(r.Body)
	if err != nil {
		httpapi.WriteErrors(w, http.StatusBadRequest, "read the body: "+err.Error())
		return
	}
	report := Report{}
	m := &Import{
		Sink: NewLocal(a.pipeline, r.RemoteAddr), MaxLine: int(min(a.config.MaxLine, a.pipeline.Config().MaxBody())), MaxEmpty: a.config.MaxEmpty,
		Reject:      func(x Rejected) error { report.reject(x); return nil },
		Acknowledge: func(p Position) error { report.Position = p; return nil },
	}
	if _, err := m.Run(r.Context(), body, Position{}); err != nil {
		if yielded := w.slot.gaveUp(); yielded != nil {
			a.yields.Inc()
			a.giveWay(w.ResponseWriter, r, &report, yielded)
			return
		}
		a.failImport(w, r, &report, err)
		return
	}
	status := http.StatusOK
	if report.Rejected > 0 {
		status = http.StatusBadRequest
	}
	a.writeReport(w, status, &report)
}

// giveWay answers an import that gave up its slot.
func (a *API) giveWay(w http.ResponseWriter, r *http.Request, report *Report, why error) {
	a.log.Warn("import stopped, because others waited for its slot", "client", r.RemoteAddr, "stored_lines", report.Line, "error", why)
	report.Errors = append(report.Errors, fmt.Sprintf(
		"%v; everything up to line %d is stored: send what follows it, from byte %d of the uncompressed text", why, report.Line, report.Offset))
	httpapi.AskLater(w.Header(), 0)
	a.writeReport(w, http.StatusServiceUnavailable, report)
}

func (a *API) failImport(w http.ResponseWriter, r *http.Request, report *Report, err error) {
	if errors.As(err, new(*damagedError)) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = &store.InputError{Reason: err.Error()}
	}
	a.log.Warn("import aborted", "client", r.RemoteAddr, "stored_lines", report.Line, "error", err)
	failure.Answer(w, r, nil, err, func(w http.ResponseWriter, status int, texts ...string) {
		report.Errors = append(report.Errors, texts...)
		a.writeReport(w, status, report)
	})
}

func (a *API) writeReport(w http.ResponseWriter, status int, report *Report) {
	body, err := json.Marshal(report)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}

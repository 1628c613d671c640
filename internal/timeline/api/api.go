package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/failure"
	"varve/internal/gate"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/query"
	"varve/internal/timeline"
	"varve/internal/work"
)

// An API answers requests on timelines. It is safe for use by many goroutines.
type API struct {
	engine   *timeline.Engine
	spool    Spool
	pipeline *ingest.Pipeline
	queries  *query.Engine
	config   timeline.Config
	log      *slog.Logger

	beat     time.Duration // see heartbeat
	patience time.Duration // see tailPatience

	requests *prometheus.CounterVec
	sent     prometheus.Counter
	cut      *prometheus.CounterVec
	flying   *gate.Gate // bytes of events that are being sent to readers that follow
}

// Options are what an API is created with.
type Options struct {
	Engine   *timeline.Engine
	Spool    Spool            // nil: events are acknowledged when they are stored
	Config   timeline.Config  // the one that the engine was opened with
	Pipeline *ingest.Pipeline // for reading bodies: memory and pace
	Queries  *query.Engine    // for slots and memory of reads
	Metric   prometheus.Registerer
	Log      *slog.Logger
}

// A Spool acknowledges events of some timelines before they are stored. A delete does not wait
// for it: the engine records the delete and applies it to events that are stored later.
type Spool interface {
	// Append is like timeline.Engine.Append.
	Append(ctx context.Context, events []timeline.Addressed) (timeline.Result, error)
}

// put appends events, through the spool if there is one.
func (a *API) put(ctx context.Context, events []timeline.Addressed) (timeline.Result, error) {
	if a.spool != nil {
		return a.spool.Append(ctx, events)
	}
	return a.engine.Append(ctx, events)
}

// New returns an API.
func New(o Options) *API {
	a := &API{engine: o.Engine, spool: o.Spool, pipeline: o.Pipeline, queries: o.Queries, config: o.Config, log: o.Log, beat: heartbeat, patience: tailPatience,
		flying: gate.NewReserving(tailMemory, tailMemory/tailShare)}
	set := collectors.Named("varve_timeline_")
	a.requests = set.CounterVec("requests_total", "Requests of the API of timelines, by kind.", "request")
	a.sent = set.Counter("tail_events_total", "Events that were sent to readers that follow timelines.")
	a.cut = set.CounterVec("tails_cut_total", "Readers that followed a timeline and were disconnected, by reason: slow or memory. They can continue where they were.", "reason")
	set.MustRegister(o.Metric)
	return a
}

// Paths of the routes.
const (
	root = "/api/v1/timelines"
	one  = root + "/{name}"
)

var (
	boundParameters = []string{"from", "until", "from_us", "until_us"}
	pageParameters  = append([]string{"limit", "order", "type", "cursor"}, boundParameters...)
)

// Routes lists the endpoints. Only those that read have preflights: web pages of other origins
// must not do more.
func (a *API) Routes() []httpapi.Route {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	const read, write, remove = httpapi.Read, httpapi.Write, httpapi.Delete
	on := func(method, path string, access httpapi.Access, request string, h func(http.ResponseWriter, *http.Request) error) httpapi.Route {
		return httpapi.On(method, path, access, func(w http.ResponseWriter, r *http.Request) {
			a.requests.WithLabelValues(request).Inc()
			if err := h(w, r); err != nil {
				a.fail(w, r, err)
			}
		})
	}
	routes := []httpapi.Route{
		on(get, root, read, "names", a.names).Taking("prefix", "limit", "cursor"),
		on(post, root+"/events", write, "append", a.appendAddressed).Taking(),
		on(get, root+"/events", read, "read", a.readMerged).Taking(append([]string{"timeline"}, pageParameters...)...),
		on(post, one+"/events", write, "append", a.appendNamed).Taking(),
		on(get, one+"/events", read, "read", a.readNamed).Taking(pageParameters...),
		on(del, one+"/events", remove, "delete", a.deleteEvents).Taking(append([]string{"id"}, boundParameters...)...),
		on(get, one+"/latest", read, "latest", a.latest).Taking(),
		on(get, one+"/start", read, "start", a.start).Taking(),
		on(get, one+"/stats", read, "stats", a.stats).Taking(),
		on(get, one+"/layout", read, "layout", a.layout).Taking(),
		on(post, one+"/layout", write, "propose", a.propose).Taking(),
		on(post, one+"/retention", remove, "retention", a.setRetention).Taking(),
		on(get, one+"/tail", read, "tail", a.tail).Taking("type", "cursor"),
		on(del, one, remove, "delete", a.deleteTimeline).Taking(),
	}
	for _, path := range []string{root, root + "/events", one + "/events", one + "/latest", one + "/start", one + "/stats", one + "/layout", one + "/tail"} {
		routes = append(routes, httpapi.On(http.MethodOptions, path, httpapi.Public, httpapi.Preflight))
	}
	return routes
}

// within runs f as a query: it has a slot, a timeout and a budget, and can be killed.
func (a *API) within(r *http.Request, f func(*query.Session) error) error {
	done := query.Done{Began: time.Now(), Request: query.Request{Text: r.URL.RequestURI(), Client: r.RemoteAddr}}
	s, err := a.queries.Begin(r.Context(), done.Request)
	if err == nil {
		err = s.Cause(work.Do("answer a request on timelines", func() error { return f(s) }))
		done.Stats = s.Stats()
		s.Close(err)
	}
	done.Bytes, done.Err = done.Stats.Sent, err
	a.queries.Slow().Note(a.log, done)
	return err
}

func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	failure.Answer(w, r, a.log, err, httpapi.WriteErrors)
}

// messageOf returns the text of an error for the client.
func messageOf(err error) string { return failure.Of(err).Texts[0] }

// nameOf returns the name of the timeline in the path.
func nameOf(r *http.Request) (string, error) {
	name := r.PathValue("name")
	return name, timeline.CheckName(name)
}

// isGzip reports whether a body is packed. Another encoding is an error.
func isGzip(r *http.Request) (bool, error) {
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip":
		return true, nil
	default:
		return false, badf("the Content-Encoding %.40q is not known: send gzip, or none", encoding)
	}
}

package kairos

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/datatype"
	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/kairos/agg"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/store"
)

// A Store is the part of a store that the API uses besides the query engine.
type Store interface {
	store.Viewer
	store.Deleter
	store.KeyValues
}

// An API serves KairosDB's endpoints, except those of ingest. Many goroutines may use
// it.
type API struct {
	// Log, if set before Routes is called, gets the reason of each 500 and 503.
	Log *slog.Logger

	store    Store
	engine   *agg.Engine
	config   Config
	version  string
	now      func() time.Time
	parser   parser // without a request
	features features
	cache    *answerCache
	types    datatype.Registry
	classes  map[string]bool // of methods that are served
}

// New returns an API. version is the text of /api/v1/version; config must be
// valid; now is the clock of relative times.
func New(s Store, e *agg.Engine, config Config, version string, now func() time.Time) *API {
	a := &API{store: s, engine: e, config: config, version: version, now: now, features: loadFeatures(agg.GroupBys(), agg.Aggregators()), types: datatype.All()}
	a.cache = newAnswerCache(int64(config.QueryCache))
	a.classes, _ = serverClasses(config.ServerType)
	a.parser = parser{
		regexPrefix: config.RegexPrefix,
		aggregators: map[string]agg.AggregatorSpec{},
		groupBys:    map[string]agg.GroupBySpec{},
	}
	for _, spec := range agg.Aggregators() {
		a.parser.aggregators[spec.Name] = spec
	}
	for _, spec := range agg.GroupBys() {
		a.parser.groupBys[spec.Name] = spec
	}
	return a
}

// Register registers the API's metrics with r.
func (a *API) Register(r prometheus.Registerer) { a.cache.metrics.MustRegister(r) }

// Routes lists the endpoints and their preflights, and the preflight of
// /api/v1/datapoints, which browsers request too.
func (a *API) Routes() []httpapi.Route {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	const read, write, remove, admin = httpapi.Read, httpapi.Write, httpapi.Delete, httpapi.Admin
	on := func(method, path string, access httpapi.Access, h handler) httpapi.Route {
		return httpapi.On(method, path, access, a.serve(h))
	}
	routes := []httpapi.Route{
		on(post, "/api/v1/datapoints/query", read, a.postQuery).Ignoring("trace", "partial").ByMetric(),
		on(get, "/api/v1/datapoints/index", read, a.getIndex),
		on(get, "/api/v1/datapoints/query", read, a.getQuery).Ignoring("query", "trace", "partial").ByMetric(),
		on(post, "/api/v1/datapoints/query/tags", read, a.postTags).Ignoring("trace").ByMetric(),
		on(post, "/api/v1/datapoints/delete", remove, a.readingDelete(a.deletePoints)).ByMetric(),
		on(post, "/api/v1/datapoints/delete/preview", read, a.readingDelete(a.previewDelete)).ByMetric(),
		on(del, "/api/v1/metric/{name}", remove, a.deleteMetric).ByMetric(),
		on(get, "/api/v1/metricnames", read, a.names(store.MetricNames)).Taking(namesParameters...).ByMetric(),
		on(get, "/api/v1/tagnames", read, a.names(store.TagNames)).Taking(append([]string{"metric"}, namesParameters...)...).ByMetric(),
		on(get, "/api/v1/tagvalues", read, a.names(store.TagValues)).Taking(append([]string{"metric", "tag"}, namesParameters...)...).ByMetric(),
		on(get, "/api/v1/version", httpapi.Public, a.getVersion),
		on(get, "/api/v1/features", httpapi.Public, a.getFeatures),
		on(get, "/api/v1/features/{feature}", httpapi.Public, a.getFeature),
		on(get, "/api/v1/metadata/{service}", read, guardMetadata(a.getServiceKeys)),
		on(get, "/api/v1/metadata/{service}/{serviceKey}", read, guardMetadata(a.getKeys)).Ignoring("startsWith"),
		on(get, "/api/v1/metadata/{service}/{serviceKey}/{key}", read, guardMetadata(a.getValue)),
		on(post, "/api/v1/metadata/{service}/{serviceKey}/{key}", write, guardMetadata(a.postValue)).OnRecord(),
		on(del, "/api/v1/metadata/{service}/{serviceKey}/{key}", remove, guardMetadata(a.deleteValue)),
		on(get, "/admin/slowqueries", admin, a.getSlow).Taking(),
		on(get, "/api/v1/admin/runningqueries", admin, a.getRunning),
		on(get, "/api/v1/admin/killquery/{hash}", admin, a.killQuery).ByGet(),
		on(post, "/api/v1/admin/killquery/{hash}", admin, a.killQuery),
		on(del, "/api/v1/admin/killquery/{hash}", admin, a.killQuery),
	}
	for _, path := range []string{
		"/api/v1/datapoints", "/api/v1/datapoints/query", "/api/v1/datapoints/query/tags", "/api/v1/datapoints/delete",
		"/api/v1/metric/{name}", "/api/v1/metricnames", "/api/v1/tagnames", "/api/v1/tagvalues",
		"/api/v1/version",
	} {
		routes = append(routes, httpapi.On(http.MethodOptions, path, httpapi.Public, httpapi.PreflightOfMethod))
	}
	return routes
}

// A handler answers a request. It returns an error if nothing was sent, or one that
// failure.Sent has marked.
type handler = func(w http.ResponseWriter, r *http.Request) error

// serve answers the errors of a handler.
func (a *API) serve(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			httpapi.DropBody(r)
		}
		if err := h(w, r); err != nil {
			failure.Answer(w, r, a.Log, err, httpapi.WriteErrors)
		}
	}
}

// readBody reads a request's JSON within the limit. The caller must close the text.
func (a *API) readBody(r *http.Request) (*query.Text, error) {
	return a.engine.ReadText(r.Context(), r.RemoteAddr, r.Body, query.TextLimit{
		Key: "bytes of a query", Max: int64(a.config.MaxQuerySize), What: "read a query or delete", Announced: r.ContentLength,
	})
}

// parse reads a query from JSON text.
func (a *API) parse(text *query.Text, r *http.Request) (req request, err error) {
	err = text.Parse(func(text []byte) (err error) {
		p := a.parser
		p.nowMS = a.now().UnixMilli()
		req, err = p.parse(text)
		return err
	})
	req.Client = r.RemoteAddr
	p := principal.Of(r.Context())
	if err != nil || p.Prefix == "" {
		return req, err
	}
	req.identities = nil // the cache does not know who may see its answers
	for i := range req.Metrics {
		if err := p.Check(req.Metrics[i].Metric); err != nil {
			return req, err
		}
	}
	return req, nil
}

func (a *API) postQuery(w http.ResponseWriter, r *http.Request) error {
	text, err := a.readBody(r)
	if err != nil {
		return err
	}
	defer text.Close()
	return a.query(w, r, text)
}

func (a *API) getQuery(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	if !params.Has("query") {
		return badRequest("query json must not be null or empty")
	}
	text := a.engine.NewText(r.Context(), r.RemoteAddr, []byte(params.Get("query")))
	defer text.Close()
	return a.query(w, r, text)
}

func (a *API) query(w http.ResponseWriter, r *http.Request, text *query.Text) error {
	req, err := a.parse(text, r)
	if err != nil {
		return err
	}
	req.top = nil // do not keep it while the query waits and runs
	if err := a.mayRun(r, &req.Query); err != nil {
		return err
	}
	partial, err := wantsPartial(r)
	if err != nil {
		return err
	}
	req.Trace, req.Partial = httpapi.WantsTrace(r), partial
	e := encoder{answer: a.newAnswer(w, r), cache: a.cache, began: a.now(), partial: partial, types: a.types}
	e.borrow()
	defer e.release()
	if e.lookUp(&req) {
		err = e.encodeQueries(nil, &req)
	} else {
		err = a.run(r.Context(), &req.Query, e.answer, func(run *agg.Run) error {
			err := e.encodeQueries(run, &req)
			if err == nil {
				err = e.pack()
			}
			run.Close(errors.Join(err, e.missing)) // so that the error is counted by its kind
			return err
		})
	}
	if err == nil {
		err = e.finish()
	}
	return e.fault(err)
}

// newAnswer returns an answer that charges the memory it holds. The caller must release
// it.
func (a *API) newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	out := newAnswer(w, r, int(a.config.ResponseBuffer))
	out.memory = a.engine.Unsent(r.Context(), r.RemoteAddr)
	return out
}

// answer sends what encode writes.
func (a *API) answer(w http.ResponseWriter, r *http.Request, encode func(out *answer) error) error {
	out := a.newAnswer(w, r)
	defer out.release()
	err := encode(out)
	if err == nil {
		err = out.finish()
	}
	return out.fault(err)
}

// run starts a query, passes it to encode and ends it.
func (a *API) run(ctx context.Context, q *agg.Query, out *answer, encode func(*agg.Run) error) error {
	done := query.Done{Request: q.Request, Began: time.Now()}
	err := a.engine.Do(ctx, *q, func(run *agg.Run) error {
		out.run = run
		return encode(run)
	})
	if out.run != nil {
		done.Stats = out.run.Stats().Stats
		out.run = nil
	}
	done.Bytes, done.Err = out.total(), err
	done.Metrics = func() (names []string) {
		for i := range q.Metrics {
			names = append(names, q.Metrics[i].Metric)
		}
		return names
	}
	a.engine.Slow().Note(a.Log, done)
	return err
}

func (a *API) postTags(w http.ResponseWriter, r *http.Request) error {
	text, err := a.readBody(r)
	if err != nil {
		return err
	}
	defer text.Close()
	req, err := a.parse(text, r)
	if err != nil {
		return err
	}
	req.top = nil
	req.Trace = httpapi.WantsTrace(r)
	return a.answer(w, r, func(out *answer) error {
		return a.run(r.Context(), &req.Query, out, func(run *agg.Run) error {
			if err := encodeTags(out, run, &req.Query); err != nil {
				return err
			}
			return out.pack()
		})
	})
}

func encodeTags(out *answer, run *agg.Run, req *agg.Query) error {
	began, metrics := time.Now(), req.Metrics
	out.buf = append(out.buf, `{"queries":[`...)
	for i := range metrics {
		tags, err := run.Tags(i)
		if err != nil {
			return err
		}
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		out.buf = append(out.buf, `{"results":[{"name":`...)
		out.buf = appendText(out.buf, metrics[i].Metric)
		out.buf = append(out.buf, `,"tags":`...)
		if err := out.appendTags(tags); err != nil {
			return err
		}
		out.buf = append(out.buf, `,"values":[]}]}`...)
		if err := out.advance(); err != nil {
			return err
		}
	}
	out.buf = append(out.buf, ']')
	if req.Trace {
		out.buf = appendTrace(out.buf, run.Stats(), began, 0, out.total())
	}
	out.buf = append(out.buf, '}')
	return nil
}

func writeDone(w http.ResponseWriter) {
	httpapi.SetHeaders(w.Header())
	w.WriteHeader(http.StatusNoContent)
}

// getIndex is KairosDB's request to rebuild the tag index of a metric. Here every write
// maintains the index, so there is nothing to do.
func (a *API) getIndex(w http.ResponseWriter, _ *http.Request) error {
	writeDone(w)
	return nil
}

func (a *API) getVersion(w http.ResponseWriter, r *http.Request) error {
	text := appendText([]byte(`{"version": `), a.version)
	return a.send(w, r, append(text, "}\n"...))
}

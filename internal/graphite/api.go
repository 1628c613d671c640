package graphite

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"varve/internal/clip"
	"varve/internal/failure"
	"varve/internal/graphite/event"
	"varve/internal/graphite/function"
	"varve/internal/graphite/render"
	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/work"
)

// Version is the version of graphite-web whose API this is.
const Version = "1.1.10"

// An API answers Graphite's requests.
type API struct {
	queries *query.Engine
	store   Store
	shelf   *retention.Shelf
	config  Config
	events  *event.Log
	now     func() time.Time
	log     *slog.Logger
}

// A Store is the part of the store that requests change, except for events.
type Store interface {
	store.Deleter
	store.KeyValues
}

// New returns an API. The book on the shelf determines the step at which series are read.
// The engine of timelines must have been opened with event.Own.
func New(queries *query.Engine, s Store, timelines *timeline.Engine, config Config, shelf *retention.Shelf, now func() time.Time, log *slog.Logger) *API {
	return &API{queries: queries, store: s, shelf: shelf, config: config, now: now, log: log,
		events: event.NewLog(timelines, s, config.MaxEventsPerDay, log)}
}

// A formHandler answers a request with the given parameters.
type formHandler func(w http.ResponseWriter, r *http.Request, form url.Values)

// Routes lists the routes, each with and without the prefix /graphite, which proxies
// often keep.
func (a *API) Routes() []httpapi.Route {
	var routes []httpapi.Route
	for _, prefix := range []string{"", "/graphite"} {
		both := func(path string, h formHandler) {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				routes = append(routes, httpapi.On(method, prefix+path, httpapi.Read, a.withForm(h)).ByMetric())
			}
		}
		both("/render", a.render)
		both("/metrics", a.findOrScrape)
		both("/metrics/find", a.find)
		both("/metrics/expand", a.expand)
		both("/metrics/index.json", a.index)
		routes = append(routes, a.tagRoutes(prefix, both)...)
		routes = append(routes, a.eventRoutes(prefix)...)
		routes = append(routes,
			httpapi.On(http.MethodGet, prefix+"/functions", httpapi.Public, functions),
			httpapi.On(http.MethodGet, prefix+"/functions/{name}", httpapi.Public, oneFunction),
			httpapi.On(http.MethodGet, prefix+"/version", httpapi.Public, version),
			httpapi.On(http.MethodGet, prefix+"/lb_check", httpapi.Public, func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "OK") }))
	}
	return routes
}

// findOrScrape answers /metrics like /metrics/find. It redirects requests without
// parameters, such as Prometheus's, to the server's own metrics.
func (a *API) findOrScrape(w http.ResponseWriter, r *http.Request, form url.Values) {
	if r.Method == http.MethodGet && len(form) == 0 {
		http.Redirect(w, r, "/internal/metrics", http.StatusTemporaryRedirect)
		return
	}
	a.find(w, r, form)
}

func (a *API) render(w http.ResponseWriter, r *http.Request, form url.Values) {
	request, err := render.Parse(form, a.now(), time.UTC)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	request.Options.Format = cmp.Or(request.Options.Format, "png")
	drawn, err := picture(request.Options.Format, form)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if drawn == nil && !render.Known(request.Options.Format) {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("unknown format %.32q; use png, svg, json, csv, raw, pickle, msgpack, dygraph or rickshaw", request.Options.Format))
		return
	}
	a.within(w, r, strings.Join(request.Texts, " "), func(s *query.Session) error {
		src := &source{session: s, book: a.shelf.Book(), events: a.events, trace: newTrace(r)}
		series, err := function.Evaluate(s.Context(), src, s, &request.Function, request.Targets)
		src.trace.send(w, s)
		if err != nil {
			return invalid(s.Cause(err), request.Texts)
		}
		if drawn != nil {
			return draw(w, s, request, *drawn, series)
		}
		w.Header().Set("Content-Type", request.Options.ContentType())
		return sent(render.Write(s.Writer(w), request.Options, series))
	})
}

// sent marks errors of writing an answer, except errors that occur before its first
// byte; see render.Write.
func sent(err error) error {
	if errors.As(err, new(*function.ParamError)) {
		return err
	}
	return failure.Sent(err)
}

// inputOf turns an error that package function attributes to the client into a
// *store.InputError.
func inputOf(err error) error {
	if fault, ok := errors.AsType[*function.ParamError](err); ok {
		return &store.InputError{Reason: fault.Reason}
	}
	return err
}

// invalid rewords a fault of the client as graphite-web does.
func invalid(err error, targets []string) error {
	fault, ok := errors.AsType[*function.ParamError](err)
	if !ok {
		return err
	}
	text := "Invalid parameters (" + fault.Reason + "); targets: \"" + strings.Join(targets, ", ") + "\""
	if fault.Function != "" {
		text += "; func: \"" + fault.Function + "\""
	}
	return &store.InputError{Reason: text}
}

// within runs f in a session and, if f fails, answers the error.
func (a *API) within(w http.ResponseWriter, r *http.Request, text string, f func(*query.Session) error) {
	done := query.Done{Began: time.Now(), Request: query.Request{Text: text, Client: r.RemoteAddr, Trace: httpapi.WantsTrace(r)}}
	s, err := a.queries.Begin(r.Context(), done.Request)
	if err == nil {
		err = inputOf(s.Cause(work.Do("answer a request of Graphite's API", func() error { return f(s) })))
		done.Stats = s.Stats()
		s.Close(err)
	}
	done.Path, done.Bytes, done.Err = r.URL.Path, done.Stats.Sent, err
	a.queries.Slow().Note(a.log, done)
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	failure.Answer(w, r, a.log, err, func(w http.ResponseWriter, status int, texts ...string) {
		refusal(r)(w, status, strings.Join(texts, "; "))
	})
}

// shownError limits the bytes of an error in an answer: an error may quote a target.
const shownError = 2000

// refusal returns the function that answers errors of a request: as JSON below /tags and
// /events, where clients parse them, and as text elsewhere.
func refusal(r *http.Request) func(w http.ResponseWriter, status int, text string) {
	if path := strings.TrimPrefix(r.URL.Path, "/graphite"); strings.HasPrefix(path, "/tags") || strings.HasPrefix(path, "/events") {
		return refuseJSON
	}
	return refuse
}

func refuse(w http.ResponseWriter, status int, text string) {
	say(w, status, clip.Text(text, shownError))
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

const badCallback = "jsonp is not the name of a function"

// contentType returns the type of JSON, or of a JSONP call if there is one.
func contentType(call string) string {
	if call != "" {
		return "text/javascript"
	}
	return "application/json"
}

// answer writes v as JSON, or as a JSONP call if the parameter jsonp names a function.
func answer(w http.ResponseWriter, form url.Values, v any) {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if form.Get("pretty") != "" {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	call := form.Get("jsonp")
	if call != "" && !render.ValidCallback(call) {
		refuse(w, http.StatusBadRequest, badCallback)
		return
	}
	text := bytes.TrimRight(body.Bytes(), "\n")
	w.Header().Set("Content-Type", contentType(call))
	if call != "" {
		text = append(append([]byte(call+"("), text...), ')')
	}
	_, _ = w.Write(text)
}

// answerWithin is answer for a query: it encodes the answer within the query's turn.
func answerWithin(s *query.Session, w http.ResponseWriter, form url.Values, v any) error {
	answer(httpapi.WithBody(w, s.Writer(w)), form, v)
	return nil
}

func version(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8") // as graphite-web has it
	_, _ = io.WriteString(w, Version+"\n")
}

func functions(w http.ResponseWriter, r *http.Request) {
	body, err := render.Functions(r.URL.Query())
	writeJSON(w, http.StatusOK, body, err)
}

func oneFunction(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	body, found, err := render.Function(name, r.URL.Query())
	if !found && err == nil {
		body, err = json.Marshal(map[string]string{"error": "Function not found: " + clip.Text(name, 100)})
		writeJSON(w, http.StatusNotFound, body, err)
		return
	}
	writeJSON(w, http.StatusOK, body, err)
}

func writeJSON(w http.ResponseWriter, status int, body []byte, err error) {
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

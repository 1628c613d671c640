// Package httpapi has what all HTTP front ends share: the description of their
// routes, and the form of KairosDB's error answers.
package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/clip"
	"varve/internal/principal"
	"varve/internal/suggest"
)

// A Route is one method and path pattern of a front end, in the syntax of
// [http.ServeMux] without the method, for example /api/v1/metric/{name}. The
// server accepts the path with and without a trailing slash. Make one with On.
type Route struct {
	Method  string
	Path    string
	Access  Access
	Handler http.Handler

	// ChangesByGet marks a GET route that changes something.
	ChangesByGet bool

	// Parameters are the names of the query parameters that the handler reads;
	// see Checked. nil allows all.
	Parameters []string

	// IgnoresOthers allows other parameters too, as KairosDB does, except those
	// that look like a misspelling of one in Parameters.
	IgnoresOthers bool

	// Metrics marks a route that accesses data by metric name only, in ways that the
	// store and the writers restrict to the metrics of the sender. Senders that are
	// limited to some metrics can use no other routes.
	Metrics bool

	// Recorded marks a route whose requests are recorded in the audit log, in addition
	// to those that always are; see Audited.
	Recorded bool

	// Server marks a route that concerns the server as a whole, not one tenant.
	Server bool
}

// On returns the route of a method and a path. It accepts all query parameters unless
// Taking or Ignoring names some.
func On(method, path string, access Access, h http.HandlerFunc) Route {
	return Route{Method: method, Path: path, Access: access, Handler: h}
}

// Taking returns the route with these query parameters, and no others.
func (r Route) Taking(parameters ...string) Route {
	r.Parameters = append([]string{}, parameters...)
	return r
}

// Ignoring returns the route with these query parameters. It ignores others, as
// KairosDB does.
func (r Route) Ignoring(parameters ...string) Route {
	r.Parameters, r.IgnoresOthers = parameters, true
	return r
}

// ByGet returns the route as a GET route that changes something, as some of KairosDB's
// do.
func (r Route) ByGet() Route {
	r.ChangesByGet = true
	return r
}

// ByMetric returns the route as one that senders limited to some metrics can use too;
// see Metrics.
func (r Route) ByMetric() Route {
	r.Metrics = true
	return r
}

// OfServer returns the route as one that concerns the server as a whole.
func (r Route) OfServer() Route {
	r.Server = true
	return r
}

// OnRecord returns the route with its requests recorded in the audit log.
func (r Route) OnRecord() Route {
	r.Recorded = true
	return r
}

// Audited reports whether the audit log records requests to the route: those that delete, and
// those by which an operator changes something or starts an action.
func (r Route) Audited() bool {
	return r.Recorded || r.Access == Delete || r.Access == Admin && r.Changes()
}

// Changes reports whether requests to the route can change something. If so, the server
// restricts which web pages of other origins may send them. Routes with access Admin change
// something unless their method is GET.
func (r Route) Changes() bool {
	switch r.Access {
	case Public, Read, Metrics:
		return r.ChangesByGet
	case Admin:
		return r.ChangesByGet || r.Method != http.MethodGet
	}
	return true
}

// Checked returns the route's handler behind two checks. HEAD, which a mux routes to
// GET handlers, is answered 405 if the route changes something. A request with a
// parameter that the route does not accept is answered 400; parameters that begin with _
// are ignored, since web pages and proxies add _=123 or _dc=123 to bypass caches.
func (r Route) Checked() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodHead && r.Method == http.MethodGet && r.Changes() {
			w.Header().Set("Allow", http.MethodGet)
			WriteEmpty(w, http.StatusMethodNotAllowed)
			return
		}
		if r.Parameters != nil && req.URL.RawQuery != "" {
			for _, name := range slices.Sorted(maps.Keys(req.URL.Query())) {
				if fault := r.unknown(name); fault != "" {
					WriteErrors(w, http.StatusBadRequest, fault)
					return
				}
			}
		}
		r.Handler.ServeHTTP(w, req)
	})
}

// unknown returns the error for a parameter that the route does not accept, "" for one
// that it accepts or ignores.
func (r Route) unknown(name string) string {
	if strings.HasPrefix(name, "_") || slices.Contains(r.Parameters, name) {
		return ""
	}
	const clipped = 100
	shown := strconv.Quote(clip.Text(name, clipped))
	if hint := suggest.Hint(name, r.Parameters); hint != "" {
		return "unknown parameter " + shown + hint
	}
	switch {
	case r.IgnoresOthers:
		return ""
	case len(r.Parameters) == 0:
		return "unknown parameter " + shown + "; " + r.Path + " takes none"
	}
	return "unknown parameter " + shown + "; " + r.Path + " takes " + strings.Join(r.Parameters, ", ")
}

// An Access is the right that a request needs. Each route states one.
type Access int

const (
	Unstated Access = iota // the server refuses to mount such a route
	Public                 // none needed: health, preflights, the welcome page
	Read                   // samples, names and metadata, roll-up tasks
	Write                  // samples, metadata, roll-up tasks
	Delete                 // the same
	Admin                  // what operators do and see
	Metrics                // the server's own metrics
)

var accessNames = [...]string{"unstated", "public", "read", "write", "delete", "admin", "metrics"}

func (a Access) String() string { return accessNames[a] }

// Right returns the right that a sender needs for a; 0 for Public.
func (a Access) Right() principal.Rights {
	return [...]principal.Rights{Read: principal.Read, Write: principal.Write, Delete: principal.Delete, Admin: principal.Admin, Metrics: principal.Metrics}[a]
}

// readOnly is the context key of WithReadOnly.
type readOnly struct{}

// WithReadOnly marks a request whose sender may only read.
func WithReadOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, readOnly{}, true)
}

// IsReadOnly reports whether the sender of a request may only read, so that a query
// must not store its results.
func IsReadOnly(ctx context.Context) bool {
	p := principal.Of(ctx)
	return p.Tenant != "" && !p.Rights.Has(principal.Write) || ctx.Value(readOnly{}) != nil
}

// stopping is the context key of WithStopping.
type stopping struct{}

// WithStopping returns a context for the requests of a server that closes c when it begins
// to stop.
func WithStopping(ctx context.Context, c <-chan struct{}) context.Context {
	return context.WithValue(ctx, stopping{}, c)
}

// Stopping returns a channel that is closed when the server of a request begins to stop.
// Endless answers must end then. The channel is nil if WithStopping was not used.
func Stopping(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(stopping{}).(<-chan struct{})
	return c
}

// WriteErrors answers with KairosDB's error body, {"errors":[...]}. Every 4xx
// with a body has exactly this content type: KairosDB's Java client leaks a
// connection for any other. A 500 has the headers of a normal answer, as KairosDB's.
func WriteErrors(w http.ResponseWriter, status int, messages ...string) {
	h := w.Header()
	if status == http.StatusInternalServerError {
		SetHeaders(h)
	} else {
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	w.Write(ErrorBody(messages...))
}

// ErrorBody returns KairosDB's error body, {"errors":[...]}.
func ErrorBody(messages ...string) []byte {
	body, err := json.Marshal(map[string][]string{"errors": messages})
	if err != nil {
		panic(err) // strings always marshal
	}
	return body
}

// ErrorPath is the header that names the member of a request that is wrong, such as
// metrics[0].aggregators[1].sampling.value.
const ErrorPath = "X-Varve-Error-Path"

// Stored is the header of an answer that refuses some points. It says how many others of the
// request were stored.
const Stored = "X-Varve-Stored"

const (
	leastWait = time.Second // shortest Retry-After, and the one if the wait is unknown
	mostWait  = time.Minute // longest one: senders cannot buffer their points for longer
)

const retryAfter = "Retry-After"

// AskLater asks the client of a 503 to wait before it sends the same request again; a wait of 0
// is unknown.
func AskLater(h http.Header, wait time.Duration) {
	seconds := int64(math.Ceil(min(max(wait, leastWait), mostWait).Seconds()))
	h.Set(retryAfter, strconv.FormatInt(seconds, 10))
}

// askSoon is AskLater with an unknown wait. It keeps a Retry-After that is already set.
func askSoon(h http.Header) {
	if h.Get(retryAfter) == "" {
		AskLater(h, 0)
	}
}

// WriteBusy answers 503 with the Retry-After of [AskLater] and without a body: KairosDB's Java
// library leaks a connection for each 503 with a body. Overload is never 429,
// which makes Prometheus and Telegraf drop data.
func WriteBusy(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	askSoon(h)
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusServiceUnavailable)
}

// WriteUnavailable answers 503 with the Retry-After of [AskLater] and a reason. It leaves the reason
// out on the path by which points are sent, and for KairosDB's Java library: see [WriteBusy].
func WriteUnavailable(w http.ResponseWriter, r *http.Request, why string) {
	if OmitsBody(r, http.StatusServiceUnavailable) {
		WriteBusy(w)
		return
	}
	askSoon(w.Header())
	WriteErrors(w, http.StatusServiceUnavailable, why)
}

// OmitsBody reports whether an error with a status is answered without a body: 503 on the path by
// which points are sent, and all but 400 for a client that would leak a connection.
func OmitsBody(r *http.Request, status int) bool {
	return status == http.StatusServiceUnavailable && TakesPoints(r.URL.Path) || status != http.StatusBadRequest && leaksConnections(r)
}

// leaksConnections reports whether a request may come from KairosDB's Java library,
// which uses Apache's HTTP client. The library has two connections to a host and
// loses one with each answer that has a body and is neither a 200 nor a JSON 400:
// after two refused queries, its next push waits for ever. It never requests ownPaths.
func leaksConnections(r *http.Request) bool {
	own := func(path string) bool { return strings.HasPrefix(r.URL.Path, path) }
	return strings.HasPrefix(r.UserAgent(), "Apache-HttpClient/") && !slices.ContainsFunc(ownPaths, own)
}

// ownPaths begin the paths that KairosDB does not have. Other programs with Apache's HTTP client
// need the bodies of their answers, such as the report of what was stored.
var ownPaths = []string{"/api/v1/timelines", "/api/v1/import", "/api/v1/export", "/admin/"}

// TakesPoints reports whether a path is the one to which clients of KairosDB
// send points.
func TakesPoints(path string) bool { return strings.TrimRight(path, "/") == "/api/v1/datapoints" }

// SetHeaders sets the headers of KairosDB's normal answers, which a 204 and a
// 500 carry too.
func SetHeaders(h http.Header) {
	for _, header := range normalHeaders {
		h[header.name] = header.values
	}
}

// normalHeaders are the headers that SetHeaders sets. All answers share the values.
// Their capacity equals their length, so Header.Add copies them.
var normalHeaders = [...]struct {
	name   string // in canonical form
	values []string
}{
	{"Access-Control-Allow-Origin", []string{"*"}},
	{"Pragma", []string{"no-cache"}},
	{"Cache-Control", []string{"no-cache"}},
	{"Expires", []string{"0"}},
	{"Content-Type", []string{"application/json;charset=utf-8"}},
}

// WriteEmpty answers without a body. Routes of KairosDB's clients must answer errors
// this way, unless they are a JSON 400: the Java library leaks a connection for each
// other answer with a body.
func WriteEmpty(w http.ResponseWriter, status int) {
	if status != http.StatusNoContent {
		w.Header().Set("Content-Length", "0")
	}
	w.WriteHeader(status)
}

// WriteText writes a text in pieces, so that a slow client costs no second copy of it.
func WriteText(w io.Writer, text string) error {
	const size = 16 << 10
	piece := make([]byte, 0, min(size, len(text)))
	for len(text) > 0 {
		n := min(size, len(text))
		piece = append(piece[:0], text[:n]...)
		text = text[n:]
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// Cut returns a function that makes the sending of an answer fail. Another goroutine may
// call it.
func Cut(w http.ResponseWriter) func() {
	return func() { http.NewResponseController(w).SetWriteDeadline(time.Now()) }
}

// DropBody reads a short body that the request does not need, such as the {} of python-kairosdb. Until a body
// is read completely, the server does not notice that the client has disconnected.
func DropBody(r *http.Request) {
	const most = 64 << 10 // the server ends the connection if there is much more
	io.Copy(io.Discard, io.LimitReader(r.Body, most))
}

// Preflight answers a CORS preflight as KairosDB does, including its misspelt header.
func Preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	if headers := r.Header.Get("Access-Control-Request-Headers"); headers != "" {
		h.Set("Access-Control-Allow-Headers", headers)
	}
	h.Set("Access-Control-Max-Age", "86400")
	if method := r.Header.Get("Access-Control-Request-Method"); method != "" {
		h["Access-Control-Allow_Method"] = []string{method}
	}
	WriteEmpty(w, http.StatusOK)
}

// PreflightOfMethod is Preflight for paths at which KairosDB names the allowed method also in the
// header that browsers read.
func PreflightOfMethod(w http.ResponseWriter, r *http.Request) {
	if method := r.Header.Get("Access-Control-Request-Method"); method != "" {
		w.Header().Set("Access-Control-Allow-Methods", method)
	}
	Preflight(w, r)
}

// WithBody returns w with its body written to body instead.
func WithBody(w http.ResponseWriter, body io.Writer) http.ResponseWriter {
	return &bodyWriter{w, body}
}

type bodyWriter struct {
	http.ResponseWriter
	body io.Writer
}

func (w *bodyWriter) Write(p []byte) (int, error) { return w.body.Write(p) }

// Unwrap is for http.ResponseController.
func (w *bodyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

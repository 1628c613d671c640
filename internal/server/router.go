package server

import (
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/clip"
	"varve/internal/httpapi"
	"varve/internal/stream"
)

// A router finds the handler of a request and guards it: it checks the request's origin, counts,
// turns a panic into a 500, and sets a rolling deadline for reads and writes.
type router struct {
	routes      atomic.Pointer[http.ServeMux] // nil until the front ends are there
	starting    http.Handler                  // answers meanwhile
	list        []httpapi.Route               // that were mounted; complete before routes is set
	changes     map[string]bool               // by the mux's pattern, see Route.Changes; complete before routes is set
	guard       guard
	stream      string // http or pprof
	audit       *atomic.Pointer[audit.Log]
	keeper      *auth.Keeper           // nil: everyone may do everything
	proxyHeader string                 // of the keeper, in canonical form
	tenants     func(name string) bool // that are served; nil: the default only
	log         *slog.Logger
	metrics     *metrics
	stall       time.Duration // see Config.StallTimeout
	draining    func() bool
	active      stream.Activity
	crowd       *crowd
}

// mount makes the router answer by routes from now on. It panics on a route that
// conflicts with another or states no access: routes are code, not input.
func (rt *router) mount(routes ...httpapi.Route) {
	mux := http.NewServeMux()
	rt.list, rt.changes = routes, map[string]bool{}
	for _, r := range routes {
		if r.Access == httpapi.Unstated {
			panic("server: the route " + r.Method + " " + r.Path + " does not state which access it needs")
		}
		path := r.Path
		switch {
		case path == "/":
			path = "/{$}" // not the subtree, which would hide every 405
		case !strings.HasSuffix(path, "...}"):
			path = strings.TrimSuffix(path, "/")
		}
		pattern := strings.TrimSpace(r.Method + " " + path)
		rt.changes[pattern] = r.Changes()
		mux.Handle(pattern, rt.guarded(r))
	}
	rt.routes.Store(mux)
}

// mux returns the routes, nil before mount.
func (rt *router) mux() *http.ServeMux { return rt.routes.Load() }

func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rt.active.Begin()
	defer rt.active.End()
	rt.metrics.inFlight.Inc()
	defer rt.metrics.inFlight.Dec()
	if meter := meterOf(r); meter != nil {
		meter.Begin()
		defer func() { meter.End(creditOf(r)) }()
	}

	r, ok := cleanRequest(r)
	if ok {
		r, ok = withTenant(r)
	}
	rw := newResponse(w, r, rt.stall, rt.draining)
	rw.last = endsTwice(r)
	defer rw.watch()()
	leave, room := rt.crowd.enter(r)
	defer leave() // after the answer
	defer rt.finish(rw, start)
	if !room {
		rw.direct = true
		httpapi.WriteBusy(rw) // without a body, so that the client needs no room for one
		return
	}
	mux := rt.mux()
	if !rt.admit(rw, mux != nil) {
		return
	}
	switch {
	case r.Method == http.MethodOptions && r.RequestURI == "*":
		rw.direct = true
		httpapi.WriteEmpty(rw, http.StatusOK)
	case mux == nil:
		rw.direct = true
		rt.starting.ServeHTTP(rw, rw.request)
	case !ok:
		http.NotFound(rw, rw.request)
	default:
		mux.ServeHTTP(rw, rw.request)
	}
}

// admit answers 431 to a request with too large a header and 403 to one that its
// origin does not allow, and reports whether the request goes on.
func (rt *router) admit(rw *response, routed bool) bool {
	if isLarge(rw.request) {
		rt.metrics.largeHeaders.Inc()
		rw.Header().Set("Connection", "close")
		rw.refuse(http.StatusRequestHeaderFieldsTooLarge, headerFault)
		return false
	}
	refusal, may := rt.guard.check(rw.request)
	if refusal == "" && may != mayAll && routed {
		refusal = rt.permit(rw, may)
	}
	if refusal != "" {
		rt.metrics.refused.Inc()
		rw.refuse(http.StatusForbidden, refusal)
		return false
	}
	if origin := rw.request.Header.Get("Origin"); origin != "" {
		switch may {
		case mayAll, mayLook:
			rw.origin = origin
		case mayRead:
			rw.origin = anyOrigin
		}
	}
	return true
}

// finish completes the answer, also after a panic, and counts the request.
func (rt *router) finish(rw *response, start time.Time) {
	fault := recover()
	rw.release()
	rw.extend() // the end of the answer may have waited in a buffer for a long time
	aborted := fault == http.ErrAbortHandler
	if fault != nil && !aborted {
		rt.metrics.panics.Inc()
		rt.log.Error("a request handler panicked; this is a bug in Varve, please report it",
			"method", rw.request.Method, "route", rw.route(), "panic", fault, "stack", string(debug.Stack()))
		if aborted = rw.status != 0; !aborted {
			clear(rw.Header())
			httpapi.WriteEmpty(rw, http.StatusInternalServerError)
		}
	}
	if rw.status == 0 && !aborted {
		rw.WriteHeader(http.StatusOK)
	}
	if rw.body != nil && rw.body.evicted { // net/http would keep it for half a second
		aborted = true
	}
	if rw.status == http.StatusForbidden && !rw.told {
		rt.log.Warn("request forbidden", "method", clip.Text(rw.request.Method, clipped), "path", clip.Text(rw.request.URL.Path, clipped),
			"remote", rw.request.RemoteAddr, "sender", clip.Text(rw.sender, clipped), "answer", string(rw.why))
	}
	elapsed := time.Since(start)
	rt.metrics.count(rw, elapsed)
	if ctx := rw.request.Context(); rt.log.Enabled(ctx, slog.LevelDebug) { // the arguments would be allocated
		rt.log.DebugContext(ctx, "request", "method", rw.request.Method, "path", rw.request.URL.Path,
			"status", rw.status, "bytes", rw.written, "elapsed", elapsed)
	}
	if aborted {
		panic(http.ErrAbortHandler) // cuts the connection, so that an incomplete answer is recognised
	}
	if rw.written > 0 && rt.crowd.flushes(rw.request) {
		rw.Flush()
	}
}

// cleanRequest returns r with a path that the mux accepts without a redirect: no empty segments, no
// slash at the end. Escapes stay, so that a name may contain a slash. ok is false for a path with a
// "." or ".." segment: guessing its target would be dangerous for a DELETE.
func cleanRequest(r *http.Request) (clean *http.Request, ok bool) {
	escaped := r.URL.EscapedPath()
	path, ok := cleanPath(escaped)
	if path == escaped || !ok || r.RequestURI == "*" {
		return r, ok
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return r, false
	}
	clean = new(http.Request)
	*clean = *r
	clean.URL = new(url.URL)
	*clean.URL = *r.URL
	clean.URL.Path, clean.URL.RawPath = decoded, path
	return clean, true
}

// cleanPath does the work of cleanRequest on an escaped path.
func cleanPath(path string) (string, bool) {
	if !strings.Contains(path, "//") && !strings.Contains(path, "/.") && !strings.HasSuffix(path, "/") {
		return path, true
	}
	var b strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		switch segment {
		case "":
		case ".", "..":
			return path, false
		default:
			b.WriteString("/" + segment)
		}
	}
	if b.Len() == 0 {
		return "/", true
	}
	return b.String(), true
}

// Package httpapi holds what all HTTP front ends share: how they list their
// routes, and the form of KairosDB's error answers.
package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"varve/internal/nearest"
)

// A Route is one method and path pattern of a front end, in the syntax of
// [http.ServeMux] without the method, for example /api/v1/metric/{name}.
// Whoever mounts it serves the path with and without a trailing slash.
type Route struct {
	Method  string
	Path    string
	Access  Access
	Handler http.Handler

	// Parameters are the names that the handler reads in the address; see
	// Checked. With nil nobody looks.
	Parameters []string

	// IgnoresOthers lets a request have other parameters too, as KairosDB does,
	// unless one looks like a misspelt name of Parameters.
	IgnoresOthers bool
}

// None are the Parameters of a route that takes none.
var None = []string{}

// Checked returns the route's handler, before which requests with parameters
// that it does not take are answered 400. Those that begin with _ are always
// ignored: pages and proxies add _=123 or _dc=123 to get by a cache.
func (r Route) Checked() http.Handler {
	if r.Parameters == nil {
		return r.Handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.RawQuery != "" {
			for _, name := range slices.Sorted(maps.Keys(req.URL.Query())) {
				if fault := r.unknown(name); fault != "" {
					io.CopyN(io.Discard, req.Body, droppedBody)
					WriteErrors(w, http.StatusBadRequest, fault)
					return
				}
			}
		}
		r.Handler.ServeHTTP(w, req)
	})
}

// droppedBody is how much of the body of a refused request is read, so that the
// connection can take the next one.
const droppedBody = 64 << 10

// unknown says what is wrong with a parameter, "" if nothing is.
func (r Route) unknown(name string) string {
	if strings.HasPrefix(name, "_") || slices.Contains(r.Parameters, name) {
		return ""
	}
	const clipped = 100
	shown := strconv.Quote(name[:min(len(name), clipped)])
	if hint := nearest.Hint(name, r.Parameters); hint != "" {
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

// An Access says what a request can do, for the question whether a web page of
// another origin may send it.
type Access int

const (
	ByMethod Access = iota // GET, HEAD and OPTIONS read, other methods change something
	Reads                  // by another method too, such as a query that is posted
	Changes                // by GET too, as some of KairosDB's routes do; not by HEAD
)

// Of returns Reads or Changes for a route of this method.
func (a Access) Of(method string) Access {
	switch {
	case a != ByMethod:
		return a
	case method == http.MethodGet, method == http.MethodHead, method == http.MethodOptions:
		return Reads
	}
	return Changes
}

// readOnly is the key of a mark in the context of a request.
type readOnly struct{}

// WithReadOnly marks a request that comes from where only reading is allowed.
func WithReadOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, readOnly{}, true)
}

// IsReadOnly reports whether a request that reads may not write on the side.
func IsReadOnly(ctx context.Context) bool { return ctx.Value(readOnly{}) != nil }

// WriteErrors answers with KairosDB's error body, {"errors":[...]}. Every 4xx
// with a body has exactly this content type: KairosDB's Java client leaks a
// connection for any other.
func WriteErrors(w http.ResponseWriter, status int, messages ...string) {
	body, err := json.Marshal(map[string][]string{"errors": messages})
	if err != nil {
		panic(err) // strings always marshal
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}

// RetryAfter is the number of seconds that a 503 asks a client to wait.
const RetryAfter = "1"

// WriteBusy answers 503 with Retry-After and no body: where KairosDB's clients
// send points, their Java library leaks a connection for each answer with one.
// Overload is never 429, which makes Prometheus and Telegraf drop data.
func WriteBusy(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Retry-After", RetryAfter)
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusServiceUnavailable)
}

// WriteUnavailable answers 503 with Retry-After and says why, but not where
// points are sent, nor to KairosDB's Java library: see [WriteBusy].
func WriteUnavailable(w http.ResponseWriter, r *http.Request, why string) {
	if TakesPoints(r.URL.Path) || LeaksConnections(r) {
		WriteBusy(w)
		return
	}
	w.Header().Set("Retry-After", RetryAfter)
	WriteErrors(w, http.StatusServiceUnavailable, why)
}

// LeaksConnections reports whether a request may be of KairosDB's Java library,
// which asks by Apache's client. It has two connections a host for everything, and
// loses one by each answer with a body that is neither 200 nor a JSON 400: two
// refused queries, and the next push waits for ever.
func LeaksConnections(r *http.Request) bool {
	return strings.HasPrefix(r.UserAgent(), "Apache-HttpClient/")
}

// TakesPoints reports whether a path is the one by which clients of KairosDB
// send points.
func TakesPoints(path string) bool { return strings.TrimRight(path, "/") == "/api/v1/datapoints" }

// SetHeaders sets the headers of KairosDB's normal answers, which a 204 and a
// 500 carry too.
func SetHeaders(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Pragma", "no-cache")
	h.Set("Cache-Control", "no-cache")
	h.Set("Expires", "0")
	h.Set("Content-Type", "application/json;charset=utf-8")
}

// WriteEmpty answers without a body. An error status needs that where clients
// of KairosDB call: their Java library leaks a connection for any other but a
// JSON 400.
func WriteEmpty(w http.ResponseWriter, status int) {
	if status != http.StatusNoContent {
		w.Header().Set("Content-Length", "0")
	}
	w.WriteHeader(status)
}

// Preflight answers a browser that asks whether a page of another origin may
// call us, as KairosDB does, its misspelt header included.
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

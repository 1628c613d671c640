// Package httpapi holds what all HTTP front ends share: how they list their
// routes, and the form of KairosDB's error answers.
package httpapi

import (
	"encoding/json"
	"net/http"
)

// A Route is one method and path pattern of a front end, in the syntax of
// [http.ServeMux] without the method, for example /api/v1/metric/{name}.
// Whoever mounts it serves the path with and without a trailing slash.
type Route struct {
	Method  string
	Path    string
	Handler http.Handler
}

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

// WriteBusy answers 503 with Retry-After and no body. Overload is never 429,
// which makes Prometheus and Telegraf drop data, and a body would make
// KairosDB's Java client leak a connection.
func WriteBusy(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Retry-After", "1")
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusServiceUnavailable)
}

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

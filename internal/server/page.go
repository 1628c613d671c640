package server

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"varve/internal/httpapi"
)

// ownRoutes are the pages of the server itself.
func (s *Server) ownRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodGet, Path: "/", Handler: http.HandlerFunc(s.welcome)},
		{Method: http.MethodGet, Path: "/internal/metrics", Handler: promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry})},
		{Method: http.MethodGet, Path: "/api/v1/health/check", Handler: http.HandlerFunc(s.healthCheck)},
		{Method: http.MethodGet, Path: "/api/v1/health/status", Handler: http.HandlerFunc(s.healthStatus)},
		{Method: http.MethodOptions, Path: "/api/v1/health/check", Handler: http.HandlerFunc(httpapi.Preflight)},
		{Method: http.MethodOptions, Path: "/api/v1/health/status", Handler: http.HandlerFunc(httpapi.Preflight)},
	}
}

const welcomePage = `Varve %s, a time series database.

KairosDB API      /api/v1/...    for example /api/v1/metricnames
OpenTSDB put      /api/put
Health            /api/v1/health/status
Metrics           /internal/metrics
Rejected input    /admin/rejected

How to send a point and read it back is in README.md, how to run and watch the
server in docs/operations.md, each setting in docs/configuration.md.
`

// welcome tells a person what answers here.
func (s *Server) welcome(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, welcomePage, strings.TrimSpace(s.version))
}

// profiles serves Go's profiler.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

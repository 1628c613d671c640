package server

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"

	"varve/internal/httpapi"
)

// ownRoutes are the pages of the server itself.
func (s *Server) ownRoutes() []httpapi.Route {
	const get, options, public = http.MethodGet, http.MethodOptions, httpapi.Public
	return []httpapi.Route{
		httpapi.On(get, "/", public, s.welcome),
		s.metricsRoute(),
		httpapi.On(get, "/api/v1/health/check", public, s.healthCheck),
		httpapi.On(get, "/api/v1/health/status", public, s.healthStatus),
		httpapi.On(options, "/api/v1/health/check", public, httpapi.Preflight),
		httpapi.On(options, "/api/v1/health/status", public, httpapi.Preflight),
	}
}

func (s *Server) metricsRoute() httpapi.Route {
	return httpapi.On(http.MethodGet, metricsPath, httpapi.Metrics, s.scrapes.ServeHTTP).OfServer()
}

// metricsPath is that of the server's own metrics.
const metricsPath = "/internal/metrics"

const welcomePage = `Varve %s, a time series database.

KairosDB API      /api/v1/...    for example /api/v1/metricnames
OpenTSDB put      /api/put
Graphite          /render, /metrics/find, /tags, /functions, /events
Timelines         /api/v1/timelines
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

// profilerConnections is how many connections the profiler's listener accepts.
const profilerConnections = 16

// longestProfile limits how many seconds of work one request may record.
const longestProfile = 300

// profiles are the routes of Go's profiler. Profiling costs the server time, so the routes count as
// changing something: pages of other origins may not request a profile. The index costs nothing; a
// browser that comes from there sends a Referer.
func profiles() []httpapi.Route {
	page := func(path string, h http.HandlerFunc) httpapi.Route {
		return httpapi.On(http.MethodGet, path, httpapi.Admin, boundSeconds(h)).ByGet().OfServer()
	}
	return []httpapi.Route{
		httpapi.On(http.MethodGet, "/debug/pprof", httpapi.Admin, pprof.Index).OfServer(),
		page("/debug/pprof/{name...}", pprof.Index),
		page("/debug/pprof/cmdline", pprof.Cmdline),
		page("/debug/pprof/profile", pprof.Profile),
		page("/debug/pprof/symbol", pprof.Symbol),
		httpapi.On(http.MethodPost, "/debug/pprof/symbol", httpapi.Admin, pprof.Symbol).OfServer(),
		page("/debug/pprof/trace", pprof.Trace),
	}
}

func boundSeconds(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if n, err := strconv.ParseFloat(r.FormValue("seconds"), 64); err == nil && !(n <= longestProfile) {
			httpapi.WriteErrors(w, http.StatusBadRequest, fmt.Sprintf("seconds: want at most %d", longestProfile))
			return
		}
		h(w, r)
	}
}

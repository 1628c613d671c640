package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/httpapi"
	"varve/internal/store"
)

// A Check is one question about the server's health.
type Check struct {
	Name string // as in /api/v1/health/status

	// Run returns why the check fails. The status does not say so, since everybody may read it. If the
	// error has a method Public() string, the status has a line with that text.
	Run func(ctx context.Context) error

	// Quiet leaves a check that passes out of the status: scripts written for
	// KairosDB compare the list with its two checks.
	Quiet bool

	// Partial means that a failure concerns only part of the data. The status shows the failure,
	// but a load balancer should keep using this server.
	Partial bool
}

// checkTimeout bounds all checks of one health request together. Load
// balancers seldom wait longer.
const checkTimeout = 5 * time.Second

// QueryCheck asks a store for one metric name. An empty store is healthy. The
// name of the check is KairosDB's.
func QueryCheck(s store.Viewer) Check {
	return Check{Name: "Datastore-Query", Run: func(ctx context.Context) error {
		view, err := s.View(ctx)
		if err != nil {
			return err
		}
		_, _, err = view.Names(ctx, store.NamesQuery{Kind: store.MetricNames, Limit: 1})
		if closeErr := view.Close(); err == nil {
			err = closeErr
		}
		return err
	}}
}

// health runs the checks; each of them gets an error or nil.
func (s *Server) health(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	results := make([]error, len(s.front.Checks))
	for i, c := range s.front.Checks {
		if results[i] = c.Run(ctx); results[i] != nil {
			s.metrics.failed.WithLabelValues(c.Name).Inc()
			s.log.Warn("health check failed", "check", c.Name, "error", results[i])
		}
	}
	return results
}

// A healthGauge runs the checks at each scrape and says which of them pass.
type healthGauge struct {
	server *Server
	desc   *prometheus.Desc
}

func newHealthGauge(s *Server) healthGauge {
	return healthGauge{s, prometheus.NewDesc("varve_health_check", "1 if the health check passes, else 0.", []string{"check"}, nil)}
}

func (g healthGauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

func (g healthGauge) Collect(ch chan<- prometheus.Metric) {
	if !g.server.isMounted() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	for _, c := range g.server.front.Checks {
		value := 1.0
		if c.Run(ctx) != nil {
			value = 0
		}
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, c.Name)
	}
}

// scrapeTimeout bounds all checks of one scrape; Prometheus waits for 10 s.
const scrapeTimeout = 2 * time.Second

// healthCheck answers 204 or 500, both without a body. A server that is stopping answers 500, so
// that a load balancer uses other servers.
func (s *Server) healthCheck(w http.ResponseWriter, r *http.Request) {
	httpapi.SetHeaders(w.Header())
	status := http.StatusNoContent
	for i, err := range s.health(r.Context()) {
		if err != nil && !s.front.Checks[i].Partial {
			status = http.StatusInternalServerError
		}
	}
	if s.draining.Load() {
		status = http.StatusInternalServerError
	}
	httpapi.WriteEmpty(w, status)
}

// AliveCheck passes whenever it runs: a process whose goroutines are stuck does not answer. It has
// the name of KairosDB's check for stuck threads, because scripts look for that line.
func AliveCheck() Check {
	return Check{Name: "JVM-Thread-Deadlock", Run: func(context.Context) error { return nil }}
}

// healthStatus lists each check with OK or FAIL, always with status 200.
func (s *Server) healthStatus(w http.ResponseWriter, r *http.Request) {
	lines := make([]string, 0, len(s.front.Checks)+1)
	for i, err := range s.health(r.Context()) {
		switch {
		case err != nil:
			lines = append(lines, s.front.Checks[i].Name+": FAIL")
			var told interface{ Public() string }
			if errors.As(err, &told) {
				lines = append(lines, s.front.Checks[i].Name+"-Backlog: "+told.Public())
			}
		case !s.front.Checks[i].Quiet:
			lines = append(lines, s.front.Checks[i].Name+": OK")
		}
	}
	if s.insecure() {
		lines = append(lines, "Server-Insecure: other machines reach this server without saying who they are (server.insecure)")
	}
	if trouble := s.certificateTrouble(); trouble != "" {
		lines = append(lines, "Server-Certificate: "+trouble)
	}
	writeLines(w, lines...)
}

// writeLines answers with a list of texts.
func writeLines(w http.ResponseWriter, lines ...string) {
	body, err := json.Marshal(lines)
	if err != nil {
		panic(err) // strings always marshal
	}
	httpapi.SetHeaders(w.Header())
	w.Write(body)
}

// answerStarting answers while the store is being opened. The metrics and the
// health status are served; all other requests get 503 with the progress.
func (s *Server) answerStarting(w http.ResponseWriter, r *http.Request) {
	progress := "starting, " + s.opening()
	switch r.URL.Path {
	case metricsPath:
		s.api.router.guarded(s.metricsRoute()).ServeHTTP(w, r)
	case "/api/v1/health/status":
		writeLines(w, "JVM-Thread-Deadlock: OK", "Datastore-Query: FAIL", "Datastore-Open: "+progress)
	default:
		httpapi.WriteUnavailable(w, r, progress)
	}
}

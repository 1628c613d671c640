package write

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/layout"
	"varve/internal/loglimit"
	"varve/internal/model"
)

// A dropped sample is lost, so the log names one of each reason, however many samples were dropped for
// another reason before it.
func TestEachReasonIsLogged(t *testing.T) {
	var lines bytes.Buffer
	log := slog.New(loglimit.NewHandler(slog.NewTextHandler(&lines, nil), prometheus.NewRegistry()))
	w := &Writer{log: log, now: time.Now, refusals: map[string]*layout.Refusal{}}
	w.metrics = newMetrics(w)
	many := model.Series{Metric: "many", Type: model.TypeDouble}
	for range 1000 {
		w.refuse(reasonNotFinite, many, 1, 1, nil)
	}
	w.refuse(reasonKey, model.Series{Metric: "one", Type: model.TypeLong}, 1, 1, nil)
	if n := strings.Count(lines.String(), "many"); n == 0 || n == 1000 {
		t.Errorf("%d lines of one reason", n)
	}
	if !strings.Contains(lines.String(), "reason="+reasonKey) {
		t.Error("the reason that is rare is not logged")
	}
}

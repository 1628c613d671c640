package ingest_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
)

// Inputs that are refused after the last report are counted and kept, and not logged: a server
// that stops waits for nothing.
func TestRefusalsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := ingest.New(&ingesttest.Recorder{}, ingest.DefaultConfig(), ingest.Options{Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		proto := p.Protocol("test")
		refuse := func(text string) {
			p.Reject(proto, "10.0.0.1:7", ingest.Faultf(ingest.BadSyntax, "no line"), []byte(text), 1)
		}
		refuse("first")
		refuse("second")
		p.Close()
		logged := log.String()
		if got := strings.Count(logged, "count="); got == 0 {
			t.Errorf("logged %q", logged)
		}
		refuse("third")
		time.Sleep(time.Hour)
		if latest, total := p.Rejected(); total != 3 || len(latest) != 3 || latest[0].Input != "third" {
			t.Errorf("%d refused, kept are %+v", total, latest)
		}
		if got := log.String(); got != logged {
			t.Errorf("logged after the end: %q", got[len(logged):])
		}
	})
}

// Close waits for a report that the timer has begun to write: the process may end after it, and
// the line with it.
func TestCloseWaitsForAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := heldLog{Handler: slog.DiscardHandler, begun: make(chan struct{}), goOn: make(chan struct{})}
		p := ingest.New(&ingesttest.Recorder{}, ingest.DefaultConfig(), ingest.Options{Registerer: prometheus.NewRegistry(), Logger: slog.New(log)})
		proto := p.Protocol("test")
		refuse := func() { p.Reject(proto, "10.0.0.1:7", ingest.Faultf(ingest.BadSyntax, "no line"), []byte("x"), 1) }
		go func() { <-log.begun; log.goOn <- struct{}{} }()
		refuse() // is reported at once
		refuse() // is reported by the timer
		<-log.begun
		closed := make(chan struct{})
		go func() { defer close(closed); p.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed, although a report is being written")
		default:
		}
		log.goOn <- struct{}{}
		<-closed
	})
}

// A heldLog announces each line, and writes it when it is told to.
type heldLog struct {
	slog.Handler
	begun, goOn chan struct{}
}

func (heldLog) Enabled(context.Context, slog.Level) bool { return true }

func (h heldLog) Handle(context.Context, slog.Record) error {
	h.begun <- struct{}{}
	<-h.goOn
	return nil
}

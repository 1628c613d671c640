package kairos

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/ingest/telnet"
	"varve/internal/query"
	"varve/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testServer is an API over an empty store, with ingest beside it.
type testServer struct {
	url, telnet string
	client      *http.Client
	store       store.Store
	engine      *query.Engine
}

// testVersion is the text of /api/v1/version and of telnet's version in tests.
const testVersion = "KairosDB 1.3.0-1.20210808223203"

func startServer(t testing.TB) *testServer {
	return startServerWith(t, openEmbedded(t), query.DefaultConfig(), DefaultConfig())
}

// startServerWith serves a store until the test ends, and closes it.
func startServerWith(t testing.TB, st store.Store, qc query.Config, kc Config) *testServer {
	registry := prometheus.NewRegistry()
	s := &testServer{store: st, engine: query.New(st, qc, registry, time.Now)}
	p := ingest.New(st, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
	mux := http.NewServeMux()
	for _, r := range append(New(st, s.engine, kc, testVersion, time.Now).Routes(), kairosjson.New(p, nil).Routes()...) {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	server := httptest.NewServer(mux)
	s.url = server.URL
	s.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	stopTelnet := s.startTelnet(t, p, registry)
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		server.Close()
		stopTelnet()
		st.Close()
	})
	return s
}

func (s *testServer) startTelnet(t testing.TB, p *ingest.Pipeline, r prometheus.Registerer) (stop func()) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.telnet = ln.Addr().String()
	server := telnet.NewServer(p, telnet.DefaultConfig(), telnet.Options{Registerer: r, Version: testVersion})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(ctx, ln)
	}()
	return func() { cancel(); <-ended }
}

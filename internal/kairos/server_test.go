package kairos

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/ingest/telnet"
	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/rollup"
	"varve/internal/server"
	"varve/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testServer is an API over an empty store, with ingest.
type testServer struct {
	url, telnet string
	client      *http.Client
	store       store.Store
	engine      *agg.Engine
	api         *API
}

// testVersion is the text of /api/v1/version and of telnet's version in tests.
const testVersion = "KairosDB 1.3.0-1.20210808223203"

func startServer(t testing.TB) *testServer {
	return startServerWith(t, openEmbedded(t), query.DefaultConfig(), DefaultConfig())
}

// startServerWith serves a store until the test ends, and closes it.
func startServerWith(t testing.TB, st store.Store, qc query.Config, kc Config) *testServer {
	registry := prometheus.NewRegistry()
	s := &testServer{store: st}
	p := ingest.New(st, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
	s.engine = agg.New(query.New(st, qc, registry, time.Now), NewSaver(p))
	api := New(st, s.engine, kc, testVersion, time.Now)
	s.api = api
	t.Cleanup(func() { st.Close() })
	rollups := rollup.New(rollup.Options{Store: st, Engine: s.engine, Pipeline: p, Parser: api, Config: rollup.DefaultConfig(), Registerer: registry})
	s.serve(t, slices.Concat(api.Routes(), kairosjson.New(p, nil).Routes(), rollups.Routes()), p, registry)
	return s
}

// serve runs a server until the test ends.
func (s *testServer) serve(t testing.TB, routes []httpapi.Route, p *ingest.Pipeline, registry *prometheus.Registry) {
	c := server.DefaultConfig()
	c.HTTPAddr, c.CloseGrace = "127.0.0.1:0", 0
	srv := server.New(server.Options{
		Config: c, Log: slog.New(slog.DiscardHandler), Registry: registry,
		Front: server.Front{Routes: routes, Checks: []server.Check{server.AliveCheck(), server.QueryCheck(s.store)}},
	})
	if err := srv.Listen(); err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + srv.Addr("http")
	stopTelnet := s.startTelnet(t, p, registry)
	s.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		stopTelnet()
	})
}

// startTelnet is not left to the server, which waits for senders when it stops.
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

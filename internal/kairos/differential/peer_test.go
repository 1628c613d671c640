package differential

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/embedded"
	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/originals"
	"varve/internal/query"
	"varve/internal/server"
	"varve/internal/store"
)

// A peer is one side of the comparison.
type peer struct {
	url    string
	client *http.Client
}

// stand is the prefix of all names that reach the stores. Each load of points replaces
// it with another text of the same length, and answers get it back.
const stand = "dx000000"

// A question is one request.
type question struct {
	Path string         // below /api/v1/
	Body map[string]any // nil: GET
}

// ask sends a question about the points that were loaded under a name.
func (p *peer) ask(q question, name string) (answer, error) {
	method, body := http.MethodGet, ""
	if q.Body != nil {
		method, body = http.MethodPost, encode(q.Body)
	}
	return p.send(method, q.Path, body, name)
}

func (p *peer) send(method, path, body, name string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, p.url+"/api/v1/"+strings.ReplaceAll(path, stand, name),
		strings.NewReader(strings.ReplaceAll(body, stand, name)))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: response.StatusCode, text: strings.ReplaceAll(string(raw), name, stand)}
	if len(raw) == 0 {
		return a, nil
	}
	if a.body, err = decode([]byte(a.text)); err != nil {
		return a, fmt.Errorf("%s %s: the answer is no JSON: %w: %.200q", method, path, err, a.text)
	}
	return a, nil
}

// A pair is both sides. Each has all points, or they share one keyspace.
type pair struct {
	t      *testing.T
	varve  *peer
	kairos *peer
	model  *peer           // a Varve with all points, if the two share a keyspace; else nil
	store  *embedded.Store // Varve's, or the model's
	loads  int

	tagIndexed bool // KairosDB looks for series in its own index of tags
}

func startPair(t *testing.T) *pair {
	address := originals.Cassandra(t)
	k := originals.StartKairosDB(t, originals.KairosDBOptions{Cassandra: []string{address}})
	p := &pair{t: t, store: openEmbedded(t)}
	client := newClient(t)
	p.kairos = &peer{url: k.URL, client: client}
	p.varve = &peer{url: startVarve(t, p.store), client: client}
	return p
}

func newClient(t testing.TB) *http.Client {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// openEmbedded opens an embedded store in a folder of the test.
func openEmbedded(t testing.TB) *embedded.Store {
	st, err := embedded.Open(vfs.Default, t.TempDir(), embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// startVarve serves Varve's real handlers over a store, and closes it with the
// test.
func startVarve(t testing.TB, st store.Store) string {
	registry := prometheus.NewRegistry()
	pipeline := ingest.New(st, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
	engine := agg.New(query.New(st, query.DefaultConfig(), registry, time.Now), kairos.NewSaver(pipeline))
	api := kairos.New(st, engine, kairos.DefaultConfig(), "KairosDB 1.3.0-1.20210808223203", time.Now)

	c := server.DefaultConfig()
	c.HTTPAddr, c.CloseGrace = "127.0.0.1:0", 0
	srv := server.New(server.Options{
		Config: c, Log: slog.New(slog.DiscardHandler), Registry: registry,
		Front: server.Front{
			Routes: slices.Concat(api.Routes(), kairosjson.New(pipeline, nil).Routes()),
			Checks: []server.Check{server.AliveCheck(), server.QueryCheck(st)},
		},
	})
	if err := srv.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + srv.Addr("http")
}

// both sends a question to both sides at once.
func (p *pair) both(q question, name string) (varve, kairos answer, err error) {
	return p.each(q, q, name)
}

// each sends each side a question of its own, at once.
func (p *pair) each(mine, theirs question, name string) (varve, kairos answer, err error) {
	type said struct {
		answer
		err error
	}
	other := make(chan said, 1)
	go func() {
		a, err := p.kairos.ask(theirs, name)
		other <- said{a, err}
	}()
	varve, err = p.varve.ask(mine, name)
	k := <-other
	if err == nil {
		err = k.err
	}
	return varve, k.answer, err
}

// namesOf asks for the metrics whose names begin with a text.
func namesOf(prefix string) question {
	return question{Path: "metricnames?prefix=" + url.QueryEscape(prefix)}
}

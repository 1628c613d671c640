package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/config"
	"varve/internal/httpapi"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/server"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// An asking store notes on whose behalf it is used.
type asking struct {
	store.Store
	mu    sync.Mutex
	asked map[string][]principal.Principal // by what was done
}

func (a *asking) note(ctx context.Context, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := principal.Of(ctx); !slices.Contains(a.asked[what], p) {
		a.asked[what] = append(a.asked[what], p)
	}
}

func (a *asking) Create(ctx context.Context, s model.Series) (store.Ref, error) {
	a.note(ctx, "create")
	return a.Store.Create(ctx, s)
}

func (a *asking) Append(ctx context.Context, b *store.Batch) error {
	a.note(ctx, "append")
	return a.Store.Append(ctx, b)
}

func (a *asking) Delete(ctx context.Context, deletions ...store.Deletion) error {
	a.note(ctx, "delete")
	return a.Store.Delete(ctx, deletions...)
}

func (a *asking) Set(ctx context.Context, service, serviceKey, key, value string) error {
	a.note(ctx, "set")
	return a.Store.Set(ctx, service, serviceKey, key, value)
}

func (a *asking) View(ctx context.Context) (store.View, error) {
	a.note(ctx, "view")
	v, err := a.Store.View(ctx)
	return &askingView{v, a}, err
}

type askingView struct {
	store.View
	store *asking
}

func (v *askingView) Select(ctx context.Context, s store.Selection) iter.Seq2[store.Series, error] {
	v.store.note(ctx, "select")
	return v.View.Select(ctx, s)
}

func (v *askingView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	v.store.note(ctx, "read")
	return v.View.Read(ctx, s, o)
}

func (v *askingView) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	v.store.note(ctx, "names")
	return v.View.Names(ctx, q)
}

// TestPrincipalReachesTheStore sends points, questions and deletes over every protocol.
// The store finds in each context on whose behalf it is asked.
func TestPrincipalReachesTheStore(t *testing.T) {
	s := &asking{Store: reference.New(nil), asked: map[string][]principal.Principal{}}
	defer s.Close()
	c := config.Default()
	c.DataDir, c.Server.HTTPAddr, c.Server.TelnetAddr = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0"
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	h := newInstance(principal.Default, c, &backend{Store: s, routes: func(*query.Engine) []httpapi.Route { return nil }}, nil, retention.NewShelf(&retention.Book{}), registry, log)
	front := instances{h}.front(c, registry)
	srv := server.New(server.Options{Config: c.Server, Log: log, Registry: registry, Front: front})
	defer runServer(t, srv)()

	line, err := net.Dial("tcp", srv.Addr("telnet"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(line, "put by.telnet %d 1 h=a\nversion\n", time.Now().Unix())
	if _, err := line.Read(make([]byte, 1)); err != nil { // it is stored
		t.Fatal(err)
	}
	line.Close()
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/api/v1/datapoints", `{"name":"m","tags":{"h":"a"},"datapoints":[[1,2]]}`},
		{"POST", "/api/put", `{"metric":"n","timestamp":1,"value":1,"tags":{"h":"a"}}`},
		{"POST", "/api/v1/import", `{"name":"o","tags":{"h":"a"},"datapoints":[[1,2]]}`},
		{"POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"m"}]}`},
		{"POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"m","aggregators":[{"name":"save_as","metric_name":"saved"}]}]}`},
		{"POST", "/api/v1/datapoints/query/tags", `{"start_absolute":0,"metrics":[{"name":"m"}]}`},
		{"GET", "/api/v1/export?metric=m", ""},
		{"GET", "/api/v1/metricnames", ""},
		{"POST", "/api/v1/metadata/a/b/c", "text"},
		{"POST", "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"m"}]}`},
		{"DELETE", "/api/v1/metric/n", ""},
	} {
		request, err := http.NewRequest(r.method, "http://"+srv.Addr("http")+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode >= 300 {
			t.Errorf("%s %s: %s", r.method, r.path, response.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []principal.Principal{principal.Everyone}
	for _, what := range []string{"create", "append", "delete", "set", "view", "select", "read", "names"} {
		if got := s.asked[what]; !slices.Equal(got, want) {
			t.Errorf("%s on behalf of %+v, want %+v", what, got, want)
		}
	}
}

package graphite

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/query"
)

// A stepwise client calls a function at each write to it.
type stepwise struct {
	*httptest.ResponseRecorder
	at func()
}

func (w stepwise) Write(p []byte) (int, error) {
	w.at()
	return w.ResponseRecorder.Write(p)
}

// An answer is encoded while its query has a slot, also when the client was slow in
// between and another query got the slot: without that, the queries of one tenant would
// encode on all processors at once.
func TestEncodingHasAPlace(t *testing.T) {
	limits := query.DefaultConfig()
	limits.MaxConcurrent = 1
	s := open(t, DefaultConfig(), limits)
	var writes int
	var ended atomic.Bool
	at := func() {
		switch writes++; writes {
		case 1: // as long as it takes until another query has the slot
			other, err := s.queries.Begin(t.Context(), query.Request{})
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				for s.queries.Queued() == 0 {
					time.Sleep(time.Millisecond)
				}
				ended.Store(true)
				other.Close(nil)
			}()
		case 2:
			if !ended.Load() {
				t.Error("the answer is encoded while another query has the only slot")
			}
		}
	}
	r := httptest.NewRequest(http.MethodGet, `/render?format=json&from=-1h&target=timeFunction("a",1)&target=timeFunction("b",1)`, nil)
	w := stepwise{httptest.NewRecorder(), at}
	s.mux.ServeHTTP(w, r)
	if w.Code != http.StatusOK || writes < 2 || !ended.Load() {
		t.Errorf("status %d after %d writes: %.200s", w.Code, writes, w.Body)
	}
}

// A query begins while functions of another one compute for hours, although there is one
// slot only.
func TestFunctionsYieldTheirSlot(t *testing.T) {
	limits := query.DefaultConfig()
	limits.MaxConcurrent = 1
	s := open(t, DefaultConfig(), limits)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		target := url.QueryEscape(`movingMedian(timeFunction("a",1),200000)`)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/render?format=json&from=-2d&target="+target, nil)
		s.mux.ServeHTTP(httptest.NewRecorder(), r)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	for len(s.queries.Running()) == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		other, err := s.queries.Begin(t.Context(), query.Request{})
		if err != nil {
			t.Fatal(err)
		}
		other.Close(nil)
	}
	select {
	case <-ended:
		t.Error("the long query has ended")
	default:
	}
}

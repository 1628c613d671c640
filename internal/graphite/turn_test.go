package graphite

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/graphite/function"
	"varve/internal/graphite/graphitetest"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
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

// An answer is encoded only while its query has a slot, even if the client was slow and
// another query got the slot in between. Otherwise the queries of one tenant could encode on
// all processors at once.
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

// A query begins while functions of another one compute for seconds, although there is only
// one slot. One median alone is done in 0.3 s, in which a busy machine may not run the others.
func TestFunctionsYieldTheirSlot(t *testing.T) {
	s := oneSlot(t)
	const medians = 4
	target := strings.Repeat("movingMedian(", medians) + `timeFunction("a",1)` + strings.Repeat(",200000)", medians)
	s.yields("/render?format=json&from=-2d&target=" + url.QueryEscape(target))
}

// A query begins while another one compares values of a tag with costly expressions.
func TestSelectionsYieldTheirSlot(t *testing.T) {
	s := oneSlot(t)
	var b store.Batch
	b.Reset(s.store.Epoch())
	for i := range 5000 {
		tags := model.MustTags("host", strings.Repeat("a", 200)+strconv.Itoa(i))
		ref, err := s.store.Create(t.Context(), model.Series{Metric: "m", Tags: tags, Type: model.TypeDouble})
		if err != nil {
			t.Fatal(err)
		}
		b.AddDouble(ref, graphitetest.Clock.UnixMilli(), 1, 0)
	}
	if err := s.store.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"filter": {"(a?b?){500}[c-z]"}}
	for i := range 100 {
		form.Add("expr", fmt.Sprintf("host=~(a?b?){500}[c-z]%d?", i))
	}
	t.Run("expressions", func(t *testing.T) { s.yields("/tags/findSeries?" + form.Encode()) })
	t.Run("filter", func(t *testing.T) { s.yields("/tags/host?" + form.Encode()) })
}

// A series with millions of points is read in pieces, between which other queries have their turn.
// No point is lost.
func TestLongSeriesAreReadInPieces(t *testing.T) {
	s := oneSlot(t)
	const points = 4*windowSteps + 7
	end := graphitetest.Clock.Unix() / 60 * 60
	ref, err := s.store.Create(t.Context(), model.Series{Metric: "m", Type: model.TypeDouble})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.store.Epoch())
	for i := int64(0); i < points; i += 1000 {
		b.AddDouble(ref, (end-(points-i)*60)*1000, float64(i), 0)
	}
	if err := s.store.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	session, err := s.queries.Begin(t.Context(), query.Request{})
	if err != nil {
		t.Fatal(err)
	}
	lease := session.Lease()
	numbers, err := (&source{session: session}).numbers("m", nil, &lease)
	if err != nil || len(numbers) != 1 {
		t.Fatalf("%v, %v", numbers, err)
	}
	other := make(chan error)
	go func() {
		next, err := s.queries.Begin(t.Context(), query.Request{})
		if err == nil {
			next.Close(nil)
		}
		other <- err
	}()
	for !session.Due() {
		time.Sleep(time.Millisecond)
	}
	g := grid{start: end - points*60, step: 60, finest: 60, n: points}
	book, err := DefaultConfig().Book(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	policy := book.Of(retention.SeriesOf("m", model.Tags{}))
	one := &read{number: numbers[0], name: "m", policy: policy, fetched: function.Fetched{Values: make([]float64, points)}}
	r := &reader{session: session, lease: &lease, samples: session.GridFold(&lease)}
	calls := 0
	for ; one.at < points; calls++ {
		if err := r.series(&g, one); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range one.fetched.Values {
		if i%1000 == 0 && v != float64(i) || i%1000 != 0 && v == v {
			t.Fatalf("point %d is %v", i, v)
		}
	}
	if calls != 5 {
		t.Errorf("it was read in %d pieces, want 5", calls)
	}
	lease.Release()
	session.Close(nil)
	if err := <-other; err != nil {
		t.Error(err)
	}
}

// oneSlot is a site with one slot for queries.
func oneSlot(t *testing.T) *site {
	limits := query.DefaultConfig()
	limits.MaxConcurrent = 1
	limits.MaxWait = time.Minute // a step takes seconds under the race detector on a busy machine
	return open(t, DefaultConfig(), limits)
}

// yields checks that queries begin while a long request is answered.
func (s *site) yields(path string) {
	t := s.T
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var answer *httptest.ResponseRecorder // set once the request has ended
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		answer = httptest.NewRecorder()
		s.mux.ServeHTTP(answer, r)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	for len(s.queries.Running()) == 0 {
		select {
		case <-ended:
			t.Fatalf("the long query has ended before it was seen: %d %.300s", answer.Code, answer.Body)
		case <-time.After(time.Millisecond):
		}
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
		t.Errorf("the long query has ended: %d %.300s", answer.Code, answer.Body)
	default:
	}
}

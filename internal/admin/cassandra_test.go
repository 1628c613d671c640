package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"varve/internal/store"
)

// TestFlushes: at most maxFlushes requests wait for a flush, and their places are free
// again when they end.
func TestFlushes(t *testing.T) {
	began := make(chan struct{})
	handler := flush(func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done()
		return errors.New("the client has left")
	}, nil)
	send := func(ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/admin/flush", nil))
		return w
	}
	for range 2 {
		ctx, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range maxFlushes {
			waiting.Go(func() { send(ctx) })
			<-began
		}
		if w := send(t.Context()); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "32 requests already wait") {
			t.Errorf("one more: %d %s", w.Code, w.Body)
		}
		leave()
		waiting.Wait()
	}
}

// TestFailures: errors of an operator's requests are answered like those of others.
func TestFailures(t *testing.T) {
	limit := &store.LimitError{Limit: "l", Max: 1}
	for _, tc := range []struct {
		err    error
		status int
		after  string
	}{
		{store.ErrClosed, 503, "1"},
		{&store.UnavailableError{Reason: "away"}, 503, "1"},
		{&store.LimitError{Limit: "l", Max: 1, Busy: true}, 503, "1"},
		{limit, 400, ""},
		{errors.New("a bug"), 500, ""},
	} {
		for name, handler := range map[string]http.HandlerFunc{
			"flush":  flush(func(context.Context) error { return tc.err }, nil),
			"answer": func(w http.ResponseWriter, r *http.Request) { answer(w, r, nil, nil, tc.err) },
		} {
			w := httptest.NewRecorder()
			handler(w, httptest.NewRequest(http.MethodPost, "/admin/flush", nil))
			if after := w.Header().Get("Retry-After"); w.Code != tc.status || after != tc.after {
				t.Errorf("%s, %v: %d, Retry-After %q", name, tc.err, w.Code, after)
			}
		}
	}
}

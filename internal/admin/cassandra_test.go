package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestFlushes: at most maxFlushes requests wait for a flush, and their places are free
// again when they end.
func TestFlushes(t *testing.T) {
	began := make(chan struct{})
	handler := flush(func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done()
		return errors.New("the client has left")
	})
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
		if w := send(t.Context()); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "32 requests already wait") {
			t.Errorf("one more: %d %s", w.Code, w.Body)
		}
		leave()
		waiting.Wait()
	}
}

package kairos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"varve/internal/query"
	"varve/internal/store"
)

func TestStatusOf(t *testing.T) {
	limit := &store.LimitError{Limit: "query.max_series", Max: 1, Need: 2}
	tests := []struct {
		err  error
		want int
	}{
		{badRequest("x"), 400},
		{limit, 400},
		{&query.BusyError{Limit: limit}, 503},
		{&store.InputError{Reason: "x"}, 400},
		{&store.UnavailableError{Reason: "the disk is full"}, 503},
		{store.ErrClosed, 503},
		{&store.CorruptionError{File: "f"}, 500},
		{query.ErrCancelled, 400},
		{context.Canceled, 503},
		{&query.ComputeError{Reason: "x"}, 500},
		{&notANumberError{"x"}, 500},
		{errors.New("x"), 500},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/api/v1/metricnames", nil)
		status := writeFailure(w, r, fmt.Errorf("wrapped: %w", tt.err))
		if status != tt.want || w.Code != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, w.Code, tt.want)
		}
		if !strings.HasPrefix(w.Body.String(), `{"errors":["`) || (w.Header().Get("Retry-After") != "") != (status == http.StatusServiceUnavailable) {
			t.Errorf("%v: body %q, Retry-After %q", tt.err, w.Body, w.Header().Get("Retry-After"))
		}
	}
}

// What concerns the server and not the client's request is in the log too.
func TestReasonsAreLogged(t *testing.T) {
	var log bytes.Buffer
	a := New(nil, nil, DefaultConfig(), "", nil)
	a.Log = slog.New(slog.NewTextHandler(&log, nil))
	r := httptest.NewRequest("GET", "/api/v1/metricnames", nil)
	a.fail(httptest.NewRecorder(), r, &store.UnavailableError{Reason: "the disk is full"})
	a.fail(httptest.NewRecorder(), r, badRequest("not worth a line"))
	if !strings.Contains(log.String(), "the disk is full") || strings.Contains(log.String(), "not worth") {
		t.Error(log.String())
	}
}

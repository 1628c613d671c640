package kairos

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/store"
)

// A fault is what is wrong with a request; each message goes into the answer.
type fault struct{ messages []string }

func (f *fault) Error() string { return strings.Join(f.messages, "; ") }

func badRequest(messages ...string) error { return &fault{messages} }

// A notANumberError is a NaN or an infinity in an answer: JSON has none.
type notANumberError struct{ text string }

func (e *notANumberError) Error() string { return e.text }

// writeFailure answers a request that failed before anything was sent. This is
// the one place that turns errors into statuses.
func writeFailure(w http.ResponseWriter, err error) {
	var (
		bad         *fault
		busy        *query.BusyError
		limit       *store.LimitError
		input       *store.InputError
		unavailable *store.UnavailableError
	)
	switch {
	case errors.As(err, &bad):
		httpapi.WriteErrors(w, http.StatusBadRequest, bad.messages...)
	case errors.As(err, &busy), errors.As(err, &unavailable), errors.Is(err, store.ErrClosed):
		httpapi.WriteBusy(w)
	case errors.As(err, &limit):
		httpapi.WriteErrors(w, http.StatusBadRequest, limit.Error())
	case errors.As(err, &input):
		httpapi.WriteErrors(w, http.StatusBadRequest, input.Error())
	case errors.Is(err, query.ErrCancelled):
		httpapi.WriteErrors(w, http.StatusBadRequest, query.ErrCancelled.Error())
	case errors.Is(err, context.Canceled):
		httpapi.WriteBusy(w) // the client has gone, or the server is stopping
	default:
		writeServerError(w, err)
	}
}

// writeServerError answers 500 with the headers of a normal answer, as KairosDB
// does.
func writeServerError(w http.ResponseWriter, err error) {
	body, mustErr := json.Marshal(map[string][]string{"errors": {err.Error()}})
	if mustErr != nil {
		panic(mustErr) // strings always marshal
	}
	httpapi.SetHeaders(w.Header())
	w.WriteHeader(http.StatusInternalServerError)
	w.Write(body)
}

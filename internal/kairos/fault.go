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

// writeFailure answers a request that failed before anything was sent, and
// returns the status. This is the one place that turns errors into statuses.
func writeFailure(w http.ResponseWriter, r *http.Request, err error) int {
	status, messages := statusOf(err)
	switch status {
	case http.StatusServiceUnavailable:
		httpapi.WriteUnavailable(w, r, err.Error())
	case http.StatusBadRequest, http.StatusForbidden:
		httpapi.WriteErrors(w, status, messages...)
	default:
		writeServerError(w, err)
	}
	return status
}

func statusOf(err error) (status int, messages []string) {
	var (
		bad         *fault
		forbidden   *forbiddenError
		busy        *query.BusyError
		limit       *store.LimitError
		input       *store.InputError
		unavailable *store.UnavailableError
	)
	switch {
	case errors.As(err, &bad):
		return http.StatusBadRequest, bad.messages
	case errors.As(err, &forbidden):
		return http.StatusForbidden, []string{forbidden.Error()}
	case errors.As(err, &busy), errors.As(err, &unavailable), errors.Is(err, store.ErrClosed):
		return http.StatusServiceUnavailable, nil
	case errors.As(err, &limit):
		return http.StatusBadRequest, []string{limit.Error()}
	case errors.As(err, &input):
		return http.StatusBadRequest, []string{input.Error()}
	case errors.Is(err, query.ErrCancelled):
		return http.StatusBadRequest, []string{query.ErrCancelled.Error()}
	case errors.Is(err, context.Canceled): // the client has gone, or the server is stopping
		return http.StatusServiceUnavailable, nil
	}
	return http.StatusInternalServerError, nil
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

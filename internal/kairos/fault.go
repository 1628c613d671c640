package kairos

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/store"
)

// A fault is an error in a request. Each message goes into the answer.
//
// Where KairosDB answers 400, the messages are KairosDB's: clients compare them, and
// the golden cases pin them. Many do not name the member, so its path goes into a
// header. Where KairosDB answers 500, or with a meaningless text, the path is in the
// message too.
type fault struct {
	messages []string
	at       *value // the value that is wrong, nil if not known
	must     string // what at must be, if messages do not say so
	path     string // to at, set by locate
}

func (f *fault) Error() string { return strings.Join(f.messages, "; ") }

func badRequest(messages ...string) error { return &fault{messages: messages} }

// fault returns a fault in v.
func (v *value) fault(messages ...string) error { return &fault{messages: messages, at: v} }

// mustBe returns a fault whose text names neither the value nor what it must be. locate
// adds both.
func (v *value) mustBe(text, must string) error {
	return &fault{messages: []string{text}, at: v, must: must}
}

// locate sets the path of a fault in the request top.
func locate(top *value, err error) error {
	var f *fault
	if !errors.As(err, &f) || f.at == nil || f.path != "" {
		return err
	}
	f.path = top.pathTo(f.at)
	if f.must != "" && f.path != "" {
		separator := ": "
		if strings.HasSuffix(f.messages[0], ".") {
			separator = " "
		}
		f.messages[0] += separator + f.path + " must be " + f.must
	}
	return err
}

// A notANumberError is a NaN or an infinity in an answer: JSON has none.
type notANumberError struct{ text string }

func (e *notANumberError) Error() string { return e.text }

// writeFailure answers a request that failed before anything was sent, and returns the
// status. It alone maps errors to statuses.
func writeFailure(w http.ResponseWriter, r *http.Request, err error) int {
	status, messages := statusOf(err)
	if f, ok := errors.AsType[*fault](err); ok && f.path != "" {
		w.Header().Set(httpapi.ErrorPath, f.path)
	}
	switch status {
	case http.StatusServiceUnavailable:
		httpapi.AskLater(w.Header(), store.RetryIn(err))
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
		foreign     *principal.ForbiddenError
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
	case errors.As(err, &foreign):
		return http.StatusForbidden, []string{foreign.Error()}
	case errors.As(err, &busy), errors.As(err, &unavailable), errors.Is(err, store.ErrClosed):
		return http.StatusServiceUnavailable, nil
	case errors.As(err, &limit):
		return http.StatusBadRequest, []string{limit.Error()}
	case errors.As(err, &input):
		return http.StatusBadRequest, []string{input.Error()}
	case errors.Is(err, query.ErrCancelled):
		return http.StatusBadRequest, []string{query.ErrCancelled.Error()}
	case errors.Is(err, context.Canceled): // the client is gone, or the server is stopping
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

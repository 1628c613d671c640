// Package failure maps errors to answers, the same for all HTTP front ends: which status an
// error has, when the client should retry, what it is told, and what is logged. A front end
// chooses only the form of the body.
//
//	400  the request is at fault, has reached a limit, or was killed
//	403  the sender may not do that
//	404, 409, 410  of timelines
//	503  store.Passes, or overload: the same request may succeed later
//	500  anything else: damaged data, points that a query cannot compute with, a bug
//
// The errors of a front end that need another status are made by New, or have the method
// HTTPStatus.
package failure

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"varve/internal/clip"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/timeline"
)

// A Failure is how an error is answered.
type Failure struct {
	Status int
	Texts  []string      // for the client
	Wait   time.Duration // of a 503; 0 means that it is not known

	level slog.Level
	path  string // of the member of the request that is wrong; may be empty
}

// silent is the level of failures that are not logged: the client learns all there is.
const silent = slog.LevelDebug

// textBytes bounds the text of an error that may repeat parts of a request, also in the log.
const textBytes = 2000

// Of returns how an error is answered.
func Of(err error) Failure {
	f := Failure{Status: statusOf(err), Texts: textsOf(err), level: silent}
	if located, ok := errors.AsType[interface {
		error
		Path() string
	}](err); ok {
		f.path = located.Path()
	}
	switch {
	case errors.Is(err, context.Canceled): // the client has left, or the server is stopping
	case f.Status == http.StatusServiceUnavailable, errors.As(err, new(*query.ComputeError)):
		f.level = slog.LevelWarn
	case f.Status == http.StatusInternalServerError:
		f.level = slog.LevelError
	}
	if f.Wait = store.RetryIn(err); f.Wait == 0 {
		if stated, ok := errors.AsType[*statedError](err); ok {
			f.Wait = stated.wait
		}
	}
	return f
}

func statusOf(err error) int {
	if s, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](err); ok {
		return s.HTTPStatus()
	}
	switch {
	case errors.As(err, new(*principal.ForbiddenError)):
		return http.StatusForbidden
	case store.Passes(err): // before what they wrap
		return http.StatusServiceUnavailable
	case errors.Is(err, timeline.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, timeline.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, timeline.ErrBehind):
		return http.StatusGone
	case errors.As(err, new(*store.LimitError)), errors.As(err, new(*store.InputError)), errors.Is(err, query.ErrCancelled):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func textsOf(err error) []string {
	if s, ok := errors.AsType[interface {
		error
		Messages() []string
	}](err); ok {
		return s.Messages() // which quote parts of the request truncated, and may list all time zones
	}
	switch {
	case errors.As(err, new(*store.UnavailableError)): // says more than what it wraps
	case errors.Is(err, context.Canceled):
		return []string{"the client has left, or the server is stopping"}
	case errors.Is(err, context.DeadlineExceeded):
		return []string{"the store did not answer in time"}
	}
	return []string{clip.Text(err.Error(), textBytes)}
}

// New returns an error with a status and a text.
func New(status int, text string) error { return &statedError{status: status, text: text} }

// Later returns the error of a request that may succeed after a wait; 0 means that it is not known
// how long.
func Later(wait time.Duration, text string) error {
	return &statedError{status: http.StatusServiceUnavailable, text: text, wait: wait}
}

type statedError struct {
	status int
	text   string
	wait   time.Duration
}

func (e *statedError) Error() string { return e.text }

// HTTPStatus is the status of the answer.
func (e *statedError) HTTPStatus() int { return e.status }

// A Form writes an error with one text or more as the clients of a front end expect it. Headers
// that do not depend on the form are set already. [httpapi.WriteErrors] is that of KairosDB and of
// Varve's own requests.
type Form func(w http.ResponseWriter, status int, texts ...string)

// Answer answers a request that failed, and logs what the client cannot know. If a part of the
// answer was sent, see Sent, Answer ends the connection. log may be nil.
func Answer(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error, form Form) {
	if errors.As(err, new(*sentError)) {
		Abort(r, log, err)
	}
	f := Of(err)
	if f.level > silent {
		note(log, f.level, "request failed", r, err, "status", f.Status)
	}
	if f.path != "" {
		w.Header().Set(httpapi.ErrorPath, f.path)
	}
	if f.Status == http.StatusServiceUnavailable {
		httpapi.AskLater(w.Header(), f.Wait)
	}
	if httpapi.OmitsBody(r, f.Status) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		httpapi.WriteEmpty(w, f.Status)
		return
	}
	form(w, f.Status, f.Texts...)
}

// A sentError is an error that occurred after the answer had begun.
type sentError struct{ error }

func (e *sentError) Unwrap() error { return e.error }

// Sent marks an error that occurred after the answer had begun. Sent of nil is nil.
func Sent(err error) error {
	if err == nil {
		return nil
	}
	return &sentError{err}
}

// Abort cuts the connection, so that the client does not mistake a part of an answer for the whole.
func Abort(r *http.Request, log *slog.Logger, err error) {
	if !errors.Is(err, context.Canceled) {
		note(log, slog.LevelWarn, "answer aborted", r, err)
	}
	panic(http.ErrAbortHandler)
}

// shownPath is how many bytes of a path the log shows.
const shownPath = 256

func note(log *slog.Logger, level slog.Level, message string, r *http.Request, err error, more ...any) {
	if log != nil {
		log.Log(r.Context(), level, message, append([]any{"path", clip.Text(r.URL.Path, shownPath), "client", r.RemoteAddr, "error", clip.Text(err.Error(), textBytes)}, more...)...)
	}
}

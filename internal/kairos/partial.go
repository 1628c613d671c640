package kairos

import (
	"errors"
	"net/http"

	"varve/internal/store"
)

// partialHeader marks an incomplete answer.
const partialHeader = "X-Varve-Partial"

// wantsPartial reads the parameter partial: whether a query that hits a limit, or data
// that cannot be read, gets an incomplete answer.
func wantsPartial(r *http.Request) (bool, error) {
	switch text := parameter(r, "partial"); text {
	case "", "deny":
		return false, nil
	case "allow":
		return true, nil
	default:
		return false, badRequest("partial " + clipName(text) + " must be either 'allow' or 'deny'")
	}
}

// mayMiss reports whether the answer may omit what err has prevented. The rest is
// correct nevertheless: a group ends where the error occurred, without buckets that
// were incomplete by then.
func (e *encoder) mayMiss(err error) bool {
	if err == nil || !e.partial {
		return false
	}
	passes := store.IsBusy(err) || store.RetryIn(err) > 0 // RetryIn: a limit of writing, which save_as met
	if passes || !errors.As(err, new(*store.LimitError)) && !errors.As(err, new(*store.CorruptionError)) && !errors.As(err, new(*store.UnavailableError)) {
		return false
	}
	if e.missing == nil {
		e.missing = err
	}
	return true
}

// encodeMissing writes the entry of a metric that cannot be read at all.
func (e *encoder) encodeMissing(err error) {
	e.buf = append(e.buf, `{"sample_size":0,"results":[]`...)
	e.encodeCause(err)
	e.buf = append(e.buf, '}')
}

// encodeCause writes the reason for missing data into a metric's entry.
func (e *encoder) encodeCause(err error) {
	e.buf = append(e.buf, `,"partial":`...)
	e.buf = appendText(e.buf, err.Error())
}

// encodePartial marks the whole answer as incomplete, and the header if it has not been
// sent.
func (e *encoder) encodePartial() {
	if e.missing == nil {
		return
	}
	e.buf = append(e.buf, `,"partial":true`...)
	e.w.Header().Set(partialHeader, "true")
}

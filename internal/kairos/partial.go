package kairos

import (
	"errors"
	"net/http"

	"varve/internal/query"
	"varve/internal/store"
)

// partialHeader marks an answer of which something is missing.
const partialHeader = "X-Varve-Partial"

// wantsPartial reads the parameter partial: whether a query that comes to a
// limit, or to data that cannot be read, is answered with what there is.
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

// mayMiss reports that err may leave a part of this answer out. All that is there
// is right nevertheless: a group ends where the error came, and buckets that were
// not complete by then are not in it.
func (e *encoder) mayMiss(err error) bool {
	if err == nil || !e.partial {
		return false
	}
	var (
		busy        *query.BusyError
		limit       *store.LimitError
		corruption  *store.CorruptionError
		unavailable *store.UnavailableError
	)
	if errors.As(err, &busy) || !errors.As(err, &limit) && !errors.As(err, &corruption) && !errors.As(err, &unavailable) {
		return false
	}
	if e.missing == nil {
		e.missing = err
	}
	return true
}

// encodeMissing writes the entry of a metric of which nothing can be read.
func (e *encoder) encodeMissing(err error) {
	e.buf = append(e.buf, `{"sample_size":0,"results":[]`...)
	e.encodeCause(err)
	e.buf = append(e.buf, '}')
}

// encodeCause says in a metric's entry why something is missing.
func (e *encoder) encodeCause(err error) {
	e.buf = append(e.buf, `,"partial":`...)
	e.buf = appendText(e.buf, err.Error())
}

// encodePartial says so of the whole answer, in the header too if that has not
// been sent.
func (e *encoder) encodePartial() {
	if e.missing == nil {
		return
	}
	e.buf = append(e.buf, `,"partial":true`...)
	e.w.Header().Set(partialHeader, "true")
}

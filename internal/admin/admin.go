package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"varve/internal/httpapi"
	"varve/internal/store"
)

// oneAtATime answers 409 while another request of a kind is running: otherwise requests
// would queue without a bound, and then repeat the same work.
func oneAtATime(what string, h http.HandlerFunc) http.HandlerFunc {
	var running sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		if !running.TryLock() {
			httpapi.WriteErrors(w, http.StatusConflict, "another "+what+" is running; try again when it is done")
			return
		}
		defer running.Unlock()
		h(w, r)
	}
}

// A foreignRoute is a route that only servers with another kind of store have.
type foreignRoute struct{ method, path, instead string }

// elsewhere answers 501 to routes of another kind of store, and names the replacement.
func elsewhere(list []foreignRoute, kind string) (routes []httpapi.Route) {
	for _, of := range list {
		routes = append(routes, httpapi.On(of.method, of.path, httpapi.Admin, func(w http.ResponseWriter, _ *http.Request) {
			httpapi.WriteErrors(w, http.StatusNotImplemented, of.path+" is for "+kind+"; "+of.instead)
		}))
	}
	return routes
}

// answer writes a report as JSON, or the error.
func answer(w http.ResponseWriter, report any, err error) {
	if err != nil {
		answerError(w, err)
		return
	}
	httpapi.SetHeaders(w.Header())
	json.NewEncoder(w).Encode(report) // an error means that the client is gone
}

func answerError(w http.ResponseWriter, err error) {
	input, busy, limit := (*store.InputError)(nil), (*store.UnavailableError)(nil), (*store.LimitError)(nil)
	switch {
	case errors.As(err, &input), errors.As(err, &limit):
		httpapi.WriteErrors(w, http.StatusBadRequest, err.Error())
	case errors.As(err, &busy):
		httpapi.WriteErrors(w, http.StatusServiceUnavailable, err.Error())
	default:
		httpapi.WriteErrors(w, http.StatusInternalServerError, err.Error())
	}
}

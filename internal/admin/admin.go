package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"

	"varve/internal/failure"
	"varve/internal/httpapi"
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

// turns are taken by one request of a kind at a time; others wait. Its capacity is 1.
type turns chan struct{}

func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turns) end() { <-t }

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

// listed returns a copy of list that is [] in JSON if it is empty, not null.
func listed[T any](list []T) []T { return append([]T{}, list...) }

// answer writes a report as JSON, 204 without one, or the error.
func answer(w http.ResponseWriter, r *http.Request, log *slog.Logger, report any, err error) {
	if err != nil {
		failure.Answer(w, r, log, err, httpapi.WriteErrors)
		return
	}
	httpapi.SetHeaders(w.Header())
	if report == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	json.NewEncoder(w).Encode(report) // an error means that the client is gone
}

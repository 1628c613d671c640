package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"

	"varve/internal/failure"
	"varve/internal/gate"
	"varve/internal/httpapi"
	"varve/internal/principal"
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

// inTurn calls f when it is the turn of the sender of r. It returns the error of f, or that of the
// context if the client leaves before.
func inTurn(g *gate.Gate, r *http.Request, f func() error) error {
	sender := principal.NetworkOf(r.RemoteAddr)
	if _, _, err := g.Enter(r.Context(), sender, 1); err != nil {
		return err
	}
	defer g.Leave(sender, 1)
	return f()
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

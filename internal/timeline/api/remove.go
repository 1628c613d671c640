package api

import (
	"net/http"

	"varve/internal/httpapi"
	"varve/internal/timeline"
)

// deleteEvents answers DELETE /api/v1/timelines/NAME/events.
func (a *API) deleteEvents(w http.ResponseWriter, r *http.Request) {
	name, err := nameOf(r)
	var d timeline.Deletion
	if err == nil {
		d, err = deletionOf(r)
	}
	if err == nil {
		err = a.engine.Delete(r.Context(), name, d)
	}
	a.done(w, r, err)
}

// deletionOf reads which events to delete. A request that names none is an error.
func deletionOf(r *http.Request) (d timeline.Deletion, err error) {
	p, err := parametersOf(r, "")
	if err != nil {
		return d, err
	}
	if d.From, d.Until, err = p.bounds(); err != nil {
		return d, err
	}
	id, given, err := p.text("id")
	if err == nil && !given && d.From == nil && d.Until == nil {
		err = badf("say which events to delete, by from, until or id; DELETE %s/NAME deletes the whole timeline", root)
	}
	d.ID = id
	return d, err
}

// deleteTimeline answers DELETE /api/v1/timelines/NAME.
func (a *API) deleteTimeline(w http.ResponseWriter, r *http.Request) {
	name, err := nameOf(r)
	if err == nil {
		err = a.engine.DeleteTimeline(r.Context(), name)
	}
	a.done(w, r, err)
}

func (a *API) done(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	httpapi.WriteEmpty(w, http.StatusNoContent)
}

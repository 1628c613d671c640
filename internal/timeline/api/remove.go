package api

import (
	"context"
	"net/http"

	"varve/internal/clip"
	"varve/internal/httpapi"
	"varve/internal/timeline"
	"varve/internal/work"
)

// deleteEvents answers DELETE /api/v1/timelines/NAME/events.
func (a *API) deleteEvents(w http.ResponseWriter, r *http.Request) error {
	name, err := nameOf(r)
	var d timeline.Deletion
	if err == nil {
		d, err = deletionOf(r)
	}
	if err != nil {
		return err
	}
	return a.delete(w, r, name, func() error { return a.engine.Delete(r.Context(), name, d) })
}

// delete calls f, which deletes events, once it has a slot, and answers. Deletes of events and of samples share
// the slots. Deletes of one timeline run one after the other: without slots, any number of them
// could wait.
func (a *API) delete(w http.ResponseWriter, r *http.Request, name string, f func() error) error {
	began, err := a.queries.Delete(r.Context(), r.RemoteAddr, func(context.Context) error { return work.Do("delete events", f) })
	if began {
		a.logDelete(r, name, err)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	httpapi.WriteEmpty(w, http.StatusNoContent)
	return nil
}

// logDelete logs which client deleted what. Nothing else records that.
func (a *API) logDelete(r *http.Request, name string, err error) {
	attrs := []any{"timeline", clip.Text(name, clipped), "selection", clip.Text(r.URL.RawQuery, clipped), "client", r.RemoteAddr}
	if err != nil {
		a.log.Info("delete of events was not completed; some may be deleted", append(attrs, "error", err)...)
		return
	}
	a.log.Info("events deleted", attrs...)
}

// deletionOf reads which events to delete. A request without a selection is an error.
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
func (a *API) deleteTimeline(w http.ResponseWriter, r *http.Request) error {
	name, err := nameOf(r)
	if err != nil {
		return err
	}
	return a.delete(w, r, name, func() error { return a.engine.DeleteTimeline(r.Context(), name) })
}

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
func (a *API) deleteEvents(w http.ResponseWriter, r *http.Request) {
	name, err := nameOf(r)
	var d timeline.Deletion
	if err == nil {
		d, err = deletionOf(r)
	}
	if err == nil {
		err = a.delete(r, name, func(ctx context.Context) error { return a.engine.Delete(ctx, name, d) })
	}
	a.done(w, r, err)
}

// delete calls f, which deletes events, once it has a slot. Deletes of events and of samples share
// the slots. Deletes of one timeline run one after the other: without slots, any number of them
// could wait.
func (a *API) delete(r *http.Request, name string, f func(context.Context) error) error {
	began, err := a.queries.Delete(r.Context(), func(context.Context) error {
		return work.Do("delete events", func() error { return f(r.Context()) })
	})
	if began {
		a.logDelete(r, name, err)
	}
	return err
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
func (a *API) deleteTimeline(w http.ResponseWriter, r *http.Request) {
	name, err := nameOf(r)
	if err == nil {
		err = a.delete(r, name, func(ctx context.Context) error { return a.engine.DeleteTimeline(ctx, name) })
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

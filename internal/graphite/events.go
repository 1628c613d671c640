package graphite

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"varve/internal/graphite/event"
	"varve/internal/graphite/timespec"
	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/store"
)

// eventRoutes lists the routes below /events.
func (a *API) eventRoutes(prefix string) []httpapi.Route {
	return []httpapi.Route{
		httpapi.On(http.MethodPost, prefix+"/events", httpapi.Write, a.addEvent),
		httpapi.On(http.MethodGet, prefix+"/events", httpapi.Read, a.withForm(a.listEvents)),
		httpapi.On(http.MethodGet, prefix+"/events/get_data", httpapi.Read, a.withForm(a.listEvents)),
		httpapi.On(http.MethodPost, prefix+"/events/get_data", httpapi.Read, a.withForm(a.listEvents)),
		httpapi.On(http.MethodGet, prefix+"/events/{id}", httpapi.Read, a.withForm(a.oneEvent)),
		httpapi.On(http.MethodDelete, prefix+"/events/{id}", httpapi.Delete, a.deleteEvent),
	}
}

// addEvent answers POST /events. It ignores the content type and parses the body as JSON.
func (a *API) addEvent(w http.ResponseWriter, r *http.Request) {
	if err := a.addPosted(r); err != nil {
		a.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// addPosted adds the event of a body, which counts as the text of a query until it is stored.
func (a *API) addPosted(r *http.Request) error {
	text, err := a.queries.ReadText(r.Context(), r.RemoteAddr, r.Body, query.TextLimit{
		Key: "bytes of an event", Max: int64(a.config.MaxEventSize), What: "add an event", Announced: r.ContentLength,
	})
	if err != nil {
		return err
	}
	defer text.Close()
	var e event.Event
	if err := text.Parse(func(text []byte) (err error) { e, err = event.Parse(text, a.now()); return err }); err != nil {
		return err
	}
	return a.events.Add(r.Context(), e)
}

// searchOf parses the parameters of a list of events.
func searchOf(form url.Values, now time.Time) (event.Search, error) {
	s := event.Search{}
	if form.Has("tags") {
		s.Tags = append([]string{}, strings.Fields(lastOf(form, "tags"))...)
	}
	switch lastOf(form, "set") {
	case "union":
		s.Set = event.Union
	case "intersection":
		s.Set = event.Intersection
	}
	zone := zoneOf(form)
	now = now.In(zone)
	s.Until = now.Unix()
	for name, to := range map[string]*int64{"from": &s.From, "until": &s.Until} {
		if text := lastOf(form, name); text != "" {
			t, err := timespec.Parse(text, now, zone)
			if err != nil {
				return s, &store.InputError{Reason: name + ": " + err.Error()}
			}
			*to = t.Unix()
		}
	}
	return s, nil
}

// A shownEvent is an event in a list.
type shownEvent struct {
	When any      `json:"when"`
	What string   `json:"what"`
	Data string   `json:"data"`
	Tags []string `json:"tags"`
	ID   int64    `json:"id"`
}

func shown(e event.Event) shownEvent {
	return shownEvent{e.When, e.What, e.Data, append([]string{}, e.Tags...), e.ID}
}

// eventBytes is the memory of an event without its texts.
const eventBytes = 256

// listEvents answers /events/get_data: at most MaxEvents events.
func (a *API) listEvents(w http.ResponseWriter, r *http.Request, form url.Values) {
	search, err := searchOf(form, a.now())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.within(w, r, "events "+strings.Join(search.Tags, " "), func(s *query.Session) error {
		list := []shownEvent{}
		search.Step = func(int64) error { return s.Yield() } // memory is reserved below, for each event
		err := a.events.Find(s.Context(), search, func(e event.Event) error {
			if len(list) >= a.config.MaxEvents {
				return &store.LimitError{Limit: "events of a list", Max: int64(a.config.MaxEvents), Need: int64(len(list)) + 1, What: "list events; use a shorter time range, or tags"}
			}
			list = append(list, shown(e))
			return s.Reserve(eventBytes + event.MaxTagBytes + 3*int64(len(e.What)+len(e.Data))) // as stored, as an event, in the answer
		})
		if err != nil {
			return err
		}
		return answerWithin(s, w, form, list)
	})
}

const noSuchEvent = "Event matching query does not exist" // as graphite-web has it

// eventID parses the id in the path. If it is invalid, eventID answers the error.
func eventID(w http.ResponseWriter, r *http.Request) (id int64, ok bool) {
	id, err := event.ParseID(r.PathValue("id"))
	if err != nil {
		refuseJSON(w, http.StatusNotFound, "the id of an event is a whole number")
	}
	return id, err == nil
}

// deleteEvent answers DELETE /events/ID. In graphite-web, events are deleted only on a
// page for administrators.
func (a *API) deleteEvent(w http.ResponseWriter, r *http.Request) {
	id, ok := eventID(w, r)
	if !ok {
		return
	}
	err := a.events.Delete(r.Context(), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		refuseJSON(w, http.StatusNotFound, noSuchEvent)
	case err != nil:
		a.fail(w, r, err)
	default:
		a.log.Info("an event was deleted", "id", id, "client", r.RemoteAddr)
		w.WriteHeader(http.StatusOK)
	}
}

// oneEvent answers /events/ID.
func (a *API) oneEvent(w http.ResponseWriter, r *http.Request, form url.Values) {
	id, ok := eventID(w, r)
	if !ok {
		return
	}
	a.within(w, r, "event", func(s *query.Session) error {
		e, err := a.events.ByID(s.Context(), id)
		if errors.Is(err, store.ErrNotFound) {
			refuseJSON(w, http.StatusNotFound, noSuchEvent)
			return nil
		}
		if err != nil {
			return err
		}
		one := shown(e)
		one.When = time.Unix(e.When, 0).UTC().Format("2006-01-02T15:04:05+00:00")
		return answerWithin(s, w, form, one)
	})
}

package graphite

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"varve/internal/query"
)

// TestEvents: behaviour that the recorded cases do not cover.
func TestEvents(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	if w := s.addEvent(`{"what":"<now>","tags":"a b","data":"d","id":5}`, 200); w.Body.Len() != 0 {
		t.Errorf("adding an event answers %q", w.Body)
	}
	s.addEvent(`{"what":"soon","tags":["b"],"when":1710072001}`, 200)
	const id = 1710072000 << 19
	for _, c := range []struct {
		path, parameters string
		status           int
		want             string
	}{
		{"/events", "", 200, fmt.Sprintf(`[{"when":1710072000,"what":"<now>","data":"d","tags":["a","b"],"id":%d}]`, id)},
		{"/events/get_data", "from=now&until=%2b1h&tags=+b+", 200, fmt.Sprintf(`"id":%d},{"when":1710072001,"what":"soon","data":"","tags":["b"]`, id)},
		{"/events/get_data", "from=14:00&until=14:01&tz=Europe/Berlin", 200, "[]"},
		{"/events/get_data", "from=13:00&until=13:01&tz=Europe/Berlin&tags=c+a&set=union", 200, `"what":"<now>"`},
		{"/events/get_data", "tags=", 200, "[]"},
		{"/events/get_data", "tags=+&set=union", 200, "[]"},
		{"/events/get_data", "from=nonsense", 400, `{"error":"from: `},
		{"/events/get_data", "jsonp=a(", 400, badCallback},
		{fmt.Sprintf("/events/%d", id), "", 200, fmt.Sprintf(`{"when":"2024-03-10T12:00:00+00:00","what":"<now>","data":"d","tags":["a","b"],"id":%d}`, id)},
		{fmt.Sprintf("/events/%d", id+1), "", 404, `{"error":"Event matching query does not exist"}`},
		{"/events/nosuch", "", 404, `{"error":"the id of an event is a whole number"}`},
		{"/graphite/events/get_data", "tags=nosuch", 200, "[]"},
	} {
		form, err := url.ParseQuery(c.parameters)
		if err != nil {
			t.Fatal(err)
		}
		methods := []string{"GET"}
		if strings.HasSuffix(c.path, "/get_data") {
			methods = append(methods, "POST")
		}
		for _, method := range methods {
			if w := s.ask(method, c.path, form); w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("%s %s?%s: %d %s; want %d %s", method, c.path, c.parameters, w.Code, w.Body, c.status, c.want)
			}
		}
	}
	for _, c := range []struct {
		id     string
		status int
	}{{fmt.Sprint(id), 200}, {fmt.Sprint(id), 404}, {"nosuch", 404}} {
		if w := s.ask("DELETE", "/events/"+c.id, nil); w.Code != c.status {
			t.Errorf("delete %s: %d %s; want %d", c.id, w.Code, w.Body, c.status)
		}
	}
	if w := s.ask("GET", "/events", url.Values{"until": {"+1h"}}); strings.Contains(w.Body.String(), "now") || !strings.Contains(w.Body.String(), "soon") {
		t.Errorf("after the delete: %s", w.Body)
	}
	if w := s.addEvent(`{"tags":"x"}`, 400); !strings.Contains(w.Body.String(), `{"error":"the event does not say`) {
		t.Errorf("an event without what: %s", w.Body)
	}
}

// TestEventLimits: each limit refuses one more, and the error names its key.
func TestEventLimits(t *testing.T) {
	config, limits := DefaultConfig(), query.DefaultConfig()
	config.MaxEventSize, config.MaxEvents, config.MaxEventsPerDay = 100, 2, 3
	s := open(t, config, limits)
	refused := func(what, key string, code int, body string) {
		t.Helper()
		if code != 400 || !strings.Contains(body, "limit "+key+" of") {
			t.Errorf("%s: %d %s; want limit %s", what, code, body, key)
		}
	}
	posted := func(size int) string {
		return fmt.Sprintf(`{"what":"a","when":5,"data":%q}`, strings.Repeat("x", size-len(`{"what":"a","when":5,"data":""}`)))
	}
	s.addEvent(posted(100), 200)
	refused("an event too large", "bytes of an event", 400, s.addEvent(posted(101), 400).Body.String())
	s.addEvent(`{"what":"b","when":6}`, 200)
	if w := s.ask("GET", "/events", nil); w.Code != 200 {
		t.Errorf("two events: %d %s", w.Code, w.Body)
	}
	s.addEvent(`{"what":"c","when":7}`, 200)
	w := s.ask("GET", "/events", nil)
	refused("a list too long", "events of a list", w.Code, w.Body.String())
	if w := s.ask("GET", "/events", url.Values{"from": {"6"}}); w.Code != 200 {
		t.Errorf("two of three events: %d %s", w.Code, w.Body)
	}
	refused("a day too full", "events of a day", 400, s.addEvent(`{"what":"d","when":8}`, 400).Body.String())
	s.addEvent(`{"what":"d","when":86400}`, 200)
}

// TestEventMemory: the events of an answer count as query memory.
func TestEventMemory(t *testing.T) {
	limits := query.DefaultConfig()
	limits.MaxMemory = 64 << 10
	s := open(t, DefaultConfig(), limits)
	s.addEvent(fmt.Sprintf(`{"what":"a","when":5,"data":%q}`, strings.Repeat("x", 30_000)), 200)
	if w := s.ask("GET", "/events", nil); w.Code != 400 || !strings.Contains(w.Body.String(), "query.max_memory") {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
}

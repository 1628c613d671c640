package graphite

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"varve/internal/query"
)

// Slow requests of every kind are listed together with those of KairosDB's API: with their path
// and cost, and failed ones with their error.
func TestSlowRequestsAreListed(t *testing.T) {
	limits := query.DefaultConfig()
	limits.MaxSamples, limits.Slow = 1, time.Nanosecond
	s := open(t, DefaultConfig(), limits)
	s.send("a.b 1 1700000000\na.c 1 1700000000\na.c;h=x 2 1700000000\n")
	since := url.Values{"from": {"1699999000"}, "until": {"1700000100"}, "format": {"json"}}
	for _, request := range []struct {
		path string
		form url.Values
	}{
		{"/render", url.Values{"target": {"a.b"}}},
		{"/render", url.Values{"target": {"a.b", "a.c"}}},
		{"/graphite/metrics/find", url.Values{"query": {"a.*"}}},
		{"/metrics/index.json", nil},
		{"/tags/autoComplete/values", url.Values{"tag": {"h"}}},
	} {
		form := url.Values{}
		for _, values := range []url.Values{since, request.form} {
			for name, value := range values {
				form[name] = value
			}
		}
		s.ask("GET", request.path, form)
	}
	list := s.queries.Slow().List()
	want := []string{"/tags/autoComplete/values h!=", "/metrics/index.json index.json", "/graphite/metrics/find a.*", "/render a.b a.c", "/render a.b"}
	if len(list) != len(want) {
		t.Fatalf("%+v", list)
	}
	for i, q := range list {
		if q.Query != want[i] || q.Client == "" || q.TookMS <= 0 || (q.Error == "") == (q.Bytes == 0) {
			t.Errorf("want %q: %+v", want[i], q)
		}
	}
	if q := list[3]; !strings.Contains(q.Error, "query.max_samples of 1") {
		t.Errorf("%+v", q)
	}
	if q := list[4]; q.Series == 0 || q.Samples != 1 {
		t.Errorf("%+v", q)
	}
}

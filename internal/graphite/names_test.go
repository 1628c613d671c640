package graphite

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"varve/internal/graphite/graphitetest"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// Names of other protocols that are no paths fail no question for those that are.
func TestNamesThatAreNoPaths(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	now := graphitetest.Clock.Unix() / 60 * 60
	var b store.Batch
	b.Reset(s.store.Epoch())
	for _, metric := range []string{"a.b", "", ".", "..", "...", "a.", "a..", "a..b", ".a", "*", "{a,b}", "[a]", "a b", "\x00", "a\nb", ";", "a;b=c"} {
		ref, err := s.store.Create(t.Context(), model.Series{Metric: metric, Type: model.TypeDouble})
		if err != nil {
			t.Fatal(err)
		}
		b.AddDouble(ref, (now-60)*1000, 5, 0)
	}
	if err := s.store.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, glob := range []string{"*", "*.*", "*.*.*", "**", "**.**", "a.*", "a.", "a..", "a..*", "?.?", "[a-z].*", "{a,b}.*", ".*", "..*", "*."} {
		for _, path := range []string{"/render", "/metrics/find", "/metrics/expand"} {
			form := url.Values{"target": {glob}, "query": {glob}, "format": {"json"}, "from": {fmt.Sprint(now - 120)}, "until": {fmt.Sprint(now)}}
			if w := s.ask("GET", path, form); w.Code == http.StatusInternalServerError {
				t.Errorf("%s %q: %d %s", path, glob, w.Code, w.Body)
			}
		}
	}
	form := url.Values{"query": {"*.*"}}
	if w := s.ask("GET", "/metrics/expand", form); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"a.b"`) {
		t.Errorf("*.*: %d %s, want a.b among others", w.Code, w.Body)
	}
}

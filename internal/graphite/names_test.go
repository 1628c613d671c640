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

// TestBranchThatIsALeaf: a path that is both is two nodes, of which leavesOnly leaves one, and
// a * stands for both.
func TestBranchThatIsALeaf(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	now := graphitetest.Clock.Unix()
	s.send(fmt.Sprintf("a.z 1 %d\na.z.x 1 %d\nb.c 1 %d\n", now, now, now))
	for _, c := range []struct{ form, want string }{
		{"query=a.z&format=json&leavesOnly=1", `"path":"a.z"}]`},
		{"query=a.z&leavesOnly=1", `[{"text":"z","id":"a.z","allowChildren":0,"expandable":0,"leaf":1}]`},
		{"query=a.z&leavesOnly=1&format=completer", `{"metrics":[{"is_leaf":"1","name":"z","path":"a.z"}]}`},
		{"query=a.z&wildcards=1", `[{"text":"*","id":"a.*","allowChildren":1,"expandable":1,"leaf":0},{"text":"z","id":"a.z","allowChildren":1,"expandable":1,"leaf":0}]`},
		{"query=a.z&wildcards=1&leavesOnly=1", `[{"text":"z","id":"a.z","allowChildren":0,"expandable":0,"leaf":1}]`},
		{"query=*.*&format=completer&wildcards=1", `{"metrics":[{"is_leaf":"1","name":"c","path":"b.c"},{"is_leaf":"0","name":"z","path":"a.z."},{"is_leaf":"1","name":"z","path":"a.z"},{"name":"*"}]}`},
	} {
		form, err := url.ParseQuery(c.form)
		if err != nil {
			t.Fatal(err)
		}
		body := strings.TrimSpace(s.ask("GET", "/metrics/find", form).Body.String())
		if strings.Contains(c.form, "json") && (strings.Count(body, "path") != 1 || !strings.HasSuffix(body, c.want)) || !strings.Contains(c.form, "json") && body != c.want {
			t.Errorf("%s: %s; want %s", c.form, body, c.want)
		}
	}
}

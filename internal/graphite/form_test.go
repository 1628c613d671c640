package graphite

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"varve/internal/graphite/graphitetest"
	"varve/internal/query"
)

func TestParameters(t *testing.T) {
	for text, want := range map[string]url.Values{
		"":                             {},
		"&&":                           {},
		"a":                            {"a": {""}},
		"=":                            {"": {""}},
		"target=m;a=b&target=n%3Bc=":   {"target": {"m;a=b", "n;c="}},
		"a=%+1%_1%1_%0x":               {"a": {"% 1%_1%1_%0x"}},
		"a=5%&b=%zz%4&c%3D=%c3%BC+%2b": {"a": {"5%"}, "b": {"%zz%4"}, "c=": {"ü +"}},
	} {
		if got, err := parameters(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := parameters(strings.Repeat("&", maxParameters)); err == nil || err.Error() != "the form has 10001 parameters; at most 10000 are allowed" {
		t.Error(err)
	}
}

// FuzzParameters: for query strings that net/url accepts, parameters gives the same result.
func FuzzParameters(f *testing.F) {
	f.Add("target=a%20b&target=c+d&format=json&x")
	f.Fuzz(func(t *testing.T, text string) {
		got, bad := parameters(text)
		if bad != nil {
			return
		}
		if want, err := url.ParseQuery(text); err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	})
}

// TestSemicolonsInForms: the name of a series with tags need not be escaped in a query string or
// a form.
func TestSemicolonsInForms(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	now := graphitetest.Clock.Unix() / 60 * 60
	s.send(fmt.Sprintf("disk.used;host=a 5 %d\n", now-60))
	text := fmt.Sprintf("target=alias(disk.used;host=a,'5%%')&format=json&noNullPoints=1&from=%d&until=%d", now-120, now)
	get := httptest.NewRequest("GET", "/render?"+text, nil)
	post := httptest.NewRequest("POST", "/render", strings.NewReader(text))
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	serve := func(r *http.Request) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.mux.ServeHTTP(w, r)
		return w
	}
	want := fmt.Sprintf(`[{"target": "5%%", "tags": {"host": "a", "name": "disk.used"}, "datapoints": [[5.0, %d]]}]`, now-60)
	for _, r := range []*httptest.ResponseRecorder{serve(get), serve(post)} {
		if r.Code != 200 || r.Body.String() != want {
			t.Errorf("%d %s, want %s", r.Code, r.Body, want)
		}
	}
	tag := httptest.NewRequest("POST", "/tags/tagSeries", strings.NewReader("path=x;a=b;a=c"))
	tag.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if r := serve(tag); r.Code != 200 || strings.TrimSpace(r.Body.String()) != `"x;a=c"` {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	long := httptest.NewRequest("POST", "/render", strings.NewReader("target="+strings.Repeat("a", maxForm)))
	long.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if r := serve(long); r.Code != 400 || !strings.Contains(r.Body.String(), "too large") {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

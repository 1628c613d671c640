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
	if r := serve(long); r.Code != 400 || !strings.Contains(r.Body.String(), "limit bytes of a form of 1048576 reached, at least 1048583 needed") {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

// TestLargestForms: a form has as many bytes and parameters as the limits say.
func TestLargestForms(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	post := func(kind, body string) string {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/tags/findSeries", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		s.mux.ServeHTTP(w, r)
		return w.Body.String()
	}
	many := strings.Repeat("x=&", maxParameters-1) + "x="
	long := "x=" + strings.Repeat("a", maxForm-2)
	before, after := "--x\r\nContent-Disposition: form-data; name=x\r\n\r\n", "\r\n--x--"
	parts := before + strings.Repeat("a", maxForm-len(before+after)) + after
	for name, text := range map[string]string{"parameters": post(encodedForm, many), "bytes": post(encodedForm, long), "parts": post(partedForm+"; boundary=x", parts)} {
		if strings.Contains(text, "read the form") || strings.Contains(text, "bytes of a form") {
			t.Errorf("the most %s: %.200s", name, text)
		}
	}
	if text := post(encodedForm, many+"&x="); !strings.Contains(text, "the form has 10001 parameters; at most 10000 are allowed") {
		t.Errorf("one parameter more: %.200s", text)
	}
	if text := post(encodedForm, long+"a"); !strings.Contains(text, "limit bytes of a form of 1048576 reached, at least 1048577 needed") {
		t.Errorf("one byte more: %.200s", text)
	}
}

// TestFormsTakeMemory: forms and events count as the texts of queries from their first bytes, and are refused
// as overload if others use all memory for these.
func TestFormsTakeMemory(t *testing.T) {
	limits := query.DefaultConfig()
	limits.TotalMemory = 1 << 20
	s := open(t, DefaultConfig(), limits)
	hold := func(client string, n int) *query.Text {
		t.Helper()
		text, err := s.queries.ReadText(t.Context(), client, strings.NewReader(strings.Repeat(" ", n)), query.TextLimit{Max: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	others := func() []*query.Text {
		return []*query.Text{hold("192.0.2.2:1", 100<<10), hold("192.0.2.2:1", 40<<10), hold("192.0.2.3:1", 20<<10)}
	}
	texts := others()
	form, parts := "target="+strings.Repeat("a", 100<<10), "--x\r\nContent-Disposition: form-data; name=target\r\n\r\n"+strings.Repeat("a", 100<<10)+"\r\n--x--\r\n"
	for _, c := range []struct{ path, kind, body string }{
		{"/render", encodedForm, form},
		{"/metrics/find", partedForm + "; boundary=x", parts},
		{"/tags/findSeries?expr=" + strings.Repeat("a", 20<<10), encodedForm, "expr=b"},
		{"/render?target=" + strings.Repeat("a", 20<<10), "", ""},
		{"/events", "", `{"what":"` + strings.Repeat("w", 40<<10) + `"}`},
	} {
		post := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("POST", c.path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.kind)
			s.mux.ServeHTTP(w, r)
			return w
		}
		if r := post(); r.Code != 503 || !strings.Contains(r.Body.String(), "limit query.total_memory") {
			t.Errorf("%.20s: %d %.300s", c.path, r.Code, r.Body)
		}
		for _, text := range texts {
			text.Close()
		}
		if r := post(); r.Code == 503 {
			t.Errorf("%.20s, with memory: %d %.300s", c.path, r.Code, r.Body)
		}
		texts = others()
	}
	for _, text := range texts {
		text.Close()
	}
}

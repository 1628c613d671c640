package graphite

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"varve/internal/graphite/graphitetest"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// Names of other protocols that are not paths do not fail queries for paths.
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

// TestBranchThatIsALeaf: a path that is both a branch and a leaf is two nodes. leavesOnly keeps
// one of them, and they get one wildcard.
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

// Completions of a tag do not depend on how many series have the tag: values are listed from the
// index, and a prefix or a filter is applied before series are counted.
func TestOffersForATagOfManySeries(t *testing.T) {
	limits := query.DefaultConfig()
	limits.MaxSeries = 2
	s := open(t, DefaultConfig(), limits)
	var lines strings.Builder
	for _, host := range []string{"a1", "a2", "b1", "b2", "b3"} {
		fmt.Fprintf(&lines, "m;h=%s;dc=x 1 1700000000\nother;g=%s 1 1700000000\n", host, host)
	}
	s.send(lines.String())
	for _, test := range []struct{ path, query, want string }{
		{"/tags/autoComplete/values", "tag=h", `["a1","a2","b1","b2","b3"]`},
		{"/tags/autoComplete/values", "tag=h&limit=2", `["a1","a2"]`},
		{"/tags/autoComplete/values", "tag=h&limit=-1", `["a1","a2","b1","b2","b3"]`},
		{"/tags/autoComplete/values", "tag=h&limit=0", `[]`},
		{"/tags/autoComplete/values", "tag=h&valuePrefix=b&limit=2", `["b1","b2"]`},
		{"/tags/autoComplete/values", "tag=h&expr=name=m", `["a1","a2","b1","b2","b3"]`},
		{"/tags/autoComplete/values", "tag=g&expr=name=m", `[]`},
		{"/tags/autoComplete/values", "tag=h&expr=dc=x&valuePrefix=a", `["a1","a2"]`},
		{"/tags/autoComplete/values", "tag=h&expr=dc=x&valuePrefix=a.", `[]`},
		{"/tags/autoComplete/tags", "expr=name=m", `["dc","h"]`},
		{"/tags/h", "filter=a", `{"tag":"h","values":[{"value":"a1","count":1},{"value":"a2","count":1}]}`},
		{"/tags/h", "filter=c", `{"tag":"h","values":[]}`},
		{"/tags/name", "filter=c", `{"tag":"name","values":[]}`},
		{"/tags/nosuch", "filter=c", `null`},
		{"/tags/h", "filter=.*1", `{"tag":"h","values":[{"value":"a1","count":1},{"value":"b1","count":1}]}`},
	} {
		form, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		if w := s.ask("GET", test.path, form); w.Code != http.StatusOK || w.Body.String() != test.want {
			t.Errorf("%s?%s: %d %s, want %s", test.path, test.query, w.Code, w.Body, test.want)
		}
	}
}

// TestFewPlacesAreSearched: a glob that describes very many paths is searched only where paths
// exist, and a deep path once, not in each way in which it can be divided among several **.
func TestFewPlacesAreSearched(t *testing.T) {
	limits := query.DefaultConfig()
	limits.Timeout = 10 * time.Second // far too short for all paths that the globs describe
	s := open(t, DefaultConfig(), limits)
	deep := strings.Repeat("a.", 60) + "b"
	s.send(fmt.Sprintf("%s 1 %d\n", deep, graphitetest.Clock.Unix()))
	for _, c := range []struct{ glob, want string }{
		{strings.Repeat("**.", 12) + "b", deep},
		{strings.Repeat("**.", 12) + "c", ""},
		{strings.Repeat("{a,b}.", 60) + "b", deep},
		{strings.Repeat("{,a}a.", 40) + "{b,c}", ""},
	} {
		w := s.ask("GET", "/metrics/expand", url.Values{"query": {c.glob}})
		if answer := w.Body.String(); w.Code != http.StatusOK || strings.Contains(answer, deep) != (c.want != "") {
			t.Errorf("%s: %d %.200s", c.glob, w.Code, answer)
		}
	}
}

// TestNamesOfOtherSenders: a path that the API lists is the name of that series, and of no other,
// although carbon reads it as the name of another one. Other protocols make such names.
func TestNamesOfOtherSenders(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	at := graphitetest.Clock.Unix()/60*60 - 60
	put := func(metric, tag, value string, points float64) {
		t.Helper()
		var tags []model.Tag
		if tag != "" {
			tags = append(tags, model.Tag{Name: tag, Value: value})
		}
		set, err := model.NewTags(tags...)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := s.store.Create(t.Context(), model.Series{Metric: metric, Tags: set, Type: model.TypeDouble})
		if err != nil {
			t.Fatal(err)
		}
		var b store.Batch
		b.Reset(s.store.Epoch())
		b.AddDouble(ref, at*1000, points, 0)
		if err := s.store.Append(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		form := url.Values{"target": {path}, "format": {"raw"}, "from": {fmt.Sprint(at - 60)}, "until": {fmt.Sprint(at)}}
		_, values, _ := strings.Cut(strings.TrimSpace(s.ask("GET", "/render", form).Body.String()), "|")
		return strings.Trim(strings.ReplaceAll(values, "None", ""), ",")
	}
	exists := func(path string) bool {
		return strings.Contains(s.ask("GET", "/metrics/index.json", nil).Body.String(), `"`+path+`"`) ||
			strings.Contains(s.ask("GET", "/tags/findSeries", url.Values{"expr": {"name=~."}}).Body.String(), `"`+path+`"`)
	}
	for _, c := range []struct {
		metric, tag, value string
		path               string
		otherMetric        string
		otherTag           string
		otherValue         string
		otherPath          string
		noTarget           bool // the grammar of targets has no such path
	}{
		{"a..b", "", "", "a..b", "a.b", "", "", "a.b", true},
		{"c.", "", "", "c.", "c", "", "", "c", true},
		{"e..f", "k", "1", "e..f;k=1", "e.f", "k", "1", "e.f;k=1", true},
		{"~g", "k", "1", "~g;k=1", "g", "k", "1", "g;k=1", false},
		{"h", "name", "x", "h;name=x", "h", "", "", "h", false},
		{"i", "k", "~1", "i;k=~1", "i", "k", "1", "i;k=1", false},
		{"j", "k", "1=2", "j;k=1=2", "j", "k", "1", "j;k=1", false},
	} {
		put(c.metric, c.tag, c.value, 1)
		put(c.otherMetric, c.otherTag, c.otherValue, 2)
		if !exists(c.path) {
			t.Errorf("%s is not listed", c.path)
		}
		if got := read(c.path); got != "1.0" && !c.noTarget {
			t.Errorf("%s is read as %q, not 1.0", c.path, got)
		}
		if w := s.ask("POST", "/tags/delSeries", url.Values{"path": {c.path}}); w.Code != http.StatusOK {
			t.Errorf("delete %s: %d %s", c.path, w.Code, w.Body)
		}
		if exists(c.path) {
			t.Errorf("%s is still there after it was deleted", c.path)
		}
		if got := read(c.otherPath); got != "2.0" {
			t.Errorf("after %s was deleted, %s is read as %q, not 2.0", c.path, c.otherPath, got)
		}
	}
}

// TestRefusedTags: a path with more tags than a name may have is refused, and so is a delete that the
// store cannot perform.
func TestRefusedTags(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	path := func(tags int) string {
		p := "a"
		for i := range tags {
			p += fmt.Sprintf(";t%d=x", i)
		}
		return p
	}
	for tags, want := range map[int]int{maxTags: http.StatusOK, maxTags + 1: http.StatusBadRequest} {
		for _, page := range []string{"/tags/tagSeries", "/tags/delSeries"} {
			if w := s.ask("POST", page, url.Values{"path": {path(tags)}}); w.Code != want || want != http.StatusOK && !strings.Contains(w.Body.String(), "tags") {
				t.Errorf("%s of a path with %d tags: %d %.200s", page, tags, w.Code, w.Body)
			}
		}
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	if w := s.ask("POST", "/tags/delSeries", url.Values{"path": {"a"}}); w.Code != http.StatusServiceUnavailable {
		t.Errorf("the store is closed: %d %.200s", w.Code, w.Body)
	}
}

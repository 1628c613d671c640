package graphite

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"varve/internal/graphite/graphitetest"
	"varve/internal/httpapi"
	"varve/internal/query"
)

// TestBadConsolidation: for any number of points, an unknown consolidation is an error that the
// client can read, not a truncated answer.
func TestBadConsolidation(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	now := graphitetest.Clock.Unix() / 60 * 60
	s.send(fmt.Sprintf("a 1 %d\na 2 %d\na 3 %d\nb 1 %d\n", now-180, now-120, now-60, now-60))
	for points, want := range map[string]int{"1": 400, "2": 400, "1000": 200} {
		form := url.Values{"target": {"consolidateBy(a,'sun')"}, "format": {"json"}, "from": {fmt.Sprint(now - 240)}, "until": {fmt.Sprint(now)}, "maxDataPoints": {points}}
		w := s.ask("GET", "/render", form)
		if w.Code != want || want == 400 && !strings.Contains(w.Body.String(), `unknown function "sun"`) {
			t.Errorf("maxDataPoints %s: %d %s", points, w.Code, w.Body)
		}
	}
	form := url.Values{"target": {"a", "summarize(b,'3min')"}, "format": {"dygraph"}, "from": {fmt.Sprint(now - 240)}, "until": {fmt.Sprint(now)}}
	if w := s.ask("GET", "/render", form); w.Code != 400 || !strings.Contains(w.Body.String(), "all must have the same number") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestRenderTrace: on request, a header says which archives were read, and from which stages
// of the store.
func TestRenderTrace(t *testing.T) {
	schemas := filepath.Join(t.TempDir(), "schemas")
	if err := os.WriteFile(schemas, []byte("[a]\npattern = ^a\nretentions = 10s:10m,60s:1d\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := DefaultConfig()
	config.StorageSchemas = schemas
	s := openSite(t, config, query.DefaultConfig(), true)
	now := graphitetest.Clock.Unix() / 60 * 60
	var lines strings.Builder
	for at := now - 3600; at < now; at += 10 {
		fmt.Fprintf(&lines, "a.x 1 %d\na.y 1 %d\n", at, at)
	}
	s.send(lines.String())
	if err := s.store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"target": {"a.*"}, "format": {"json"}, "from": {fmt.Sprint(now - 1800)}, "until": {fmt.Sprint(now - 60)}}
	plain := s.ask("GET", "/render", form)
	if text := plain.Header().Get(httpapi.TraceHeader); text != "" {
		t.Errorf("nobody asked for %s", text)
	}
	form.Set("trace", "1")
	traced := s.ask("GET", "/render", form)
	if traced.Code != 200 || traced.Body.String() != plain.Body.String() {
		t.Errorf("%d %s", traced.Code, traced.Body)
	}
	var got traceAnswer
	if err := json.Unmarshal([]byte(traced.Header().Get(httpapi.TraceHeader)), &got); err != nil {
		t.Fatal(err)
	}
	if want := []archiveAnswer{{"1m", now - 1740, now, 2}}; !slices.Equal(got.Archives, want) {
		t.Errorf("archives %+v, want %+v", got.Archives, want)
	}
	// Of the last archive's points, some are still samples.
	if len(got.Stages) != 2 || got.Stages[0].Stage != "raw" || got.Stages[1].Stage != "1m" || got.Stages[1].Start != now-1740 ||
		got.Stages[0].Start != got.Stages[1].End+1 || got.Stages[0].End != now-10 || got.Series != 2 || got.LeftOut != 0 {
		t.Errorf("%+v", got)
	}
}

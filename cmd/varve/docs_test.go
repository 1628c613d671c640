package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// example is a curl command and, if one follows, the JSON of its answer.
var example = regexp.MustCompile("(?s)```sh\n(curl .*?)\n```\n(?:```json\n(.*?)\n```)?")

// curl matches the forms that docs/api.md uses: curl [-X method] url [-d 'body'].
var curl = regexp.MustCompile(`(?s)^curl (?:-X (\w+) )?'?localhost:8080([^ ']*)'?(?: -d '(.*)')?$`)

// Every example in docs/api.md works, top to bottom on an empty server.
func TestAPIExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := example.FindAllStringSubmatch(string(page), -1)
	if len(examples) < 40 {
		t.Fatalf("%d examples", len(examples))
	}
	p := start(t, t.TempDir())
	for _, ex := range examples {
		parts := curl.FindStringSubmatch(ex[1])
		if parts == nil {
			t.Fatalf("not understood: %s", ex[1])
		}
		method := parts[1]
		switch {
		case method != "":
		case parts[3] != "":
			method = http.MethodPost
		default:
			method = http.MethodGet
		}
		status, body := p.do(method, parts[2], parts[3])
		if ex[2] == "" {
			if status != http.StatusNoContent || body != "" {
				t.Errorf("%s\n%d %s", ex[1], status, body)
			}
			continue
		}
		if status != http.StatusOK {
			t.Errorf("%s\n%d %s", ex[1], status, body)
			continue
		}
		got, want := values(t, body), values(t, ex[2])
		if !fits(got, want) {
			t.Errorf("%s\n got %s\nwant %s", ex[1], body, ex[2])
		}
	}
}

// values decodes one JSON value after the other.
func values(t *testing.T, text string) (list []any) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var v any
		err := d.Decode(&v)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		list = append(list, v)
	}
}

// fits compares decoded JSON; "..." stands for anything.
func fits(got, want any) bool {
	if want == "..." {
		return true
	}
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(want) {
			return false
		}
		for name, w := range want {
			v, ok := g[name]
			if !ok || !fits(v, w) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		return ok && slices.EqualFunc(g, want, fits)
	}
	return got == want
}

// Every endpoint that is served is in a page.
func TestAPIIsComplete(t *testing.T) {
	pages := ""
	for _, name := range []string{"api.md", "operations.md", "rollups.md", "import-export.md", "timelines.md", "graphite.md", "retention.md"} {
		page, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		pages += string(page)
	}
	routes, err := os.ReadFile("testdata/routes.txt") // see TestAccessOfRoutes
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(routes)) {
		path := strings.Fields(line)[1]
		if strings.HasPrefix(path, "/graphite/") || strings.HasPrefix(path, "/debug/pprof/") {
			continue // the same as without it; Go's own
		}
		// Parameters have other names in the text, and tables leave the common part out.
		short, _, _ := strings.Cut(path, "{")
		short = strings.TrimSuffix(strings.TrimPrefix(short, "/api/v1"), "/")
		if !strings.Contains(pages, short) {
			t.Errorf("%s is in none of the pages", path)
		}
	}
}

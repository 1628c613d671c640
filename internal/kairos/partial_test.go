package kairos

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// An incomplete answer is an error unless the client allows it; then it is marked, and
// what it contains is correct.
func TestPartial(t *testing.T) {
	st := reference.New(nil)
	whole := startServerWith(t, st, query.DefaultConfig(), DefaultConfig())
	whole.fill(t, 2, 5000)
	const sum = `,"aggregators":[{"name":"sum","sampling":{"value":100,"unit":"milliseconds"}}]`
	const byTag = `,"group_by":[{"name":"tag","tags":["h"]}]`
	percentile := strings.Replace(sum, `"sum"`, `"percentile","percentile":0.5`, 1)
	ask := func(s *testServer, partial, metrics string) (int, string, answerOfQuery) {
		resp, body := s.do(t, "POST", queryPath+partial, `{"start_absolute":0,"metrics":[`+metrics+`]}`)
		var a answerOfQuery
		if resp.StatusCode == 200 {
			if err := json.Unmarshal([]byte(body), &a); err != nil {
				t.Fatalf("%v: %.300s", err, body)
			}
			if a.Partial != (resp.Header.Get(partialHeader) == "true") {
				t.Errorf("body says partial %v, header %q", a.Partial, resp.Header.Get(partialHeader))
			}
		}
		return resp.StatusCode, body, a
	}
	limited := func(change func(*query.Config)) *testServer {
		qc := query.DefaultConfig()
		change(&qc)
		return startServerWith(t, st, qc, DefaultConfig())
	}
	for _, tc := range []struct {
		limit  string
		change func(*query.Config)
		least  int // values of the first metric
		most   int
	}{
		{"query.max_samples", func(c *query.Config) { c.MaxSamples = 9000 }, 30, 10_000},
		{"query.max_series", func(c *query.Config) { c.MaxSeries = 1 }, 0, 0},
		{"query.max_memory", func(c *query.Config) { c.MaxMemory = 100 }, 0, 0},
	} {
		s := limited(tc.change)
		for _, steps := range []string{
			"", sum, byTag, byTag + sum, `,"order":"desc"`, `,"order":"desc"` + sum, `,"order":"desc"` + byTag + sum, percentile,
			`,"order":"desc"` + percentile,
		} {
			metrics := `{"name":"m"` + steps + `},{"name":"nothing"}`
			for _, partial := range []string{"", "?partial=deny"} {
				if status, body, _ := ask(s, partial, metrics); status != 400 || !strings.Contains(body, "limit "+tc.limit+" of ") {
					t.Errorf("%s%s: %d %.200s", tc.limit, partial, status, body)
				}
			}
			status, body, got := ask(s, "?partial=allow", metrics)
			if status != 200 || !got.Partial || len(got.Queries) != 2 || !strings.Contains(got.Queries[0].Partial, tc.limit) {
				t.Errorf("%s%s: %d %.300s", tc.limit, steps, status, body)
				continue
			}
			_, _, all := ask(whole, "", metrics)
			var n int
			for i, r := range got.Queries[0].Results {
				right := map[any]any{}
				for _, v := range all.Queries[0].Results[i].Values {
					right[v[0]] = v[1]
				}
				for k, v := range r.Values {
					if n++; fmt.Sprint(v[1]) != fmt.Sprint(right[v[0]]) {
						t.Fatalf("%s%s: value %d is %v, want %v", tc.limit, steps, k, v, right[v[0]])
					}
				}
				if k := len(r.Values) - 1; k > 0 && strings.Contains(steps, "desc") != (r.Values[0][0].(float64) > r.Values[k][0].(float64)) {
					t.Errorf("%s%s: from %v to %v", tc.limit, steps, r.Values[0], r.Values[k])
				}
			}
			if n < tc.least || n > tc.most {
				t.Errorf("%s%s: %d values", tc.limit, steps, n)
			}
		}
	}
	slow := limited(func(c *query.Config) { c.Timeout = 50 * time.Millisecond })
	metrics := strings.Repeat(`{"name":"m"},`, 5000) + `{"name":"m"}`
	status, body, a := ask(slow, "?partial=allow", metrics)
	if last := len(a.Queries) - 1; status != 200 || !a.Partial || last != 5000 || !strings.Contains(a.Queries[last].Partial, "query.timeout") {
		t.Errorf("out of time: %d %.200s", status, body)
	}
	if status, body, _ := ask(slow, "", metrics); status != 400 || !strings.Contains(body, "query.timeout") {
		t.Errorf("out of time: %d %.200s", status, body)
	}
	if status, body, a := ask(whole, "?partial=allow", `{"name":"m"}`); status != 200 || a.Partial || strings.Contains(body, "partial") {
		t.Errorf("a whole answer: %d %.200s", status, body)
	}
	if status, body, _ := ask(whole, "?partial=yes", `{"name":"m"}`); status != 400 || !strings.Contains(body, "partial yes") {
		t.Errorf("%d %.200s", status, body)
	}
}

type answerOfQuery struct {
	Partial bool
	Queries []struct {
		Partial string
		Results []struct{ Values [][2]any }
	}
}

// A halfStore cannot reach a part of its data.
type halfStore struct{ store.Store }

func (s halfStore) View(ctx context.Context) (store.View, error) {
	v, err := s.Store.View(ctx)
	return &halfView{View: v}, err
}

type halfView struct {
	store.View
	allowed bool
}

func (v *halfView) AllowPartial() { v.allowed = true }

func (v *halfView) Missing() error {
	return &store.UnavailableError{Reason: "the other half is away"}
}

func (v *halfView) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	if !v.allowed {
		return store.SelectNone(v.Missing())
	}
	return v.View.Select(ctx, sel)
}

func (v *halfView) Names(context.Context, store.NamesQuery) ([]string, bool, error) {
	return nil, false, v.Missing()
}

func (s halfStore) Get(context.Context, string, string, string) (store.Value, error) {
	return store.Value{}, (*halfView)(nil).Missing()
}

// TestUnavailableHasABody: requests for names, tags and metadata of an unavailable
// store get 503 and the reason.
func TestUnavailableHasABody(t *testing.T) {
	s := startServerWith(t, halfStore{reference.New(nil)}, query.DefaultConfig(), DefaultConfig())
	for path, body := range map[string]string{
		"/api/v1/metricnames": "", "/api/v1/metadata/service/key/k": "",
		"/api/v1/datapoints/query/tags": `{"start_absolute":0,"metrics":[{"name":"m"}]}`,
	} {
		method := "GET"
		if body != "" {
			method = "POST"
		}
		resp, text := s.do(t, method, path, body)
		if resp.StatusCode != 503 || !strings.HasPrefix(text, `{"errors":["`) || !strings.Contains(text, "the other half is away") {
			t.Errorf("%s: %d %q", path, resp.StatusCode, text)
		}
	}
}

// TestPartialStore: the answer has what can be reached and is marked, if the client
// allows that; otherwise it is 503 with a body.
func TestPartialStore(t *testing.T) {
	s := startServerWith(t, halfStore{reference.New(nil)}, query.DefaultConfig(), DefaultConfig())
	s.fill(t, 1, 5)
	const q = `{"start_absolute":0,"metrics":[{"name":"m"}]}`
	resp, body := s.do(t, "POST", queryPath, q)
	if resp.StatusCode != 503 || !strings.Contains(body, `{"errors":["`) || !strings.Contains(body, "the other half is away") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	resp, body = s.do(t, "POST", queryPath+"?partial=allow", q)
	var a answerOfQuery
	if err := json.Unmarshal([]byte(body), &a); err != nil || resp.StatusCode != 200 || !a.Partial || resp.Header.Get(partialHeader) != "true" {
		t.Fatalf("%d, %v, %s", resp.StatusCode, err, body)
	}
	if len(a.Queries) != 1 || len(a.Queries[0].Results) != 1 || len(a.Queries[0].Results[0].Values) != 5 || !strings.Contains(body, `"partial":"the other half is away"`) {
		t.Errorf("%s", body)
	}
}

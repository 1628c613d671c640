package kairos

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

const deletePath = "/api/v1/datapoints/delete"

// left returns the number of points that metric m has.
func (s *testServer) left(t *testing.T) (n int) {
	t.Helper()
	_, answer := s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{"name":"m"}]}`)
	if _, err := fmt.Sscanf(answer, `{"queries":[{"sample_size":%d,`, &n); err != nil {
		t.Fatal(answer)
	}
	return n
}

// A delete with a part that Varve does not know deletes nothing.
func TestDeletesAreStrict(t *testing.T) {
	s := startServer(t)
	s.fill(t, 2, 5)
	const times = `"start_absolute":0,"end_absolute":1`
	for body, want := range map[string]string{
		`{` + times + `,"metrics":[{"name":"m","tags":{"h":[]}}]}`:                                   "query.metric[0].tags.h has no values",
		`{` + times + `,"metrics":[{"name":"m","tags":{"h":["0"],"g":[]}}]}`:                         "query.metric[0].tags.g has no values",
		`{` + times + `,"metrics":[{"name":"m","tag":{"h":"0"}}]}`:                                   "query.metric[0].tag is not known to deletes",
		`{` + times + `,"metrics":[{"name":"m","tags":null}]}`:                                       "Not a JSON Object: null",
		`{` + times + `,"metrics":[{"name":"m","tags":{"h":null}}]}`:                                 "must not be null or empty",
		`{` + times + `,"metrics":[{"name":"m","tags":{"h":[null]}}]}`:                               "must not be null or empty",
		`{` + times + `,"metrics":[{"name":"m","tags":{"h":"0"},"tags":{}}]}`:                        "query.metric[0].tags is given more than once",
		`{` + times + `,"metrics":[{"name":"m","tags":{"h":"none","h":"0"}}]}`:                       "query.metric[0].tags.h is given more than once",
		`{` + times + `,"metrics":[]}`:                                                               "query.metric[] must have a size of at least 1",
		`{` + times + `,"metrics":[{"name":"m"}],"tags":{"h":"0"}}`:                                  "query.tags is not known to deletes",
		`{"start_absolute":0,"end_absolut":1,"metrics":[{"name":"m"}]}`:                              "query.end_absolut is not known to deletes",
		`{"start_absolute":0,"end":1,"metrics":[{"name":"m"}]}`:                                      "query.end is not known to deletes",
		`{"start_absolute":0,"end_absolute":null,"metrics":[{"name":"m"}]}`:                          "query.end_absolute may not be null in a delete",
		`{"start_absolute":0,"end_relative":null,"metrics":[{"name":"m"}]}`:                          "query.end_relative may not be null in a delete",
		`{"start_absolute":0,"end_absolute":1,"end_absolute":9,"metrics":[{"name":"m"}]}`:            "query.end_absolute is given more than once",
		`{"start_absolute":0,"end_relative":{"values":1,"unit":"years"},"metrics":[{"name":"m"}]}`:   "query.end_relative.values is not known to deletes",
		`{"start_absolute":0,"end_relative":{"value":null,"unit":"years"},"metrics":[{"name":"m"}]}`: "query.end_relative.value may not be null in a delete",
		`{` + times + `,"metrics":[{"name":"m","tags":{"h":"0"}},{"name":"m","filter":{"h":"0"}}]}`:  "query.metric[1].filter is not known to deletes",
		`{` + times + `,"metrics":[{"name":"m","` + strings.Repeat("x", 5000) + `":1}]}`:             "is not known to deletes",
	} {
		resp, answer := s.do(t, "POST", deletePath, body)
		if resp.StatusCode != 400 || !strings.Contains(answer, want) || len(answer) > 1000 {
			t.Errorf("%s\n%d %s, want %q", body, resp.StatusCode, answer, want)
		}
	}
	for _, r := range [][3]string{
		{"POST", deletePath + "?end_absolute=1", `{"start_absolute":0,"metrics":[{"name":"m"}]}`},
		{"DELETE", "/api/v1/metric/m?h=0", ""},
		{"DELETE", "/api/v1/metric/m", `{"tags":{"h":"0"}}`},
		{"DELETE", "/api/v1/metric/m", "null"},
		{"DELETE", "/api/v1/metric/m", strings.Repeat(" ", 64<<10) + `{"tags":{"h":"0"}}`},
	} {
		if resp, answer := s.do(t, r[0], r[1], r[2]); resp.StatusCode != 400 || !strings.Contains(answer, "nothing was deleted") {
			t.Errorf("%v: %d %s", r, resp.StatusCode, answer)
		}
	}
	if n := s.left(t); n != 10 {
		t.Errorf("%d points are left of 10", n)
	}
}

// Deletes as KairosDB's clients and pages send them are valid.
func TestDeletesOfClients(t *testing.T) {
	for _, r := range [][3]string{
		// kairosdb-client for Java
		{"POST", deletePath, `{"cache_time":0,"metrics":[{"name":"m","tags":{},"group_by":[],"aggregators":[],"exclude_tags":false}],"start_relative":{"value":100,"unit":"YEARS"}}`},
		// python-kairosdb
		{"POST", deletePath, `{"metrics": [{"name": "m", "group_by": [{"name": "tag", "tags": ["h"]}], "aggregators": [{"name": "avg", "align_sampling": true, "sampling": {"value": 30, "unit": "seconds"}}]}], "cache_time": 0, "start_relative": {"value": "100", "unit": "years"}}`},
		// KairosDB's page
		{"POST", deletePath, `{"metrics":[{"tags":{"h":["0","1"]},"name":"m","limit":"5","order":"desc"}],"plugins":[],"cache_time":0,"time_zone":"UTC","start_absolute":0,"end_absolute":9}`},
		// clients that write every member
		{"POST", deletePath, `{"start_absolute":0,"cache_time":null,"time_zone":null,"plugins":null,"metrics":[{"name":"m","tags":{},"plugins":null,"alias":null}]}`},
		{"DELETE", "/api/v1/metric/m", ""},
		{"DELETE", "/api/v1/metric/m", "{}"},
	} {
		s := startServer(t)
		s.fill(t, 2, 5)
		if resp, answer := s.do(t, r[0], r[1], r[2]); resp.StatusCode != 204 {
			t.Errorf("%v: %d %s", r, resp.StatusCode, answer)
		}
		if n := s.left(t); n != 0 {
			t.Errorf("%v: %d points are left", r, n)
		}
	}
}

// The log has a line for each metric of a delete, with its filters and range.
func TestDeletesAreLogged(t *testing.T) {
	s := startServer(t)
	var out strings.Builder
	s.api.Log = slog.New(slog.NewTextHandler(&out, nil))
	s.do(t, "POST", deletePath, `{"start_absolute":5,"end_absolute":7,"metrics":[{"name":"m","tags":{"h":["0","regex:1.*"],"g":"x"}},{"name":"n"}]}`)
	s.do(t, "DELETE", "/api/v1/metric/all%2Fof%2Fit", "")
	s.do(t, "POST", deletePath, `{"start_absolute":5,"metrics":[{"name":"`+strings.Repeat("a", 10_000)+`","tags":{"h":["`+strings.Repeat("b", 10_000)+`"]}}]}`)
	for _, want := range []string{
		`level=INFO msg="points deleted" metric=m tags="h=0|1.* g=x" start=5 end=7 client=127.0.0.1:`,
		`level=INFO msg="points deleted" metric=n tags="" start=5 end=7 client=127.0.0.1:`,
		`level=INFO msg="points deleted" metric=all/of/it tags="" start=all end=all client=127.0.0.1:`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %s in\n%s", want, out.String())
		}
	}
	if len(out.String()) > 3000 {
		t.Errorf("%d bytes of log", len(out.String()))
	}
	out.Reset()
	s.do(t, "POST", deletePath, `{"start_absolute":5,"metrics":[{"name":"m"}`+strings.Repeat(`,{"name":"m"}`, 2*loggedDeletions)+`]}`)
	if n := strings.Count(out.String(), "\n"); n != loggedDeletions+1 || !strings.Contains(out.String(), fmt.Sprintf("count=%d", loggedDeletions+1)) {
		t.Errorf("%d lines\n%.500s", n, out.String())
	}
	out.Reset()
	s.do(t, "DELETE", "/api/v1/metadata/editor/boards/home", "")
	if want := `level=INFO msg="metadata deleted" service=editor service_key=boards key=home client=127.0.0.1:`; !strings.Contains(out.String(), want) {
		t.Error(out.String())
	}
	out.Reset()
	s.store.Close()
	s.do(t, "DELETE", "/api/v1/metric/m", "")
	if !strings.Contains(out.String(), `level=INFO msg="delete was not completed; some points may be deleted" metric=m`) {
		t.Error(out.String())
	}
}

// A heldStore blocks deletes until they are released.
type heldStore struct {
	store.Store
	began chan struct{}
	letGo chan struct{}
}

func (s *heldStore) Delete(ctx context.Context, deletions ...store.Deletion) error {
	s.began <- struct{}{}
	<-s.letGo
	return s.Store.Delete(ctx, deletions...)
}

// A few deletes run at once, regardless of what they wait for. Further ones wait, then they are
// refused and delete nothing. Queries continue meanwhile, and the timeout of queries
// does not end a delete.
func TestDeletesAtOnce(t *testing.T) {
	qc := query.DefaultConfig()
	qc.MaxConcurrent, qc.MaxQueued, qc.MaxWait, qc.Timeout = 1, 1, 30*time.Millisecond, 10*time.Millisecond
	st := &heldStore{reference.New(nil), make(chan struct{}), make(chan struct{})}
	s := startServerWith(t, st, qc, DefaultConfig())
	s.fill(t, 1, 1)
	const body = `{"start_absolute":9000000000000,"end_absolute":9000000000001,"metrics":[{"name":"m"}]}`
	const all = `{"start_absolute":0,"metrics":[{"name":"m"}]}`
	var group sync.WaitGroup
	most := max(4, runtime.GOMAXPROCS(0))
	for range most {
		group.Go(func() {
			if resp, answer := s.do(t, "POST", deletePath, body); resp.StatusCode != 204 {
				t.Errorf("%d %s", resp.StatusCode, answer)
			}
		})
		<-st.began
	}
	resp, answer := s.do(t, "POST", deletePath, all)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(answer, "query.max_wait") || !strings.Contains(answer, "nothing was deleted") {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	for deadline := time.Now().Add(time.Minute); ; { // a busy machine needs longer than that timeout, now and then
		resp, answer = s.do(t, "POST", queryPath, all)
		if !strings.Contains(answer, "query.timeout") || time.Now().After(deadline) {
			break
		}
	}
	if resp.StatusCode != 200 || !strings.HasPrefix(answer, `{"queries":[{"sample_size":1,`) {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	close(st.letGo)
	group.Wait()
}

// A preview counts the series and points that the same delete then deletes, and deletes nothing.
func TestPreviewOfADelete(t *testing.T) {
	s := startServer(t)
	s.fill(t, 3, 5)
	s.do(t, "POST", "/api/v1/datapoints", `[{"name":"m","tags":{"h":"0"},"datapoints":[[1,"text"],[2,1.5]]},{"name":"\"<\u00e9","tags":{"h":"0"},"datapoints":[[9,1]]}]`)
	all := s.left(t)
	for _, selection := range []string{
		`{"start_absolute":0,"metrics":[{"name":"m","tags":{"h":"1"}}]}`,
		`{"start_absolute":2,"end_absolute":2,"metrics":[{"name":"m"}]}`,
		`{"start_absolute":0,"end_absolute":1,"metrics":[{"name":"m","tags":{"h":"regex:[0]"}},{"name":"none"}]}`,
		`{"start_absolute":0,"metrics":[{"name":"m","limit":1,"aggregators":[{"name":"save_as","metric_name":"saved"}]}]}`,
	} {
		resp, answer := s.do(t, "POST", deletePath+"/preview", selection)
		var got struct {
			Metrics []struct {
				Name           string
				Series, Points int
			}
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil || resp.StatusCode != 200 || len(got.Metrics) == 0 || got.Metrics[0].Name != "m" {
			t.Fatalf("%s: %d %s", selection, resp.StatusCode, answer)
		}
		if n := s.left(t); n != all {
			t.Fatalf("%s: %d points are left of %d after a preview", selection, n, all)
		}
		s.do(t, "POST", deletePath, selection)
		n := s.left(t)
		if first := got.Metrics[0]; first.Points != all-n || first.Points == 0 || first.Series == 0 || first.Series > 5 {
			t.Errorf("%s: a preview says %+v, and %d points were deleted", selection, got, all-n)
		}
		all = n
	}
	if _, answer := s.do(t, "POST", deletePath+"/preview", `{"start_absolute":0,"metrics":[{"name":"\"<\u00e9"},{"name":"saved"}]}`); answer !=
		`{"metrics":[{"name":"\"<é","series":1,"points":1},{"name":"saved","series":0,"points":0}]}` {
		t.Error(answer)
	}
	for _, path := range []string{deletePath + "?preview=true", deletePath + "/preview?h=a"} {
		resp, answer := s.do(t, "POST", path, `{"start_absolute":0,"metrics":[{"name":"m"}]}`)
		if resp.StatusCode != 400 || !strings.Contains(answer, "nothing was deleted") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, answer)
		}
	}
	if resp, answer := s.do(t, "POST", deletePath+"/preview", `{"start_absolute":0,"metrics":[{"name":"m","tag":{"h":"0"}}]}`); resp.StatusCode != 400 || !strings.Contains(answer, "query.metric[0].tag is not known to deletes") {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

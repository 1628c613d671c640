package rollup

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/httpapi"
	"varve/internal/query"
)

// A slowReader reads an answer while something else happens.
type slowReader struct {
	*httptest.ResponseRecorder
	meanwhile func(written []byte) error
}

func (s slowReader) Write(p []byte) (int, error) {
	if err := s.meanwhile(p); err != nil {
		return 0, err
	}
	return s.ResponseRecorder.Write(p)
}

func (s slowReader) WriteString(text string) (int, error) { return s.Write([]byte(text)) }

// TestAddressOfATask: the url that a new task is answered with leads to that task, and not to one
// whose id is a part of it.
func TestAddressOfATask(t *testing.T) {
	h := newHarness(t)
	for _, id := range []string{"x", "x/", "x/y", "50% of x?y#z", "é"} {
		var answer struct {
			Attributes struct{ URL string }
		}
		text := h.do(200, "POST", "/api/v1/rollups", fmt.Sprintf(`{"id":%q,"name":"n","execution_interval":%s,"rollups":[]}`, id, hour))
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		if got := h.do(200, "GET", answer.Attributes.URL, ""); !strings.Contains(got, fmt.Sprintf(`"id":%q`, id)) {
			t.Errorf("%s leads to %s, want the task %q", answer.Attributes.URL, got, id)
		}
	}
}

// The list of tasks is sent task by task, in small pieces. The task being sent is
// charged to the memory of queries, so that clients that do not read cannot exceed it
// together.
func TestListsThatNobodyReads(t *testing.T) {
	h := newHarness(t)
	h.restart(func(c *Config, q *query.Config) {
		c.MaxTaskSize, q.TotalMemory, q.MaxWait = 100<<10, 150<<10, time.Millisecond
	})
	const n = 20
	for i := range n {
		h.do(200, "POST", "/api/v1/rollups", fmt.Sprintf(`{"id":"t%02d","name":"%s","execution_interval":%s,"rollups":[]}`, i, strings.Repeat("n", 90<<10), hour))
	}
	inner, largest := 0, 0
	w := slowReader{httptest.NewRecorder(), func(p []byte) error {
		largest = max(largest, len(p))
		if inner == 0 {
			other := httptest.NewRecorder()
			h.mux.ServeHTTP(other, httptest.NewRequest("GET", "/api/v1/rollups/t05", nil))
			inner = other.Code
		}
		return nil
	}}
	h.mux.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/rollups", nil))
	var list []struct{ ID string }
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != n || list[n-1].ID != "t19" {
		t.Errorf("%d tasks: %v", len(list), err)
	}
	if largest > 16<<10 {
		t.Errorf("a piece of %d bytes", largest)
	}
	if inner != http.StatusServiceUnavailable {
		t.Errorf("another task was answered %d meanwhile", inner)
	}
	h.do(200, "GET", "/api/v1/rollups/t05", "")
}

// The status of a task is charged to the memory of queries until its client has received it: it
// repeats the names of the task, with six bytes for some of them.
func TestStatusThatNobodyReads(t *testing.T) {
	h := newHarness(t)
	h.restart(func(c *Config, q *query.Config) {
		c.MaxTaskSize, q.TotalMemory, q.MaxWait = 50<<10, 4<<20, time.Millisecond
	})
	st := &status{}
	for range 100 {
		st.Statuses = append(st.Statuses, metricStatus{MetricName: strings.Repeat("<", 800)})
	}
	if err := h.scheduler.catalogue.setJSON(t.Context(), statusKey, "t", st); err != nil {
		t.Fatal(err)
	}
	inner, open := 0, 0
	var read func()
	read = func() {
		open++
		w := slowReader{httptest.NewRecorder(), func([]byte) error {
			if inner == 0 && open < 20 {
				read()
			}
			return nil
		}}
		h.mux.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/rollups/status/t", nil))
		if w.Code != http.StatusOK {
			inner = w.Code
		}
	}
	read()
	if inner != http.StatusServiceUnavailable {
		t.Errorf("%d answers of half a megabyte each at once, in 4 MiB: status %d", open, inner)
	}
	h.do(200, "GET", "/api/v1/rollups/status/t", "")
}

// A client recognises a list that is cut off.
func TestListThatBreaksOff(t *testing.T) {
	h := newHarness(t)
	for _, id := range []string{"a", "b"} {
		h.do(200, "POST", "/api/v1/rollups", taskJSON(id, hour, hour, ""))
	}
	w := slowReader{httptest.NewRecorder(), func(p []byte) error {
		if strings.Contains(string(p), `"id":"b"`) {
			return errors.New("gone")
		}
		return nil
	}}
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("ended with %v", v)
		}
	}()
	h.mux.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/rollups", nil))
	t.Errorf("ended in order: %s", w.Body)
}

// TestAccessOfRoutes: a page of another origin may only read, and a route that starts
// something does not count as reading, whatever its method.
func TestAccessOfRoutes(t *testing.T) {
	for _, r := range new(Scheduler).Routes() {
		reads := r.Method == http.MethodOptions || r.Method == http.MethodGet && r.Path != "/api/v1/rollups/backfill/{id}"
		if r.Changes() == reads {
			t.Errorf("%s %s changes something: %t", r.Method, r.Path, r.Changes())
		}
	}
}

func TestIntervalBounds(t *testing.T) {
	for value, want := range map[string]bool{"-1": false, "0": false, "1": true, "2147483647": true, "2147483648": false} {
		_, err := readInterval(json.RawMessage(`{"value":` + value + `,"unit":"hours"}`))
		if (err == nil) != want {
			t.Errorf("an interval of %s hours: %v", value, err)
		}
	}
}

// A fault in the query of a task names its place in the task.
func TestFaultsOfTasksSayWhere(t *testing.T) {
	h := newHarness(t)
	good := `{"save_as":"a","query":{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"m","aggregators":[{"name":"sum","sampling":{"value":1,"unit":"hours"}}]}]}}`
	for old, path := range map[string]string{
		`"name":"sum"`:                 "rollups[1].query.metrics[0].aggregators[0]",
		`"value":1,"unit":"hours"}}]}`: "rollups[1].query.metrics[0].aggregators[0].sampling.value",
	} {
		bad := strings.Replace(good, old, strings.NewReplacer("sum", "summ", ":1,", `:"x",`).Replace(old), 1)
		w := httptest.NewRecorder()
		h.mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/rollups", strings.NewReader(
			`{"name":"t","execution_interval":{"value":1,"unit":"hours"},"rollups":[`+good+","+bad+`]}`)))
		if got := w.Header().Get(httpapi.ErrorPath); w.Code != 400 || got != path {
			t.Errorf("%s: %d %s, path %q, want %q", old, w.Code, w.Body, got, path)
		}
	}
	w := httptest.NewRecorder()
	h.mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/rollups", strings.NewReader(
		`{"name":"t","execution_interval":{"value":1,"unit":"hours"},"rollups":[{"save_as":"a","query":{}}]}`)))
	if got := w.Header().Get(httpapi.ErrorPath); w.Code != 400 || got != "" {
		t.Errorf("a fault without a place: %d %s, path %q", w.Code, w.Body, got)
	}
}

// No answer repeats a long text of a client.
func TestMessagesRepeatLittle(t *testing.T) {
	h := newHarness(t)
	long := strings.Repeat("x", 5000)
	for _, path := range []string{long, "status/" + long, "backfill/a?startTime=" + long, "backfill/" + long + "?startTime=2023-11-14-22-00-00-000"} {
		w := httptest.NewRecorder()
		h.mux.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/rollups/"+path, nil))
		if w.Code/100 != 4 || w.Body.Len() > 1000 {
			t.Errorf("%.40s: status %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
}

// Tasks being read and parsed are charged to the memory of queries. If others use all
// memory for large requests, a large task is refused as overload.
func TestLargeTasksTakeMemory(t *testing.T) {
	h := newHarness(t)
	h.restart(func(_ *Config, q *query.Config) { q.TotalMemory = 1 << 20 })
	held, err := h.scheduler.engine.ReadText(t.Context(), "", strings.NewReader(strings.Repeat(" ", 100<<10)), query.TextLimit{Max: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	task := func(id string, n int) string {
		return fmt.Sprintf(`{"id":"%s","name":"%s","execution_interval":%s,"rollups":[]}`, id, strings.Repeat("n", n), hour)
	}
	h.do(503, "POST", "/api/v1/rollups", task("large", 100<<10))
	h.do(200, "POST", "/api/v1/rollups", task("small", 50<<10))
	held.Close()
	h.do(200, "POST", "/api/v1/rollups", task("large", 100<<10))
}

// Tasks get random ids in the form of a UUID of version 4.
func TestNewID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		id := newID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("id %s", id)
		}
		seen[id] = true
	}
}

// TestStatusOfABusyServer: while other requests use up the memory for parsing, the status of a task
// is refused; an answer without the members that depend on its text would be wrong.
func TestStatusOfABusyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := brittleHarness(t, false)
		release := make(chan struct{})
		var others sync.WaitGroup
		for range 1000 {
			others.Go(func() {
				_ = h.scheduler.engine.Parse(t.Context(), "", query.LaneOf(1), func() error { <-release; return nil })
			})
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		h.mux.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/rollups/status/t", nil))
		close(release)
		others.Wait()
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("meanwhile the status is %d %s", w.Code, w.Body)
		}
		if got := h.do(200, "GET", "/api/v1/rollups/status/t", ""); !strings.Contains(got, `"lag":`) {
			t.Errorf("later the status is %s", got)
		}
	})
}

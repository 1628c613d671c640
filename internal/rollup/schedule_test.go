package rollup

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"varve/internal/store"
)

// The next execution is one interval after the last one was due, even if that ran late.
// Missed executions are not repeated.
func TestScheduleOfLateExecutions(t *testing.T) {
	h := newHarness(t)
	task, err := parseTask(h.scheduler.parser, []byte(taskJSON("t", minute, minute, "")), "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	due := time.UnixMilli(at(10, 0, 0))
	for late, want := range map[time.Duration]time.Duration{
		0: time.Minute, 30 * time.Second: time.Minute, time.Minute - 1: time.Minute, time.Minute: 2 * time.Minute, 5*time.Minute + 30*time.Second: 6*time.Minute + 30*time.Second,
	} {
		if got := task.after(due, due.Add(late)).Sub(due); got != want {
			t.Errorf("executed %v late: the next one is %v after it was due, want %v", late, got, want)
		}
	}
}

// At most MaxTasks tasks are stored, and the error contains the number that one more
// would be. An existing task can still be replaced.
func TestLimitOfTasks(t *testing.T) {
	h := newHarness(t)
	h.restart(nil)
	h.scheduler.config.MaxTasks = 2
	for _, id := range []string{"a", "b"} {
		h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON(id, minute, minute, ""), `"dst"`, `"dst-`+id+`"`, 1))
	}
	third, err := parseTask(h.scheduler.parser, []byte(taskJSON("c", minute, minute, "")), "c", nil)
	if err != nil {
		t.Fatal(err)
	}
	var limit *store.LimitError
	if err := h.scheduler.put(t.Context(), third, false); !errors.As(err, &limit) || limit.Need != 3 || limit.Max != 2 {
		t.Errorf("one more: %v", err)
	}
	h.do(200, "PUT", "/api/v1/rollups/b", taskJSON("b", hour, minute, ""))
}

// A few hundred small tasks with patterns that repeat much, or tasks with very many values, took more
// memory than a machine has, again after each restart. All tasks together have a bound. A task that
// exists can still be replaced by one that takes no more.
func TestMemoryOfTasks(t *testing.T) {
	h := newHarness(t)
	h.restart(nil)
	filters := map[string]string{
		"patterns": `"tags":{"host":["regex:x{990}y{990}"` + strings.Repeat(`,"regex:x{990}y{990}a"`, 11) + `]}`,
		"values":   `"tags":{"host":["a"`,
		"tags":     `"tags":{"t":"v"`,
		"groups":   `"group_by":[{"name":"tag","tags":[`,
	}
	for i := range 10_000 {
		filters["values"] += fmt.Sprintf(`,"v%d"`, i)
		filters["tags"] += fmt.Sprintf(`,"t%d":"v"`, i)
		if i < 1000 {
			filters["groups"] += fmt.Sprintf(`"g%d",`, i)
		}
	}
	filters["values"] += "]}"
	filters["tags"] += "}"
	filters["groups"] = strings.TrimSuffix(filters["groups"], ",") + `]}]`
	for kind, members := range filters {
		const tasks = 1000
		put := func(i, rollups int) (int, string) {
			body := fmt.Sprintf(`{"id":"%s%d","name":"t","execution_interval":{"value":1,"unit":"years"},"rollups":[`, kind, i)
			for k := range rollups {
				body += fmt.Sprintf(`%.*s{"save_as":"dst.%d.%d","query":{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"src.%d.%d",%s,`+
					`"aggregators":[{"name":"sum","sampling":{"value":1,"unit":"hours"}}]}]}}`, k, ",", i, k, i, k, members)
			}
			w := httptest.NewRecorder()
			h.mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/rollups", strings.NewReader(body+"]}")))
			return w.Code, w.Body.String()
		}
		before, stored := heap(), 0
		for ; stored < tasks; stored++ {
			if code, text := put(stored, 1); code != 200 {
				if code != 400 || !strings.Contains(text, "limit bytes of roll-up tasks in memory of 67108864 reached") {
					t.Fatalf("%s: %d %.300s", kind, code, text)
				}
				break
			}
		}
		if took := heap() - before; took > 1.5*64<<20 || stored < 5 || stored == tasks {
			t.Errorf("%s: %d tasks are accepted, and take %d MB", kind, stored, took>>20)
		}
		if code, text := put(0, 1); code != 200 {
			t.Errorf("%s: the same again: %d %.300s", kind, code, text)
		}
		if code, _ := put(0, 2); code != 400 {
			t.Errorf("%s: a larger one: %d", kind, code)
		}
		for i := range stored {
			h.do(204, "DELETE", fmt.Sprint("/api/v1/rollups/", kind, i), "")
		}
	}
	h.do(200, "POST", "/api/v1/rollups", taskJSON("", minute, minute, ""))
}

// heap is the memory of what is reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A browser gets an answer to its preflight.
func TestPreflight(t *testing.T) {
	h := newHarness(t)
	for asked, want := range map[string]string{"DELETE": "DELETE", "": ""} {
		r := httptest.NewRequest("OPTIONS", "/api/v1/rollups", nil)
		if asked != "" {
			r.Header.Set("Access-Control-Request-Method", asked)
		}
		w := httptest.NewRecorder()
		h.mux.ServeHTTP(w, r)
		if got := w.Header().Get("Access-Control-Allow-Methods"); w.Code >= 300 || asked != "" && got != want {
			t.Errorf("asked for %q: %d, allowed %q", asked, w.Code, got)
		}
	}
}

package rollup

import (
	"errors"
	"net/http/httptest"
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

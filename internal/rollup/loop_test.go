package rollup

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// flowJSON is a task that reads one metric and writes another.
func flowJSON(id, from, to, tags, more string) string {
	return fmt.Sprintf(`{"id":%q,"name":"n","execution_interval":%s,"rollups":[{"save_as":%q,"query":{"start_absolute":1,"metrics":[`+
		`{"name":%q,"tags":{%s},"group_by":[{"name":"tag","tags":["host"]}],"aggregators":[{"name":"sum","sampling":%s}%s]}]}}]}`, id, hour, to, from, tags, hour, more)
}

// A task must not read what it writes, directly or through others.
func TestLoopsAreRefused(t *testing.T) {
	h := newHarness(t)
	const saves = `,{"name":"save_as","metric_name":"a"}`
	for _, one := range []struct {
		id, from, to, tags, more, want string // want: "" if it is taken
	}{
		{"self", "a", "a", "", "", "rollup[0].query[0] would read its own results (a -> a)"},
		{"self", "a", "a", `"host":"x"`, "", "(a -> a)"},
		{"self", "a", "a", `"dc":"x"`, "", ""}, // results have no dc
		{"self", "a", "b", "", saves, "(a -> a)"},
		{"self", "a", "b", "", "", ""},
		{"second", "b", "c", "", "", ""},
		{"third", "c", "a", "", "", "(c -> a -> b -> c)"},
		{"third", "c", "d", "", "", ""},
		{"third", "c", "e", "", saves, "(c -> a -> b -> c)"},
		{"second", "b", "a", "", "", "(b -> a -> b)"},
		{"self", "d", "b", "", "", "(d -> b -> c -> d)"},
		{"self", "d", "b", `"saved_from":"z"`, "", ""}, // d comes from c
		{"self", "d", "b", `"saved_from":"c"`, "", "(d -> b -> c -> d)"},
		{"self", "d", "b", `"saved_from":"regex:[a-c]"`, "", "(d -> b -> c -> d)"},
		{"fourth", "f", "g", `"host":"x"`, "", ""},
		{"fifth", "g", "f", `"host":"y"`, "", ""}, // no result of f has that host
		{"fifth", "g", "f", `"host":["x","y"]`, "", "(g -> f -> g)"},
	} {
		status := 200
		if one.want != "" {
			status = 400
		}
		if got := h.do(status, "POST", "/api/v1/rollups", flowJSON(one.id, one.from, one.to, one.tags, one.more)); !strings.Contains(strings.ReplaceAll(got, `\u003e`, ">"), one.want) {
			t.Errorf("%v: %s", one, got)
		}
	}
	// Both in one task.
	if got := h.do(400, "POST", "/api/v1/rollups", `{"id":"two","name":"n","execution_interval":`+hour+`,"rollups":[`+
		`{"save_as":"q","query":{"start_absolute":1,"metrics":[{"name":"p","aggregators":[{"name":"sum"}]}]}},`+
		`{"save_as":"p","query":{"start_absolute":1,"metrics":[{"name":"x","aggregators":[{"name":"sum"}]},{"name":"q","aggregators":[{"name":"sum"}]}]}}]}`); !strings.Contains(got, "rollup[0].query[0] would read") {
		t.Error(got)
	}
}

// A loop that KairosDB has stored keeps running, and is logged once.
func TestStoredLoopIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		var log logText
		h.scheduler.log = slog.New(slog.NewTextHandler(&log, nil))
		for range 3 {
			if err := h.scheduler.catalogue.set(context.Background(), configKey, "t", flowJSON("t", "a", "a", "", "")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			h.scheduler.Load(context.Background())
		}
		if n := strings.Count(log.String(), "reads its own results"); n != 1 || h.scheduler.count() != 1 {
			t.Errorf("told %d times, %d tasks\n%s", n, h.scheduler.count(), log.String())
		}
	})
}

// Tasks whose results overwrite each other are accepted, as by KairosDB, and logged
// once.
func TestOverlapsAreTold(t *testing.T) {
	h := newHarness(t)
	var log logText
	h.scheduler.log = slog.New(slog.NewTextHandler(&log, nil))
	for _, one := range []struct {
		id, from, to, tags, more string
		told                     string
	}{
		{"a", "x", "x.1h", `"host":["1","2"]`, "", ""},
		{"b", "y", "x.1h", "", "", ""}, // its results have another saved_from
		{"c", "x", "x.1h", `"host":"3"`, "", ""},
		{"d", "x", "x.2h", "", "", ""},
		{"e", "x", "x.1h", `"host":["2","4"]`, "", "id=a query=rollup[0].query[0] other_id=e other_query=rollup[0].query[0]"},
		{"e", "x", "x.1h", `"host":["2","4"]`, "", ""}, // told before
		{"e", "x", "x.1h", `"host":"4"`, "", ""},
		{"e", "x", "x.1h", `"host":["9","regex:3"]`, "", "other_id=e"}, // any host
		{"e", "x", "x.1h", `"host":"4"`, "", ""},
		{"e", "x", "x.1h", `"dc":"9"`, "", "other_id=e"}, // any host
	} {
		before := log.String()
		h.do(200, "POST", "/api/v1/rollups", flowJSON(one.id, one.from, one.to, one.tags, one.more))
		h.scheduler.warnOfFlows()
		fresh := strings.TrimPrefix(log.String(), before)
		if told := strings.Contains(fresh, "replaces the other"); told != (one.told != "") || !strings.Contains(fresh, one.told) {
			t.Errorf("%v: %s", one, fresh)
		}
	}
	// Two queries of one task.
	log.Reset()
	query := `{"save_as":"q","query":{"start_absolute":1,"metrics":[{"name":"p","aggregators":[{"name":"sum","sampling":` + hour + `}]}]}}`
	h.do(200, "POST", "/api/v1/rollups", `{"id":"f","name":"n","execution_interval":`+hour+`,"rollups":[`+query+`,`+query+`]}`)
	h.scheduler.warnOfFlows()
	if !strings.Contains(log.String(), "id=f query=rollup[0].query[0] other_id=f other_query=rollup[1].query[0]") {
		t.Error(log.String())
	}
}

// A comparison of many flows with many values into one metric ends early.
func TestOverlapsAreBounded(t *testing.T) {
	var many task
	values := make([]string, 10_000)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	many.rollups = make([]rollup, 1)
	for i := range 200 {
		tags := map[string][]string{"host": slices.Clone(values)}
		for k := range tags["host"] {
			tags["host"][k] += fmt.Sprint("-", i) // none in common
		}
		many.rollups[0].flows = append(many.rollups[0].flows, flow{from: "a", to: "b", tags: tags})
	}
	c := &comparison{writersOf([]*task{&many}), comparisonSteps}
	if o := c.overlapOf(&many); o != nil || c.left > 0 {
		t.Errorf("overlap %v, %d steps are left", o, c.left)
	}
	if c.left < -len(values)*len(values) {
		t.Errorf("%d steps too many", -c.left)
	}
}

// A limit applies to each bucket, however the buckets are computed.
func TestLimit(t *testing.T) {
	for name, want := range map[string]string{
		"asc":  "{saved_from=src} 2000-01-01T00:00 3\n{saved_from=src} 2000-01-01T01:00 21\n{saved_from=src} 2000-01-01T02:00 39\n",
		"desc": "{saved_from=src} 2000-01-01T00:00 12\n{saved_from=src} 2000-01-01T01:00 30\n{saved_from=src} 2000-01-01T02:00 48\n",
	} {
		h := newHarness(t)
		for i := range 18 {
			h.put("src", "a", i, at(0, 10*i, 0))
		}
		body := `{"id":"t","name":"n","execution_interval":` + hour + `,"rollups":[{"save_as":"dst","query":{"start_absolute":1,"metrics":[` +
			`{"name":"src","limit":3,"order":"` + name + `","aggregators":[{"name":"sum","sampling":` + hour + `}]}]}}]}`
		h.do(200, "POST", "/api/v1/rollups", body)
		h.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-02-59-59-999", "")
		h.wantPoints("dst", want)
		// rate would read 60 buckets before its batch, and the limit would count their
		// points.
		rate := strings.Replace(body, `]}]}}]}`, `,{"name":"sum","sampling":`+hour+`}],"x":0}]}}]}`, 1)
		rate = strings.Replace(strings.Replace(rate, `"aggregators":[`, `"aggregators":[{"name":"diff"},`, 1), `"dst"`, `"diffs"`, 1)
		h.do(200, "PUT", "/api/v1/rollups/t", rate)
		h.do(204, "GET", "/api/v1/rollups/backfill/t?startTime=2000-01-01-01-00-00-000&endTime=2000-01-01-01-59-59-999", "")
		if got := h.points("diffs"); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "{saved_from=src} 2000-01-01T01:00 ") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A backfill lets tasks run between its batches. The number of backfills is bounded.
func TestBackfillsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.restart(func(c *Config, _ *query.Config) { c.MaxConcurrent, c.BatchBuckets = 1, 60 })
		for i := range 3 {
			h.put("src", "a", 1, at(i, 0, 0))
		}
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
		time.Sleep(12 * time.Hour)
		const path = "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-02-59-59-999"
		s := h.scheduler
		h.do(405, "HEAD", path, "")
		h.wantPoints("dst", "")
		if err := s.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); h.do(204, "GET", path, "") }()
		synctest.Wait() // for the place
		runs := make(chan struct{})
		go func() {
			if err := s.enter(t.Context()); err != nil {
				t.Error(err)
			}
			<-runs
			s.leave()
		}()
		synctest.Wait()
		s.leave()
		synctest.Wait() // a batch is done, and the run has begun
		if got := strings.Count(h.points("dst"), "\n"); got != 1 {
			t.Errorf("%d buckets before the run", got)
		}
		close(runs)
		<-ended
		if got := strings.Count(h.points("dst"), "\n"); got != 3 {
			t.Errorf("%d buckets", got)
		}
		for range maxBackfills {
			s.fills <- struct{}{}
		}
		h.do(503, "GET", path, "")
	})
}

// A failure is logged when it begins, once an hour, and when it ends.
func TestFailuresAreToldSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.restart(func(_ *Config, q *query.Config) { q.MaxSamples = 1 })
		var log logText
		h.scheduler.log = slog.New(slog.NewTextHandler(&log, nil))
		h.start()
		defer func() { h.stop() }()
		h.put("src", "a", 1, at(0, 0, 1), at(0, 0, 2))
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(150*time.Minute + 30*time.Second) // between two runs
		synctest.Wait()
		if n := strings.Count(log.String(), "roll-up task failed"); n != 3 || !strings.Contains(log.String(), "failures=1\n") || !strings.Contains(log.String(), "failures=121\n") {
			t.Errorf("told %d times\n%s", n, log.String())
		}
		log.Reset()
		if err := h.store.Delete(context.Background(), deletionOf("src")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "roll-up task runs again") || !strings.Contains(got, "failures=150\n") {
			t.Error(got)
		}
	})
}

// A task runs once a second at most, and the number of its queries is bounded.
func TestTaskBounds(t *testing.T) {
	h := newHarness(t)
	if got := h.do(400, "POST", "/api/v1/rollups", taskJSON("t", `{"value":999,"unit":"milliseconds"}`, hour, "")); !strings.Contains(got, "executionInterval is 999 milliseconds, must be at least 1s") {
		t.Error(got)
	}
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", `{"value":1000,"unit":"milliseconds"}`, hour, ""))
	stored, err := parseTask(h.scheduler.parser, []byte(taskJSON("t", `{"value":1,"unit":"milliseconds"}`, hour, "")), "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if now := time.Now(); stored.next(now).Sub(now) != time.Second {
		t.Errorf("a task of KairosDB runs after %s", stored.next(now).Sub(now))
	}
	metric := `{"name":"m","aggregators":[{"name":"sum"}]}`
	many := func(n int) string {
		return `{"id":"u","name":"n","execution_interval":` + hour + `,"rollups":[{"save_as":"dst","query":{"start_absolute":1,"metrics":[` + strings.Repeat(metric+",", n-1) + metric + `]}}]}`
	}
	if got := h.do(400, "POST", "/api/v1/rollups", many(maxMetrics+1)); !strings.Contains(got, "201 metrics in their queries, may have at most 200") {
		t.Error(got)
	}
	h.do(200, "POST", "/api/v1/rollups", many(maxMetrics))
	for body, want := range map[string]string{
		`{"name":"n","executionInterval":` + hour + `,"rollups":[]}`:                                     `\"executionInterval\" is not read; the member is called execution_interval`,
		`{"name":"n","execution_interval":` + hour + `,"rollups":[{"saveAs":"x"}]}`:                      `\"saveAs\" is not read; the member is called save_as`,
		`{"name":"n","execution_interval":` + hour + `,"rollups":[{"save_as":"x","time_zone":["UTC"]}]}`: `rollup[0].time_zone [\"UTC\"] is not a time zone`,
		strings.Repeat("[", 100_000): "roll-up task: ",
	} {
		if got := h.do(400, "POST", "/api/v1/rollups", body); !strings.Contains(got, want) {
			t.Errorf("%.100s: %s", body, got)
		}
	}
}

func deletionOf(metric string) store.Deletion {
	return store.Deletion{Metric: metric, Range: model.AllTime}
}

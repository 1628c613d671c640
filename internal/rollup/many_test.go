package rollup

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"varve/internal/kairos/agg"
	"varve/internal/model"
)

// feeding are tasks of which n flows write a metric that n others read. With tags, no flow reads
// what another one writes, which only a comparison of all with all finds out.
func feeding(n int, tags bool) []*task {
	first, second := &task{id: "first", rollups: make([]rollup, 1)}, &task{id: "second", rollups: make([]rollup, 1)}
	for i := range n {
		f, g := flow{from: "a", to: "m", tags: map[string][]string{}}, flow{from: "m", to: "b", tags: map[string][]string{}}
		if tags {
			f.tags["host"] = []string{fmt.Sprint("written", i)}
			g.matchers = []model.Matcher{{Tag: "host", Values: []string{fmt.Sprint("read", i)}}}
		}
		first.rollups[0].flows = append(first.rollups[0].flows, f)
		second.rollups[0].flows = append(second.rollups[0].flows, g)
	}
	return []*task{first, second}
}

// However many flows read what many flows write, the search for a loop ends.
func TestLoopSearchIsBounded(t *testing.T) {
	one := func(from, to string) *task {
		return &task{id: "one", rollups: []rollup{{flows: []flow{{context: "rollup[0].query[0]", from: from, to: to, tags: map[string][]string{}}}}}}
	}
	const n = 30_000
	for _, tc := range []struct {
		from, to string
		tags     bool
		want     string // "": no error
	}{
		{"x", "a", false, ""},
		{"b", "a", false, "(b -> a -> m -> b)"},
		{"x", "a", true, "in too many ways to find out whether this task would read its own"},
		{"x", "y", true, ""},
	} {
		x, added := newIndex(feeding(n, tc.tags)...), one(tc.from, tc.to)
		x.set(added.id, added)
		err := x.checkLoops(added)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	values := make([]string, 10_000)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	written := one("x", "y")
	written.rollups[0].flows[0].tags["host"] = values
	reader := one("y", "z")
	reader.rollups[0].flows[0].matchers = []model.Matcher{{Tag: "host", Values: make([]string, 10_000)}}
	reader.id = "reader"
	s := loopSearch{newIndex(written, reader).readers, loopSteps}
	if err := s.check(written); err != nil || s.left >= 0 {
		t.Errorf("%v, %d steps are left after comparing 10,000 values with 10,000", err, s.left)
	}
}

// At most maxReaders queries of all tasks read one metric. A task that has as many as before can
// still be changed.
func TestReadersOfAMetricAreBounded(t *testing.T) {
	h := newHarness(t)
	body := func(id, name string, n int) string {
		query := `{"name":"m","aggregators":[{"name":"sum","sampling":` + hour + `}]}`
		return fmt.Sprintf(`{"id":%q,"name":%q,"execution_interval":%s,"rollups":[{"save_as":"to-%s","query":{"start_absolute":1,"metrics":[%s]}}]}`,
			id, name, hour, id, strings.Repeat(query+",", n-1)+query)
	}
	for i := range maxReaders / maxMetrics {
		h.do(200, "POST", "/api/v1/rollups", body(fmt.Sprint(i), "n", maxMetrics))
	}
	want := fmt.Sprintf("limit roll-up queries of one metric of %d reached, at least %d needed: store a roll-up task that reads m", maxReaders, maxReaders+1)
	if got := h.do(400, "POST", "/api/v1/rollups", body("more", "n", 1)); !strings.Contains(got, want) {
		t.Error(got)
	}
	h.do(200, "PUT", "/api/v1/rollups/0", body("0", "another name", maxMetrics))
	h.do(200, "PUT", "/api/v1/rollups/0", body("0", "n", maxMetrics-1))
	h.do(200, "POST", "/api/v1/rollups", body("more", "n", 1))
}

// countingParser counts the queries that it parses.
type countingParser struct {
	Parser
	queries atomic.Int64
}

func (p *countingParser) ParseQuery(text []byte) (agg.Query, error) {
	p.queries.Add(1)
	return p.Parser.ParseQuery(text)
}

// A change of one task does not parse the others again.
func TestUnchangedTasksAreNotParsed(t *testing.T) {
	h := newHarness(t)
	const tasks = 10
	for i := range tasks {
		h.do(200, "POST", "/api/v1/rollups", strings.ReplaceAll(taskJSON(fmt.Sprint(i), hour, hour, ""), `"dst"`, fmt.Sprintf(`"dst%d"`, i)))
	}
	parser := &countingParser{Parser: h.scheduler.parser}
	h.scheduler.parser = parser
	text := strings.ReplaceAll(taskJSON("5", minute, hour, ""), `"dst"`, `"other"`)
	if !json.Valid([]byte(text)) {
		t.Fatal(text)
	}
	if err := h.scheduler.catalogue.set(context.Background(), configKey, "5", text); err != nil { // as another server does
		t.Fatal(err)
	}
	h.scheduler.Load(context.Background())
	if n := parser.queries.Load(); n != 1 {
		t.Errorf("%d queries were parsed after a change of one", n)
	}
	if got := h.scheduler.known("5").rollups[0].saveAs; got != "other" {
		t.Errorf("the changed task saves as %s", got)
	}
}

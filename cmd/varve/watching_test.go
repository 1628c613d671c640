package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// metricName matches the names of metrics in an expression.
var metricName = regexp.MustCompile(`\b(?:varve|process|go)_[a-z0-9_]+\b`)

// onOccasion are metrics with labels that a server shows once there was something to
// count, and the file of the source that counts it.
var onOccasion = map[string]string{
	"varve_spool_refused_batches_total":     "internal/spool/metrics.go",
	"varve_cassandra_samples_dropped_total": "internal/cassandra/kairosrows/write/metrics.go",
}

// TestWatching: each metric of the dashboard and the alert rules is one that a server
// has, over one store or the other.
func TestWatching(t *testing.T) {
	p := start(t, t.TempDir())
	p.do("POST", "/api/v1/datapoints", `[{"name":"a","datapoints":[[1700000000000,1]],"tags":{"host":"a"}}, {"name":"b"}]`)
	p.do("POST", "/api/v1/datapoints/query", `{"start_absolute":1,"metrics":[{"name":"a"}]}`)
	away := start(t, t.TempDir(), "--store=cassandra", "--cassandra-hosts=127.0.0.1:1", "--timeline-spool=journal")
	has := map[string]bool{"up": true}
	for _, server := range []*process{p, away} {
		for _, name := range server.metricNames() {
			has[name] = true
		}
	}
	for name, file := range onOccasion {
		source, err := os.ReadFile(filepath.Join("..", "..", file))
		short := name[strings.Index(name[6:], "_")+7:]
		if err != nil || !strings.Contains(string(source), `"`+short+`"`) {
			t.Errorf("%s counts no %s (%v)", file, short, err)
		}
		has[name] = true
	}
	used := slices.Concat(expressions(t), rulesOf(t).expressions())
	seen := map[string]bool{}
	for _, expr := range used {
		for _, name := range metricName.FindAllString(expr, -1) {
			seen[name] = true
			if !has[name] {
				t.Errorf("no server has %s of %s", name, expr)
			}
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d metrics are looked at", len(seen))
	}
}

// metricNames lists the names of samples that p shows to Prometheus.
func (p *process) metricNames() (names []string) {
	p.t.Helper()
	response, err := http.Get("http://" + p.http + "/internal/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %v", response.Status, err)
	}
	for line := range strings.Lines(string(text)) {
		if end := strings.IndexAny(line, "{ "); end > 0 {
			names = append(names, line[:end])
		}
	}
	return names
}

// expressions lists those of the dashboard. Each panel has a place of its own.
func expressions(t *testing.T) (list []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "grafana", "varve.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for i, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || (len(p.Targets) == 0) != (p.Type == "row") || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d: %+v", i, p)
		}
		ids[p.ID] = true
		for _, other := range board.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies on %s", p.Title, other.Title)
			}
		}
		for _, target := range p.Targets {
			list = append(list, target.Expr)
		}
	}
	return list
}

// An alert is one of the rules.
type alert struct {
	Alert, Expr string
	Labels      struct{ Severity string }
	Annotations struct{ Summary, Description, Runbook string }
}

type alerts []alert

func (all alerts) expressions() (list []string) {
	for _, a := range all {
		list = append(list, a.Expr)
	}
	return list
}

func rulesOf(t *testing.T) alerts {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "varve.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules alerts } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Groups[0].Rules
}

// TestRunbooks: each alert has a section in docs/operations.md and a test for promtool,
// and each section an alert.
func TestRunbooks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "varve.rules.test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Varve\w+)$`).FindAllStringSubmatch(string(page), -1) {
		sections[m[1]] = true
	}
	all := rulesOf(t)
	for _, a := range all {
		if !sections[a.Alert] || a.Annotations.Runbook != "docs/operations.md#"+strings.ToLower(a.Alert) || a.Annotations.Summary == "" {
			t.Errorf("%s: section %t, %+v", a.Alert, sections[a.Alert], a.Annotations)
		}
		if a.Labels.Severity != "warning" && a.Labels.Severity != "critical" {
			t.Errorf("%s has the severity %q", a.Alert, a.Labels.Severity)
		}
		if !strings.Contains(string(tests), "  - name: "+a.Alert+"\n") || !strings.Contains(string(tests), "alertname: "+a.Alert+"}") {
			t.Errorf("%s is not tried: when it fires, and when not", a.Alert)
		}
		delete(sections, a.Alert)
	}
	if len(sections) > 0 || len(all) < 20 {
		t.Errorf("%d alerts; sections without one: %v", len(all), sections)
	}
}

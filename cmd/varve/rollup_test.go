package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A task that was stored before the server was killed runs after the next start
// and fills what was missed.
func TestRollup(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	status, body := p.do("POST", "/api/v1/rollups/", `{"id":"t","name":"n","execution_interval":{"value":1,"unit":"SECONDS"},"rollups":[{"save_as":"sums","query":{
		"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"raw","group_by":[{"name":"tag","tags":["host"]}],"aggregators":[{"name":"sum","sampling":{"value":1,"unit":"SECONDS"}}]}]}}]}`)
	if status != 200 {
		t.Fatal(status, body)
	}
	now := time.Now().UnixMilli()
	p.put(fmt.Sprintf("putm raw %d 2 host=a", now))
	p.values("sums", 1)
	// The status is stored after the points of a run.
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		status, body := p.do("GET", "/api/v1/rollups/status/t/", "")
		if status == 200 && strings.Contains(body, `"save_as":"sums"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(status, body)
		}
	}
	p.put(fmt.Sprintf("putm raw %d 2 host=a", now+1000)) // another bucket
	p.values("raw", 2)
	p.settle()
	p.kill()
	p = start(t, dir)
	p.values("sums", 2)
	if _, body := p.do("GET", "/internal/metrics", ""); !strings.Contains(body, `varve_rollup_runs_total{outcome="ok"}`) {
		t.Error("no metrics")
	}
	// Points that are days late come in by an import while no server runs, and
	// right before the server is killed.
	p.put(fmt.Sprintf("putm raw %d 3 host=late", now-172_800_000))
	p.values("raw", 3)
	p.settle()
	p.kill()
	file := filepath.Join(t.TempDir(), "late")
	line := fmt.Sprintf(`{"name":"raw","tags":{"host":"late"},"datapoints":[[%d,4]]}`, now-86_400_000)
	if err := os.WriteFile(file, []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, 0, "import", "--create", "--data-dir", dir, "-f", file)
	p = start(t, dir)
	p.values("sums", 4)
	p.stop(os.Interrupt)
}

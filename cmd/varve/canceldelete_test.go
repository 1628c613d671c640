package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/layout"
	"varve/internal/originals"
)

// TestLongWorkOverCassandra cancels a delete job of one server at another one,
// starts the first again, and repairs the keyspace by a command that is
// interrupted and given once more.
func TestLongWorkOverCassandra(t *testing.T) {
	address := originals.Cassandra(t)
	config := cqltest.Config(address)
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	dir := t.TempDir()
	yaml := filepath.Join(dir, "varve.yaml")
	text := fmt.Sprintf("store: cassandra\ncassandra:\n  hosts: [%q]\n  keyspace: %s\n  schema: {create: keyspace}\n", address, config.Keyspace)
	if err := os.WriteFile(yaml, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	serve := func(name string) *process {
		p := start(t, filepath.Join(dir, name), "--config", yaml, "--tune=cassandra.delete.job_rows=100", "--tune=cassandra.delete.parallel=1")
		t.Cleanup(p.kill)
		for until := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if _, answer := p.do("GET", "/admin/cassandra", ""); strings.Contains(answer, `"keyspace":{`) {
				return p
			} else if time.Now().After(until) {
				t.Fatal(answer)
			}
		}
	}
	works, other := serve("works"), serve("other")

	const series, rows = 500, 3 * 500 // three row times
	var points []string
	for i := range series {
		points = append(points, fmt.Sprintf(`{"name":"load","tags":{"host":"h%d"},"datapoints":[[1700000000000,1],[1703000000000,1],[1706000000000,1]]}`, i))
	}
	if status, answer := works.do("POST", "/api/v1/datapoints", "["+strings.Join(points, ",")+"]"); status != 204 {
		t.Fatal(status, answer)
	}
	if status, answer := works.do("POST", "/admin/flush", ""); status != 204 {
		t.Fatal(status, answer)
	}
	job := func(p *process, state string) (j layout.Job, ok bool) {
		_, answer := p.do("GET", "/admin/deletes", "")
		var listed struct{ Jobs []layout.Job }
		if err := json.Unmarshal([]byte(answer), &listed); err != nil || len(listed.Jobs) > 1 {
			t.Fatal(answer, err)
		}
		if len(listed.Jobs) == 0 {
			return j, false
		}
		return listed.Jobs[0], listed.Jobs[0].State == state
	}
	told := make(chan string, 1)
	go func() {
		status, answer := works.do("POST", "/api/v1/datapoints/delete", `{"start_absolute":0,"metrics":[{"name":"load"}]}`)
		told <- fmt.Sprint(status, " ", answer)
	}()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, ok := job(other, layout.JobRunning); ok {
			break
		} else if time.Now().After(until) {
			t.Fatal("the job is not listed at the other server")
		}
	}
	running, _ := job(other, "")
	for until := time.Now().Add(2 * time.Minute); ; {
		status, answer := other.do("DELETE", "/admin/deletes/"+running.ID, "")
		if status == 200 && strings.Contains(answer, `"state":"cancelled"`) && strings.Contains(answer, fmt.Sprintf("of %d rows were done", rows)) {
			break
		}
		if status != 202 || !strings.Contains(answer, `"state":"cancelling"`) || time.Now().After(until) {
			t.Fatal(status, answer)
		}
	}
	if text := <-told; !strings.HasPrefix(text, "400 ") || !strings.Contains(text, "was cancelled") {
		t.Errorf("who waits for the delete is told: %s", text)
	}
	if status, answer := other.do("DELETE", "/admin/deletes/nothing", ""); status != 404 || !strings.Contains(answer, "GET /admin/deletes") {
		t.Error(status, answer)
	}
	left := func(p *process) int {
		_, answer := p.do("POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"load","aggregators":[{"name":"count","sampling":{"value":100,"unit":"years"}}]}]}`)
		_, text, _ := strings.Cut(answer, `"sample_size":`)
		n := 0
		fmt.Sscan(strings.Split(text, ",")[0], &n)
		return n
	}
	cancelled, ok := job(works, layout.JobCancelled)
	rest := left(other)
	if !ok || rest == 0 || rest == rows || cancelled.Done != rows-rest {
		t.Errorf("%d samples are left, the job is %+v", rest, cancelled)
	}
	works.stop(syscall.SIGTERM)
	works = serve("works")
	time.Sleep(time.Second) // it looks for jobs at once
	if _, ok := job(works, layout.JobCancelled); !ok || left(works) != rest {
		t.Errorf("after a restart %d samples are left of %d", left(works), rest)
	}

	state := filepath.Join(dir, "repair.state")
	// Before it comes to the rows, the repair reads the index of tags, of which the delete may have left all.
	command := exec.Command(binary, "repair", "--config", yaml, "--state", state, "--rate", fmt.Sprint(rows/20))
	var out bytes.Buffer
	command.Env, command.Stdout, command.Stderr = []string{}, &out, &out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(2*time.Minute, func() { command.Process.Kill() })
	defer hang.Stop()
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if text, _ := os.ReadFile(state); strings.Contains(string(text), `"Rows":`) && !strings.Contains(string(text), `"Rows":0,`) {
			break
		} else if time.Now().After(until) {
			t.Fatal("nothing is written down: ", string(text))
		}
	}
	command.Process.Signal(os.Interrupt)
	if err := command.Wait(); err == nil || !strings.Contains(out.String(), "interrupted; to continue, run the same command again") {
		t.Fatalf("%v, %s", err, &out)
	}
	again := []string{"repair", "--config", yaml, "--state", state}
	wantRun(t, 1, []string{"belongs to a repair of keyspace " + config.Keyspace, "remove it to begin again"}, append(again, "--dry-run")...)
	status, report, stderr := once(t, nil, again...)
	count := func(what string) (n int) {
		for line := range strings.Lines(report) {
			if number, ok := strings.CutSuffix(strings.TrimSpace(line), "  "+what); ok {
				fmt.Sscan(number, &n)
			}
		}
		return n
	}
	// On a slow machine, the cancelled delete had no time to remove all index rows.
	keys, removed := count("row keys"), count("row keys without samples: removed")
	if status != 0 || !strings.Contains(report+stderr, "continuing the repair of") || count("rows of data_points") != rest || keys-removed != rest || count("rows without index") != 0 {
		t.Errorf("repair after %d of %d rows were deleted: status %d\n%s%s", rows-rest, rows, status, report, stderr)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state of a repair that is complete is left: %v", err)
	}
}

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// varve is a Varve server in a directory of its own.
type varve struct {
	*process
	dir        string
	http, line string
	pprof      string
}

// buildVarve compiles the server from the sources around.
func buildVarve(dir string) (binary string, err error) {
	binary = filepath.Join(dir, "varve")
	build := exec.Command("go", "build", "-o", binary, "varve/cmd/varve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build varve: %w\n%s", err, out)
	}
	return binary, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func startVarve(binary, dir string) (*varve, error) {
	v := &varve{dir: filepath.Join(dir, "data")}
	var err error
	if v.http, err = freeAddr(); err != nil {
		return nil, err
	}
	if v.line, err = freeAddr(); err != nil {
		return nil, err
	}
	if v.pprof, err = freeAddr(); err != nil {
		return nil, err
	}
	v.process, err = startProcess(binary, "serve", "--data-dir", v.dir, "--http-addr", v.http,
		"--telnet-addr", v.line, "--server-pprof-addr", v.pprof)
	if err != nil {
		return nil, err
	}
	for range 100 {
		if r, err := http.Get("http://" + v.http + "/api/v1/health/check"); err == nil {
			r.Body.Close()
			return v, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, fmt.Errorf("server is not ready after 5 s: %w", v.stop())
}

func (v *varve) post(path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.Post("http://"+v.http+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode >= 300 {
		return fmt.Errorf("POST %s: %s: %s", path, r.Status, got)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(got, answer)
}

// settle writes everything to files and merges them.
func (v *varve) settle() error { return v.post("/admin/compact", nil, nil) }

type object = map[string]any

// counts returns the number of points of each host's series of one metric.
func (v *varve) counts(w workload, metric string) (map[string]int, error) {
	var answer struct {
		Queries []struct {
			Results []struct {
				Tags   map[string][]string
				Values [][2]float64
			}
		}
	}
	err := v.post("/api/v1/datapoints/query", object{
		"start_absolute": w.startMS, "end_absolute": w.endMS(),
		"metrics": []object{{
			"name":        metric,
			"group_by":    []object{{"name": "tag", "tags": []string{"host"}}},
			"aggregators": []object{{"name": "count", "sampling": object{"value": 10, "unit": "years"}}},
		}},
	}, &answer)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int)
	for _, r := range answer.Queries[0].Results {
		for _, value := range r.Values {
			counts[r.Tags["host"][0]] += int(value[1])
		}
	}
	return counts, nil
}

// missing returns how many points of w the server does not have, and an error
// if it has any too many.
func (v *varve) missing(w workload) (int64, error) {
	var missing int64
	for m := range metricsPerHost {
		counts, err := v.counts(w, metricName(m))
		if err != nil {
			return 0, err
		}
		for h := range w.hosts {
			n := counts[hostName(h)]
			if n > w.steps {
				return 0, fmt.Errorf("%s of %s has %d points, %d were sent", metricName(m), hostName(h), n, w.steps)
			}
			missing += int64(w.steps - n)
		}
	}
	return missing, nil
}

// awaitIngest waits until the server says that it has acknowledged n samples:
// put lines have no answer.
func (v *varve) awaitIngest(n int64) error {
	const patience = 15 * time.Second
	var had float64
	for moved := time.Now(); time.Since(moved) < patience; time.Sleep(50 * time.Millisecond) {
		got, err := v.metric("varve_store_appended_samples_total")
		if err != nil {
			return err
		}
		if int64(got) >= n {
			return nil
		}
		if got > had {
			had, moved = got, time.Now()
		}
	}
	return fmt.Errorf("server has %.0f of %d points and gets no further in %v; it refused:\n%s", had, n, patience, v.get("/admin/rejected"))
}

// get returns the start of what the server answers.
func (v *varve) get(path string) string {
	r, err := http.Get("http://" + v.http + path)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, 1000))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// metric reads one of the server's own metrics.
func (v *varve) metric(name string) (float64, error) {
	r, err := http.Get("http://" + v.http + "/internal/metrics")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("server has no metric %s", name))
}

// profile writes a CPU profile of the server over the given time.
func (v *varve) profile(path string, length time.Duration) error {
	r, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", v.pprof, length.Seconds()))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

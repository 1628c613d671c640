package clients

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"varve/e2e/process"
)

// recordings returns the files recorded from clients, each once. Tests of the
// single front ends use the same files.
func recordings(t *testing.T, suffix string) []string {
	t.Helper()
	byName := map[string]string{}
	for _, pattern := range []string{"internal/ingest/*/testdata/clients/*", "internal/kairos/testdata/clients/*"} {
		files, err := filepath.Glob(filepath.Join(root, pattern+suffix))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			byName[filepath.Base(file)] = file
		}
	}
	return slices.Sorted(maps.Values(byName))
}

// contents are the points of a store in the simplest form: a value for each
// series and time, "metric{tag=value,…} time", with numbers as Go prints a
// float64.
type contents map[string]string

func (c contents) add(metric string, tags map[string]string, ms int64, value string) {
	var pairs []string
	for name, v := range tags {
		pairs = append(pairs, name+"="+v)
	}
	slices.Sort(pairs)
	if f, err := strconv.ParseFloat(value, 64); err == nil {
		value = strconv.FormatFloat(f, 'g', -1, 64)
	}
	c[fmt.Sprintf("%s{%s} %d", metric, strings.Join(pairs, ","), ms)] = value
}

// missing lists some of the entries of c that other lacks, or has with another
// value.
func (c contents) missing(other contents) (list []string) {
	for _, at := range slices.Sorted(maps.Keys(c)) {
		if got, ok := other[at]; !ok || got != c[at] {
			list = append(list, at+" = "+c[at])
		}
		if len(list) == 10 {
			break
		}
	}
	return list
}

// askedAtOnce is the number of metrics in one query of stored.
const askedAtOnce = 200

// stored asks a server for all its points.
func stored(t *testing.T, s *process.Server) contents {
	t.Helper()
	names, err := s.MetricNames(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	c := contents{}
	for some := range slices.Chunk(names, askedAtOnce) {
		metrics := make([]map[string]any, len(some))
		for i, name := range some {
			metrics[i] = map[string]any{"name": name}
		}
		for i, results := range askFor(t, s, ask+"/tags", metrics) {
			if keys := slices.Sorted(maps.Keys(results[0].Tags)); len(keys) > 0 { // paths of Graphite have none
				metrics[i]["group_by"] = []any{map[string]any{"name": "tag", "tags": keys}}
			}
		}
		for _, results := range askFor(t, s, ask, metrics) {
			for _, r := range results {
				c.addResult(r)
			}
		}
	}
	return c
}

// addResult adds the points of one series.
func (c contents) addResult(r process.Result) {
	series := map[string]string{}
	for key, values := range r.Tags {
		series[key] = strings.Join(values, " and ")
	}
	for _, v := range r.Values {
		ms, _ := strconv.ParseInt(string(v[0]), 10, 64)
		c.add(r.Name, series, ms, unquoted(v[1]))
	}
}

// unquoted is a JSON value as plain text.
func unquoted(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// askFor asks for metrics over all time and returns the results of each.
func askFor(t *testing.T, s *process.Server, path string, metrics []map[string]any) [][]process.Result {
	t.Helper()
	body, err := json.Marshal(map[string]any{"start_absolute": 0, "metrics": metrics})
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.Want(t.Context(), http.StatusOK, "POST", path, string(body))
	if err != nil {
		t.Fatal(err)
	}
	var a struct {
		Queries []struct{ Results []process.Result }
	}
	if err := json.Unmarshal(text, &a); err != nil || len(a.Queries) != len(metrics) {
		t.Fatalf("%d answers to %d metrics (%v)", len(a.Queries), len(metrics), err)
	}
	results := make([][]process.Result, len(metrics))
	for i, q := range a.Queries {
		results[i] = q.Results
	}
	return results
}

// compare compares the stored points with the wanted ones.
func compare(t *testing.T, s *process.Server, want contents) {
	t.Helper()
	got := stored(t, s)
	if list := want.missing(got); list != nil {
		t.Errorf("of %d points that should be stored these are not: %q", len(want), list)
	}
	if list := got.missing(want); list != nil {
		t.Errorf("of %d points that are stored these should not be: %q", len(got), list)
	}
}

// A jsonMetric is a metric of KairosDB's JSON or a point of OpenTSDB's.
type jsonMetric struct {
	Name, Metric string
	Tags         map[string]string
	Timestamp    json.Number
	Value        json.RawMessage
	Datapoints   [][2]json.RawMessage
}

// wanted adds the points of a body, read by the standard library. A metric
// with an empty tag value is not stored. A time-to-live counts from the write.
func (c contents) wanted(t *testing.T, body []byte, seconds bool) {
	t.Helper()
	if len(bytes.TrimSpace(body)) == 0 {
		return
	}
	if body = bytes.TrimSpace(body); body[0] == '{' {
		body = slices.Concat([]byte{'['}, body, []byte{']'})
	}
	var metrics []jsonMetric
	if err := json.Unmarshal(body, &metrics); err != nil {
		t.Fatalf("%v in %.200s", err, body)
	}
	for _, m := range metrics {
		if slices.Contains(slices.Collect(maps.Values(m.Tags)), "") {
			continue
		}
		if m.Timestamp != "" {
			m.Datapoints = append(m.Datapoints, [2]json.RawMessage{json.RawMessage(m.Timestamp), m.Value})
		}
		for _, p := range m.Datapoints {
			ms, err := strconv.ParseInt(string(p[0]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if seconds && ms < 1e12 {
				ms *= 1000
			}
			c.add(m.Name+m.Metric, m.Tags, ms, unquoted(p[1]))
		}
	}
}

// A recordedRequest is a request of a recording with its decoded body.
type recordedRequest struct {
	*http.Request
	body []byte
}

func readRequests(t *testing.T, raw []byte) (requests []recordedRequest) {
	t.Helper()
	for in := bufio.NewReader(bytes.NewReader(raw)); ; {
		r, err := http.ReadRequest(in)
		if errors.Is(err, io.EOF) {
			return requests
		}
		if err != nil {
			t.Fatal(err)
		}
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" || r.Header.Get("Content-Type") == "application/gzip" {
			if body, err = gzip.NewReader(r.Body); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, recordedRequest{r, text})
	}
}

// status is the status with which an empty server must answer a recorded
// request.
func (r recordedRequest) status() int {
	emptyTag := bytes.Contains(r.body, []byte(`":""`))
	switch path := r.URL.Path; {
	case path == push && emptyTag, path == "/api/put" && emptyTag:
		return http.StatusBadRequest
	case path == "/api/put" && r.URL.RawQuery != "":
		return http.StatusOK
	case path == push, path == "/api/put", path == "/api/v1/datapoints/delete", path == "/api/v1/health/check":
		return http.StatusNoContent
	case strings.HasPrefix(path, "/api/v1/rollups/") && path != "/api/v1/rollups/": // a task that does not exist here
		return http.StatusNotFound
	case r.Method == http.MethodDelete:
		return http.StatusNoContent
	case bytes.Contains(r.body, []byte(`"name":"rate","align_sampling"`)):
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// TestRecordedRequests replays connections byte for byte, at once and in
// pieces, checks the answer to each request in order, and compares the stored
// points.
func TestRecordedRequests(t *testing.T) {
	process.SkipShort(t)
	files := recordings(t, ".http")
	if len(files) < 9 {
		t.Fatalf("only %q are there", files)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			requests, want := readRequests(t, raw), contents{}
			for _, r := range requests {
				if r.URL.Path == push || r.URL.Path == "/api/put" {
					want.wanted(t, r.body, r.URL.Path == "/api/put")
				}
			}
			s := process.Start(t, t.TempDir())
			for _, piece := range []int{len(raw), 1428, 61} {
				replay(t, s, raw, piece, requests)
				compare(t, s, want)
			}
		})
	}
}

func replay(t *testing.T, s *process.Server, raw []byte, piece int, requests []recordedRequest) {
	t.Helper()
	w := dial(t, s.HTTP)
	go func() {
		for part := range slices.Chunk(raw, piece) {
			if _, err := w.conn.Write(part); err != nil {
				return // the answers will show it
			}
		}
	}()
	for i, r := range requests {
		a := w.answer(r.Method)
		if want := r.status(); a.StatusCode != want {
			t.Errorf("in pieces of %d, request %d, %s %s %.300s: status %d, want %d: %s", piece, i, r.Method, r.URL, r.body, a.StatusCode, want, a.body)
		}
		if kind := a.Header.Get("Content-Type"); a.body != "" && !strings.HasPrefix(kind, "application/json") {
			t.Errorf("%s %s: an answer of type %q", r.Method, r.URL, kind)
		}
	}
	w.conn.CloseWrite()
	if !w.closed() {
		t.Error("the connection stays open")
	}
}

// wantedLines adds the points of telnet lines, as KairosDB would store them,
// and returns the number of invalid lines.
func (c contents) wantedLines(t *testing.T, raw []byte) (refused int) {
	t.Helper()
lines:
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		ms, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			refused++
			continue
		}
		if words[0] == "put" && ms < 3e9 {
			ms *= 1000
		}
		tags := map[string]string{}
		for _, word := range words[4:] {
			name, value, ok := strings.Cut(word, "=")
			if value, _, _ = strings.Cut(value, "="); !ok || value == "" {
				refused++
				continue lines
			}
			tags[name] = value
		}
		if len(tags) == 0 {
			tags["add"] = "tag"
		}
		if f, err := strconv.ParseFloat(words[3], 64); err != nil || f-f != 0 {
			refused++
			continue
		}
		c.add(words[1], tags, ms, words[3])
	}
	return refused
}

// TestRecordedLines replays connections to the telnet port.
func TestRecordedLines(t *testing.T) {
	process.SkipShort(t)
	files := slices.DeleteFunc(recordings(t, ".tcp"), func(file string) bool {
		return filepath.Base(file) == "npm-kairosdb.tcp" // is HTTP; see fact 21
	})
	if len(files) < 6 {
		t.Fatalf("only %q are there", files)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := contents{}
			refused := want.wantedLines(t, raw)
			s := process.Start(t, t.TempDir())
			for i, piece := range []int{len(raw), 1428, 7} {
				w := dial(t, s.Telnet)
				for part := range slices.Chunk(raw, piece) {
					w.send(string(part))
				}
				w.conn.CloseWrite()
				if !w.closed() { // everything is stored when the server closes
					t.Error("the connection stays open")
				}
				compare(t, s, want)
				sum := 0.0
				for _, n := range rejected(t, s) {
					sum += n
				}
				if sum != float64(refused*(i+1)) {
					t.Errorf("%v lines of %d replays were refused, want %d of each", sum, i+1, refused)
				}
			}
		})
	}
}

// TestRecordedWrongLength replays npm kairosdb, whose second request line
// begins inside a body.
func TestRecordedWrongLength(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(root, "internal/ingest/kairosjson/testdata/clients/npm-kairosdb.tcp"))
	if err != nil {
		t.Fatal(err)
	}
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	w.send(string(raw))
	for i, want := range []int{http.StatusOK, http.StatusBadRequest, http.StatusBadRequest} {
		if a := w.answer("POST"); a.StatusCode != want {
			t.Errorf("answer %d has the status %d, want %d", i, a.StatusCode, want)
		}
	}
	if !w.closed() {
		t.Error("the connection goes on")
	}
	compare(t, s, contents{"m é{host=server} 1700000000000": "321"})
}

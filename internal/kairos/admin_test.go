package kairos

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/store/reference"
)

// endless is a query that ends in time only if it is killed.
var endless = `{"start_absolute":0,metrics:[` + strings.Repeat(`{"name":"m"},`, 5000) + `{"name":"m"}]}`

// A running query is listed and ends soon after it is killed, by hash or by id.
func TestKillQuery(t *testing.T) {
	s := startServer(t)
	s.fill(t, 1, 300_000)
	for _, kill := range []struct {
		method string
		which  string
	}{{"GET", "query hash"}, {"DELETE", "query hash"}, {"POST", "id"}} {
		type answer struct {
			status int
			body   string
		}
		done := make(chan answer, 1)
		go func() {
			resp, err := s.client.Post(s.url+queryPath, "", strings.NewReader(endless))
			if err != nil {
				done <- answer{0, err.Error()}
				return
			}
			defer resp.Body.Close()
			body, err := readAnswer(resp)
			done <- answer{resp.StatusCode, string(body) + fmt.Sprint(err)}
		}()
		waitFor(t, 2*time.Minute, func() bool { return len(s.engine.Running()) == 1 })
		_, text := s.do(t, "GET", "/api/v1/admin/runningqueries", "")
		var list struct {
			Queries []map[string]any
			Waiting int `json:"queries waiting"`
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Queries) != 1 {
			t.Fatalf("%v %.300s", err, text)
		}
		q := list.Queries[0]
		if q["metric name"] != "m" || len(q["query JSON"].(map[string]any)["metrics"].([]any)) != 5001 || len(q["query hash"].(string)) != 32 {
			t.Errorf("%.300v", q)
		}
		began := time.Now()
		resp, _ := s.do(t, kill.method, "/api/v1/admin/killquery/"+fmt.Sprint(q[kill.which]), "")
		if resp.StatusCode != http.StatusNoContent {
			t.Errorf("%s: status %d", kill.method, resp.StatusCode)
		}
		got := <-done
		if took := time.Since(began); took > 30*time.Second { // it would take minutes
			t.Errorf("ended after %v", took)
		}
		// Whether there is a status depends on what was sent by then.
		if got.status == 400 && !strings.Contains(got.body, query.ErrCancelled.Error()) || got.status == 200 && strings.HasSuffix(got.body, "<nil>") {
			t.Errorf("%d %.200s", got.status, got.body)
		}
		waitFor(t, 2*time.Minute, func() bool { return len(s.engine.Running()) == 0 })
	}
}

// unread starts a query whose client does not read the answer, and returns once the
// server can send no more of it.
func unread(t *testing.T, s *testServer) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", queryPath, len(endless), endless)
	sent := int64(-1)
	waitFor(t, 2*time.Minute, func() bool {
		running := s.engine.Running()
		if len(running) == 0 {
			return false
		}
		before := sent
		sent = running[0].Samples
		time.Sleep(50 * time.Millisecond)
		return sent > 0 && sent == before
	})
}

// A killed query ends although its client reads nothing.
func TestKillOfAnAnswerThatNobodyReads(t *testing.T) {
	kc := DefaultConfig()
	kc.ResponseBuffer = 1 << 10
	s := startServerWith(t, reference.New(nil), query.DefaultConfig(), kc)
	s.fill(t, 1, 300_000)
	unread(t, s)
	s.do(t, "DELETE", "/api/v1/admin/killquery/"+fmt.Sprint(s.engine.Running()[0].ID), "")
	waitFor(t, 2*time.Minute, func() bool { return len(s.engine.Running()) == 0 })
}

// Unread answers occupy no slots: other queries are served at once.
func TestAnswersThatNobodyReadsKeepNoPlaces(t *testing.T) {
	qc, kc := query.DefaultConfig(), DefaultConfig()
	qc.MaxConcurrent, qc.MaxWait = 1, time.Minute
	kc.ResponseBuffer = 1 << 10
	s := startServerWith(t, reference.New(nil), qc, kc)
	s.fill(t, 1, 300_000)
	unread(t, s)
	resp, body := s.do(t, "POST", queryPath, `{"start_absolute":0,"end_absolute":1,"metrics":[{"name":"m"}]}`)
	if resp.StatusCode != 200 || len(s.engine.Running()) != 1 {
		t.Errorf("%d %.300s; %d queries run", resp.StatusCode, body, len(s.engine.Running()))
	}
}

// Slow queries are listed, latest first, including failed ones.
func TestSlowQueries(t *testing.T) {
	qc := query.DefaultConfig()
	qc.MaxSamples, qc.Slow = 100, time.Nanosecond
	s := startServerWith(t, reference.New(nil), qc, DefaultConfig())
	s.fill(t, 1, 60)
	for _, metrics := range []string{`{"name":"first"}`, `{"name":"m"}`, `{"name":"m"},{"name":"m"}`} {
		s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[`+metrics+`]}`)
	}
	_, body := s.do(t, "GET", "/admin/slowqueries", "")
	var got struct{ Queries []query.SlowQuery }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	q := got.Queries
	if len(q) != 3 || len(q[0].Metrics) != 2 || !strings.Contains(q[0].Error, "query.max_samples of 100") ||
		q[1].Samples != 60 || q[1].Series != 1 || q[1].Error != "" || q[1].Bytes < 500 || q[1].TookMS <= 0 ||
		q[1].Query != `{"start_absolute":0,"metrics":[{"name":"m"}]}` || q[1].Client == "" {
		t.Errorf("%s", body)
	}
}

// A trace is sent only on request, and changes nothing else.
func TestTrace(t *testing.T) {
	s := startServer(t)
	s.fill(t, 3, 2000)
	s.do(t, "POST", "/api/v1/datapoints", `{"name":"m","tags":{"h":"a"},"datapoints":[[1,"text"]]}`)
	for _, q := range []string{
		`{"start_absolute":0,"metrics":[{"name":"m"}]}`,
		`{"start_absolute":0,"metrics":[{"name":"m","aggregators":[{"name":"sum","sampling":{"value":1,"unit":"seconds"}}]}]}`,
		`{"start_absolute":0,"metrics":[{"name":"m","group_by":[{"name":"value","range_size":100}]}]}`,
	} {
		_, plain := s.do(t, "POST", queryPath, q)
		_, traced := s.do(t, "POST", queryPath+"?trace=1", q)
		_, byHeader := s.do(t, "POST", queryPath, q, httpapi.TraceHeader, "1")
		for _, body := range []string{traced, byHeader} {
			answer, text, found := strings.Cut(body, `,"trace":`)
			if !found || answer+"}" != plain {
				t.Fatalf("%.300s", body)
			}
			var trace struct {
				Total  float64 `json:"total_ms"`
				Phases []struct {
					Phase                          string
					MS                             float64
					Series, Samples, Bytes, Points int64
				}
				Stages []struct {
					Stage               string
					Start, End, Samples int64
				}
			}
			if err := json.Unmarshal([]byte(strings.TrimSuffix(text, "}")), &trace); err != nil {
				t.Fatal(err)
			}
			names := ""
			for _, p := range trace.Phases {
				names += p.Phase + " "
			}
			read, encode := trace.Phases[2], trace.Phases[4]
			if names != "wait index read aggregate encode " || read.Samples != 6001 || read.Series != 4 ||
				trace.Total <= 0 || encode.Bytes < int64(len(answer)) || encode.Points == 0 {
				t.Errorf("%s", text)
			}
			if len(trace.Stages) != 1 || trace.Stages[0].Stage != "raw" || trace.Stages[0].Samples != 6001 || trace.Stages[0].Start != 0 || trace.Stages[0].End != 1999 {
				t.Errorf("%s", text)
			}
		}
	}
	_, body := s.do(t, "POST", queryPath+"/tags?trace=true", `{"start_absolute":0,"metrics":[{"name":"m"}]}`)
	if !json.Valid([]byte(body)) || !strings.Contains(body, `"phase":"index"`) {
		t.Error(body)
	}
}

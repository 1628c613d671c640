package kairos

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/store/reference"
)

// A slowReader reads an answer while something else happens.
type slowReader struct {
	*httptest.ResponseRecorder
	meanwhile func()
}

func (s slowReader) Write(p []byte) (int, error) {
	s.meanwhile()
	return s.ResponseRecorder.Write(p)
}

// A list of metadata is charged to the memory of queries, and refused as a whole if there is too little.
func TestMetadataThatDoNotFitTheMemory(t *testing.T) {
	config := query.DefaultConfig()
	config.TotalMemory, config.MaxWait = 1<<20, 10*time.Millisecond
	s := startServerWith(t, reference.New(nil), config, DefaultConfig())
	for i := range 2 << 10 {
		if err := s.store.Set(t.Context(), "service", "key", fmt.Sprintf("%d%s", i, strings.Repeat("x", 1<<10)), "value"); err != nil {
			t.Fatal(err)
		}
	}
	if resp, body := s.do(t, "GET", "/api/v1/metadata/service/key", ""); resp.StatusCode != 400 || !strings.Contains(body, "limit query.total_memory of 1048576 reached") {
		t.Errorf("a list of 2 MiB: %d %.100s", resp.StatusCode, body)
	}
	if resp, body := s.do(t, "GET", "/api/v1/metadata/service/key?startsWith=100", ""); resp.StatusCode != 200 || !strings.HasSuffix(body, `x"]}`) {
		t.Errorf("part of it: %d %.100s", resp.StatusCode, body)
	}
}

// An answer is charged to the memory of queries until it is sent, although its query
// has ended. If such answers use all memory, further ones are refused as overload.
func TestUnsentAnswersCount(t *testing.T) {
	st := openEmbedded(t)
	defer st.Close()
	config := query.DefaultConfig()
	config.TotalMemory, config.MaxWait = 1<<20, 10*time.Millisecond
	registry := prometheus.NewRegistry()
	engine := agg.New(query.New(st, config, registry, time.Now), nil)
	api := New(st, engine, DefaultConfig(), testVersion, time.Now)
	held := func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "varve_query_memory_bytes" {
				return f.Metric[0].Gauge.GetValue()
			}
		}
		t.Fatal("no gauge")
		return 0
	}
	ask := func(gaps int, meanwhile func()) int {
		text := fmt.Sprintf(`{"start_absolute":0,"end_absolute":%d,"metrics":[{"name":"m","aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"seconds"}}]}]}`, gaps*1000)
		r := httptest.NewRequest(http.MethodPost, "/api/v1/datapoints/query", strings.NewReader(text))
		w := httptest.NewRecorder()
		api.serve(api.postQuery)(slowReader{w, meanwhile}, r)
		return w.Code
	}
	during := 0.0
	inner := 0
	status := ask(20_000, func() {
		if during == 0 {
			during = held()
			inner = ask(40_000, func() {})
		}
	})
	if status != 200 || during < 200_000 || len(engine.Running()) != 0 {
		t.Errorf("status %d, %v bytes were held while the answer was sent", status, during)
	}
	if inner != http.StatusServiceUnavailable {
		t.Errorf("another large answer was %d meanwhile", inner)
	}
	if status := ask(20_000, func() {}); status != 200 {
		t.Errorf("status %d afterwards", status)
	}
	if n := held(); n != 0 {
		t.Errorf("%v bytes are held at rest", n)
	}
}

// A small answer does not wait for memory that large ones hold, although it may follow large ones: it took one of
// their buffers, and had to charge all of that.
func TestSmallAnswersWaitForNoMemory(t *testing.T) {
	st := openEmbedded(t)
	defer st.Close()
	config := query.DefaultConfig()
	config.TotalMemory, config.MaxWait = 4<<20, 10*time.Millisecond
	engine := agg.New(query.New(st, config, prometheus.NewRegistry(), time.Now), nil)
	api := New(st, engine, DefaultConfig(), testVersion, time.Now)
	ask := func(gaps int) int {
		text := fmt.Sprintf(`{"start_absolute":0,"end_absolute":%d,"metrics":[{"name":"m","aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"seconds"}}]}]}`, gaps*1000)
		w := httptest.NewRecorder()
		api.serve(api.postQuery)(w, httptest.NewRequest(http.MethodPost, "/api/v1/datapoints/query", strings.NewReader(text)))
		return w.Code
	}
	for range 10 {
		if status := ask(60_000); status != 200 {
			t.Fatalf("a large answer is %d", status)
		}
	}
	other := engine.Unsent(t.Context(), "")
	defer other.Free()
	if err := other.AtLeast(int64(config.TotalMemory) * 15 / 16); err != nil { // the rest is for small owners
		t.Fatal(err)
	}
	for range 10 {
		if status := ask(3); status != 200 {
			t.Errorf("a small answer is %d while others hold all memory", status)
		}
	}
}

// An answer with the text of a client is charged to the memory of queries until it is
// sent: clients that do not read metadata or the list of running queries cannot exceed
// it together.
func TestUnsentTextsCount(t *testing.T) {
	st := openEmbedded(t)
	defer st.Close()
	config, own := query.DefaultConfig(), DefaultConfig()
	config.TotalMemory, config.MaxWait = 1<<20, 10*time.Millisecond
	own.MaxValueSize = 600 << 10
	engine := agg.New(query.New(st, config, prometheus.NewRegistry(), time.Now), nil)
	api := New(st, engine, own, testVersion, time.Now)
	text := `{"start_absolute":0,"metrics":[{"name":"` + strings.Repeat("m", 300<<10) + `"}]}`
	if err := st.Set(t.Context(), "s", "k", "n", text); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		run, err := engine.Start(t.Context(), agg.Query{Request: query.Request{Text: text}})
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close(nil)
	}
	value := httptest.NewRequest(http.MethodGet, "/", nil)
	value.SetPathValue("service", "s")
	value.SetPathValue("serviceKey", "k")
	value.SetPathValue("key", "n")
	for name, ask := range map[string]func(w http.ResponseWriter){
		"metadata": func(w http.ResponseWriter) { api.serve(api.getValue)(w, value) },
		"running queries": func(w http.ResponseWriter) {
			api.serve(api.getRunning)(w, httptest.NewRequest(http.MethodGet, "/", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inner := httptest.NewRecorder()
			outer := slowReader{httptest.NewRecorder(), sync.OnceFunc(func() {
				if name == "metadata" { // the room up to max_value_size came back
					other := engine.Unsent(t.Context(), "")
					defer other.Free()
					if err := other.AtLeast(300 << 10); err != nil {
						t.Error(err)
					}
				}
				ask(inner)
			})}
			if ask(outer); outer.Code != 200 || !strings.Contains(outer.Body.String(), text[40:]) {
				t.Errorf("status %d, %d bytes", outer.Code, outer.Body.Len())
			}
			if inner.Code != http.StatusServiceUnavailable || !strings.Contains(inner.Body.String(), "query.total_memory") {
				t.Errorf("a second answer was %d meanwhile: %.200s", inner.Code, inner.Body)
			}
			again := httptest.NewRecorder()
			if ask(again); again.Code != 200 {
				t.Errorf("status %d afterwards", again.Code)
			}
		})
	}
}

// Bodies that never end use memory up to their share. Then further large requests are
// refused as overload; small ones, and the list of running queries, are served.
func TestUnfinishedBodiesLeaveRoom(t *testing.T) {
	qc := query.DefaultConfig()
	qc.TotalMemory = 8 << 20
	s := startServerWith(t, reference.New(nil), qc, DefaultConfig())
	done, leave := make(chan struct{}), []func() error{}
	paths := []string{queryPath, queryPath + "/tags", "/api/v1/datapoints/delete", "/api/v1/metadata/s/k/n"}
	for _, path := range paths {
		body, send := io.Pipe()
		r, err := http.NewRequest("POST", s.url+path, body)
		if err != nil {
			t.Fatal(err)
		}
		go func() { send.Write(bytes.Repeat([]byte(" "), 100<<10)) }()
		go func() {
			if resp, err := s.client.Do(r); err == nil {
				resp.Body.Close()
				t.Errorf("half a body was answered %s", resp.Status)
			}
			done <- struct{}{}
		}()
		leave = append(leave, func() error { return send.CloseWithError(io.ErrUnexpectedEOF) })
	}
	for held := ""; !strings.Contains(held, "\nvarve_query_memory_bytes 524288\n"); { // 128 KiB each
		time.Sleep(time.Millisecond)
		_, held = s.do(t, "GET", "/internal/metrics", "")
	}
	text := `{"start_absolute":0,"metrics":[{"name":"m"}]}`
	if resp, body := s.do(t, "POST", queryPath, strings.Repeat(" ", 200<<10)+text); resp.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(body, "query.total_memory") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a large query: %d %s", resp.StatusCode, body)
	}
	for _, small := range []string{text, strings.Repeat(" ", 40<<10) + text} {
		if resp, body := s.do(t, "POST", queryPath, small); resp.StatusCode != http.StatusOK {
			t.Errorf("a query of %d bytes: %d %s", len(small), resp.StatusCode, body)
		}
	}
	if resp, body := s.do(t, "GET", "/api/v1/admin/runningqueries", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("running queries: %d %s", resp.StatusCode, body)
	}
	for _, leave := range leave {
		leave()
		<-done
	}
}

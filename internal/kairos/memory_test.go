package kairos

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/query"
)

// A slowReader takes an answer while something else happens.
type slowReader struct {
	*httptest.ResponseRecorder
	meanwhile func()
}

func (s slowReader) Write(p []byte) (int, error) {
	s.meanwhile()
	return s.ResponseRecorder.Write(p)
}

// An answer counts as memory of queries until it is sent, although its query
// has ended; with all memory in such answers, the next ones are overload.
func TestUnsentAnswersCount(t *testing.T) {
	st := openEmbedded(t)
	defer st.Close()
	config := query.DefaultConfig()
	config.TotalMemory, config.MaxWait = 1<<20, 10*time.Millisecond
	registry := prometheus.NewRegistry()
	engine := query.New(st, config, registry, time.Now)
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
		api.postQuery(slowReader{w, meanwhile}, r)
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

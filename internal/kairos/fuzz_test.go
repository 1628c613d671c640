package kairos

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// Whatever is asked, the answer is JSON with a status that means something, and
// comes in time.
func FuzzQuery(f *testing.F) {
	st := storetest.NewReference(nil)
	var b store.Batch
	b.Reset(st.Epoch())
	for _, typ := range []model.Type{model.TypeLong, model.TypeDouble, model.TypeString} {
		for _, host := range []string{"a", "b"} {
			ref, err := st.Create(f.Context(), model.Series{Metric: "m", Tags: model.MustTags("h", host), Type: typ})
			if err != nil {
				f.Fatal(err)
			}
			for i := range int64(50) {
				switch typ {
				case model.TypeLong:
					b.AddLong(ref, i*1000, i, 0)
				case model.TypeDouble:
					b.AddDouble(ref, i*1500, float64(i)/4, 0)
				default:
					b.AddBytes(ref, i*2000, []byte{'a' + byte(i%26)}, 0)
				}
			}
		}
	}
	if err := st.Append(f.Context(), &b); err != nil {
		f.Fatal(err)
	}
	qc := query.DefaultConfig()
	qc.Timeout, qc.MaxMemory = 200*time.Millisecond, 1<<20
	kc := DefaultConfig()
	kc.ResponseBuffer = 1 << 20
	api := New(st, query.New(st, qc, prometheus.NewRegistry(), time.Now), kc, "test", time.Now)
	addQueries(f)
	f.Fuzz(func(t *testing.T, text string, partial bool) {
		path := queryPath
		if partial {
			path += "?partial=allow"
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(text))
		began := time.Now()
		if brokenOff(func() { api.postQuery(w, r) }) {
			return // an endless answer, cut off in time
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("took %v", took)
		}
		if w.Code != 200 && w.Code != 400 && w.Code != 500 || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%d %.500s", w.Code, w.Body)
		}
		if w.Code == 500 && !strings.Contains(w.Body.String(), "must precede") && !strings.Contains(w.Body.String(), "NaN or Infinity") &&
			!strings.Contains(w.Body.String(), "without a value") && !strings.Contains(w.Body.String(), "same key") && !strings.Contains(w.Body.String(), "save_as") {
			t.Fatalf("%s", w.Body)
		}
	})
}

// brokenOff reports that a handler gave up an answer that it was sending.
func brokenOff(handle func()) (broken bool) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			broken = true
		} else if p != nil {
			panic(p)
		}
	}()
	handle()
	return false
}

// addQueries adds the queries of the recorded faults as seeds.
func addQueries(f *testing.F) {
	faults, err := os.Open("testdata/faults/requests.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	defer faults.Close()
	for lines := bufio.NewScanner(faults); lines.Scan(); {
		var r faultyRequest
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			f.Fatal(err)
		}
		if r.Path == queryPath {
			f.Add(r.Body, false)
		}
	}
	for _, more := range []string{
		`{"start_absolute":0,"end_absolute":100000,"metrics":[{"name":"m","group_by":[{"name":"tag","tags":["h"]}],"aggregators":[{"name":"sum","sampling":{"value":7,"unit":"seconds"}},{"name":"diff"}]}]}`,
		`{"start_absolute":0,"end_absolute":1e5,"time_zone":"Pacific/Apia","metrics":[{"name":"m","order":"desc","limit":5,"tags":{"h":"regex:[ab]"},"aggregators":[{"name":"gaps","sampling":{"value":1,"unit":"minutes"}},{"name":"trim","trim":"both"}]}]}`,
		`{"start_absolute":0,"metrics":[{"name":"m","group_by":[{"name":"time","range_size":{"value":1,"unit":"months"},"group_count":3},{"name":"bin","bins":[1,2]},{"name":"value","range_size":3}],"aggregators":[{"name":"percentile","percentile":0.5},{"name":"sma","size":3},{"name":"score","thresholds":[{"value":1}]}]}]}`,
	} {
		f.Add(more, true)
	}
}

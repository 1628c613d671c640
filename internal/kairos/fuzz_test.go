package kairos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/store/storetest"
)

// Whatever the query, the answer is JSON with a valid status, and arrives in time.
func FuzzQuery(f *testing.F) {
	api := fuzzedAPI(f)
	addQueries(f)
	f.Fuzz(func(t *testing.T, text string, partial bool) { checkFuzzed(t, api, text, partial) })
}

func TestAwkwardQueries(t *testing.T) {
	api := fuzzedAPI(t)
	for _, q := range awkwardQueries() {
		if checkFuzzed(t, api, q, true); t.Failed() {
			t.Fatal(q)
		}
	}
}

// fuzzedAPI returns an API over plain and awkward points, with narrow limits.
func fuzzedAPI(tb testing.TB) *API {
	tb.Helper()
	st := reference.New(nil)
	var b store.Batch
	b.Reset(st.Epoch())
	for _, typ := range []model.Type{model.TypeLong, model.TypeDouble, model.TypeString} {
		for _, host := range []string{"a", "b"} {
			ref, err := st.Create(tb.Context(), model.Series{Metric: "m", Tags: model.MustTags("h", host), Type: typ})
			if err != nil {
				tb.Fatal(err)
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
	addAwkward(tb, st, &b)
	if err := st.Append(tb.Context(), &b); err != nil {
		tb.Fatal(err)
	}
	qc := query.DefaultConfig()
	qc.Timeout, qc.MaxMemory = 200*time.Millisecond, 1<<20
	kc := DefaultConfig()
	kc.ResponseBuffer = 1 << 20
	return New(st, agg.New(query.New(st, qc, prometheus.NewRegistry(), time.Now), nil), kc, "test", time.Now)
}

// checkFuzzed posts a query and checks the form of the answer.
func checkFuzzed(t *testing.T, api *API, text string, partial bool) {
	t.Helper()
	path := queryPath
	if partial {
		path += "?partial=allow"
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(text))
	began := time.Now()
	if brokenOff(func() { api.serve(api.postQuery)(w, r) }) {
		return // an endless answer, cut off in time
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Fatalf("took %v", took)
	}
	if w.Code != 200 && w.Code != 400 && w.Code != 500 || !json.Valid(w.Body.Bytes()) {
		t.Fatalf("%d %.500s", w.Code, w.Body)
	}
	if w.Code == 500 && !strings.Contains(w.Body.String(), "must precede") && !strings.Contains(w.Body.String(), "NaN or Infinity") &&
		!strings.Contains(w.Body.String(), "without a value") && !strings.Contains(w.Body.String(), "same key") && !strings.Contains(w.Body.String(), "save_as") {
		t.Fatalf("%s", w.Body)
	}
}

// addAwkward adds metrics whose points are at the ends of time and of numbers: "times"
// has plain values at awkward times, "longs" and "doubles" have awkward values, "all"
// has both. NaN and infinities are refused on input.
func addAwkward(tb testing.TB, st *reference.Store, b *store.Batch) {
	tb.Helper()
	create := func(metric string, typ model.Type) store.Ref {
		ref, err := st.Create(tb.Context(), model.Series{Metric: metric, Tags: model.MustTags("h", "a"), Type: typ})
		if err != nil {
			tb.Fatal(err)
		}
		return ref
	}
	times, longs, doubles := create("times", model.TypeLong), create("longs", model.TypeLong), create("doubles", model.TypeDouble)
	allLongs, allDoubles := create("all", model.TypeLong), create("all", model.TypeDouble)
	for i, ms := range storetest.AwkwardTimes {
		b.AddLong(times, ms, int64(i), 0)
		b.AddLong(allLongs, ms, storetest.AwkwardLongs[i%len(storetest.AwkwardLongs)], 0)
	}
	for i, v := range storetest.AwkwardLongs {
		b.AddLong(longs, int64(i)*1000, v, 0)
	}
	for i, bits := range storetest.AwkwardDoubles {
		v := math.Float64frombits(bits)
		if v-v != 0 {
			continue
		}
		b.AddDouble(doubles, int64(i)*1000, v, 0)
		b.AddDouble(allDoubles, storetest.AwkwardTimes[i%len(storetest.AwkwardTimes)], v, 0)
	}
}

// brokenOff reports whether a handler aborted an answer that it was sending.
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
	for i, q := range awkwardQueries() {
		if i%41 == 0 { // TestAwkwardQueries asks all of them
			f.Add(q, true)
		}
	}
}

// awkwardQueries applies every aggregator to points at the ends of time and of numbers.
func awkwardQueries() []string {
	var all []string
	const low, high = math.MinInt64, math.MaxInt64
	for _, span := range [][2]int64{{low, high}, {low, low + 1}, {high - 1, high}, {-1, 1}, {1_700_000_000_000, high}, {low, 0}} {
		for _, metric := range []string{"times", "longs", "doubles", "all"} {
			for _, aggregator := range []string{
				`"sum",%s`, `"avg",%s`, `"min",%s`, `"max",%s`, `"count",%s`, `"first",%s`, `"last",%s`, `"dev",%s`, `"gaps",%s`, `"rate",%s`,
				`"percentile","percentile":0.9,%s`, `"least_squares",%s`, `"diff"`, `"sampler","unit":"years"`, `"scale","factor":1e308`,
				`"div","divisor":1e-308`, `"sma","size":3`, `"filter","filter_op":"gt","threshold":0`, `"trim","trim":"both"`, `"score","thresholds":[{"value":0}]`,
			} {
				aggregator = strings.Replace(aggregator, "%s", `"sampling":{"value":1,"unit":"hours"}`, 1)
				all = append(all, fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":%q,"group_by":[{"name":"tag","tags":["h"]}],"aggregators":[{"name":%s}]}]}`,
					span[0], span[1], metric, aggregator))
			}
			all = append(all, fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":%q,"order":"desc","limit":2,"group_by":[`+
				`{"name":"value","range_size":1},{"name":"bin","bins":[-9223372036854775808,0,9007199254740993]},{"name":"time","range_size":{"value":1,"unit":"months"},"group_count":3}]}]}`,
				span[0], span[1], metric))
			for _, unit := range []string{"milliseconds", "weeks", "months", "years"} {
				all = append(all, fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"time_zone":"Asia/Kathmandu","metrics":[{"name":%q,"aggregators":[{"name":"max","align_sampling":true,"align_end_time":true,"sampling":{"value":7,"unit":%q}}]}]}`,
					span[0], span[1], metric, unit))
			}
		}
	}
	return all
}

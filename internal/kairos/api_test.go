package kairos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// fill stores n doubles, one a millisecond from 0 on, in each of `series`
// series of metric m.
func (s *testServer) fill(t testing.TB, series, n int) {
	var b store.Batch
	b.Reset(s.store.Epoch())
	for h := range series {
		ref, err := s.store.Create(context.Background(), model.Series{
			Metric: "m", Tags: model.MustTags("h", fmt.Sprint(h)), Type: model.TypeDouble,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			b.AddDouble(ref, int64(i), float64(i)/4, 0)
		}
	}
	if err := s.store.Append(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
}

func (s *testServer) do(t testing.TB, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := readAnswer(resp)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(answer)
}

const queryPath = "/api/v1/datapoints/query"

// The members are in KairosDB's order, byte for byte.
func TestAnswerBytes(t *testing.T) {
	s := startServer(t)
	s.do(t, "POST", "/api/v1/datapoints", `[{"name":"m","tags":{"h":"a","dc":"x"},"datapoints":[[1,1],[2,2.5],[3,1e7],[4,12345678.5],[5,"</t>\u0001"]]}]`)
	_, got := s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{"name":"m","alias":"A","group_by":[{"name":"tag","tags":["h"]}]},{"name":"none"}]}`)
	want := `{"queries":[{"sample_size":5,"results":[` +
		`{"name":"m","alias":"A","group_by":[{"name":"tag","tags":["h"],"group":{"h":"a"}},{"name":"type","type":"number"}],` +
		`"tags":{"dc":["x"],"h":["a"]},"values":[[1,1],[2,2.5],[3,10000000],[4,1.23456785E7]]},` +
		`{"name":"m","alias":"A","group_by":[{"name":"tag","tags":["h"],"group":{"h":"a"}},{"name":"type","type":"text"}],` +
		`"tags":{"dc":["x"],"h":["a"]},"values":[[5,"<\/t>\u0001"]]}]},` +
		`{"sample_size":0,"results":[{"name":"none","tags":{},"values":[]}]}]}`
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestAppendDouble(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", math.Copysign(0, -1): "-0", 3: "3", -2.50: "-2.5", 0.001: "0.001", 0.00099: "9.9E-4",
		9999999: "9999999", 1e7: "1.0E7", 12345678: "1.2345678E7", -1e300: "-1.0E300", 5e-324: "5.0E-324",
		9.007199254740993e15: "9.007199254740992E15", math.MaxFloat64: "1.7976931348623157E308",
	} {
		if got := string(appendDouble(nil, v)); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

// An answer larger than the buffer is sent while it is computed: the same except for
// the place of sample_size.
func TestLargeAnswerStreams(t *testing.T) {
	for _, encoding := range []string{"identity", "gzip"} {
		kc := DefaultConfig()
		s := startServerWith(t, reference.New(nil), query.DefaultConfig(), kc)
		kc.ResponseBuffer = 1000
		small := startServerWith(t, s.store, query.DefaultConfig(), kc)
		s.fill(t, 3, 5000)
		const q = `{"start_absolute":0,"metrics":[{"name":"m"},{"name":"none"},{"name":"m","group_by":[{"name":"tag","tags":["h"]}]}]}`
		_, want := s.do(t, "POST", queryPath, q, "Accept-Encoding", encoding)
		resp, got := small.do(t, "POST", queryPath, q, "Accept-Encoding", encoding)
		if resp.ContentLength >= 0 {
			t.Errorf("content length %d", resp.ContentLength)
		}
		var a, b any
		if err := json.Unmarshal([]byte(want), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(got), &b); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s: %.300s\n%.300s", encoding, want, got)
		}
		if !strings.HasPrefix(got, `{"queries":[{"results":`) {
			t.Errorf("%.100s", got)
		}
	}
}

// Groups without points are sent while they are computed, too.
func TestEmptyGroupsStream(t *testing.T) {
	kc := DefaultConfig()
	kc.ResponseBuffer = 1000
	s := startServerWith(t, reference.New(nil), query.DefaultConfig(), kc)
	s.fill(t, 1, 2000)
	resp, got := s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{"name":"m",
		"group_by":[{"name":"time","range_size":{"value":1,"unit":"milliseconds"},"group_count":2000}],"aggregators":[{"name":"diff"}]}]}`)
	if n := strings.Count(got, `"values":[]`); resp.ContentLength >= 0 || n != 2000 {
		t.Errorf("%d groups, content length %d", n, resp.ContentLength)
	}
}

// A failure after the first bytes closes the connection; before, it is a status.
func TestFailureWhileStreaming(t *testing.T) {
	qc, kc := query.DefaultConfig(), DefaultConfig()
	qc.MaxSamples = 9000
	st := reference.New(nil)
	s := startServerWith(t, st, qc, kc)
	s.fill(t, 2, 5000)
	const q = `{"start_absolute":0,"metrics":[{"name":"m"}]}`
	resp, body := s.do(t, "POST", queryPath, q)
	if resp.StatusCode != 400 || !strings.Contains(body, "query.max_samples of 9000") || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	kc.ResponseBuffer = 1000
	small := startServerWith(t, st, qc, kc)
	resp, err := small.client.Post(small.url+queryPath, "", strings.NewReader(q))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a part was taken for the whole")
	}
}

func TestOverloadSaysWhatIsShort(t *testing.T) {
	qc := query.DefaultConfig()
	qc.MaxConcurrent, qc.MaxQueued = 1, 0
	s := startServerWith(t, reference.New(nil), qc, DefaultConfig())
	run, err := s.engine.Start(context.Background(), agg.Query{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	resp, body := s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{"name":"m"}]}`)
	if resp.StatusCode != 503 || !strings.Contains(body, "limit waiting queries of 0 reached") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
}

func TestQuerySizeIsLimited(t *testing.T) {
	kc := DefaultConfig()
	kc.MaxQuerySize = 100
	s := startServerWith(t, reference.New(nil), query.DefaultConfig(), kc)
	for _, path := range []string{queryPath, queryPath + "/tags", "/api/v1/datapoints/delete"} {
		resp, body := s.do(t, "POST", path, strings.Repeat(" ", 101))
		if resp.StatusCode != 400 || !strings.Contains(body, "bytes of a query of 100") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// A client that leaves ends its query.
func TestDisconnectEndsQuery(t *testing.T) {
	s := startServer(t)
	s.fill(t, 1, 300_000)
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+queryPath, strings.NewReader(
		`{"start_absolute":0,"metrics":[`+strings.Repeat(`{"name":"m"},`, 200)+`{"name":"m"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		resp, err := s.client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		done <- err
	}()
	waitFor(t, 2*time.Minute, func() bool { return len(s.engine.Running()) == 1 })
	leave()
	if err := <-done; err == nil {
		t.Error("the answer came to its end")
	}
	waitFor(t, 2*time.Minute, func() bool { return len(s.engine.Running()) == 0 })
}

// hanging is a store whose views come when their requests end.
type hanging struct {
	store.Store
	entered, ended chan string
}

func (h *hanging) View(ctx context.Context) (store.View, error) {
	h.entered <- ""
	select {
	case <-ctx.Done():
		h.ended <- ctx.Err().Error()
	case <-time.After(2 * time.Minute):
		h.ended <- "nobody ends the request"
	}
	return nil, context.Cause(ctx)
}

// A client that leaves ends its request, also one with a body that nobody needs, as python-kairosdb sends.
func TestDisconnectEndsRequestsWithBodies(t *testing.T) {
	h := &hanging{openEmbedded(t), make(chan string, 1), make(chan string, 1)}
	s := startServerWith(t, h, query.DefaultConfig(), DefaultConfig())
	for _, framing := range []string{"", "Content-Length: 2\r\n\r\n{}", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /api/v1/metricnames HTTP/1.1\r\nHost: x\r\n%s", cmp.Or(framing, "\r\n"))
		<-h.entered
		c.Close()
		if got := <-h.ended; got != context.Canceled.Error() {
			t.Errorf("%q: %s", framing, got)
		}
	}
}

func waitFor(t testing.TB, d time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s", d)
		}
	}
}

func TestPreflight(t *testing.T) {
	s := startServer(t)
	for _, path := range []string{"/api/v1/datapoints", queryPath, queryPath + "/tags", "/api/v1/datapoints/delete", "/api/v1/metric/x", "/api/v1/metricnames", "/api/v1/version"} {
		resp, body := s.do(t, "OPTIONS", path, "", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "X-A")
		h := resp.Header
		if resp.StatusCode != 200 || body != "" || h.Get("Access-Control-Allow-Origin") != "*" ||
			h.Get("Access-Control-Allow-Headers") != "X-A" || h.Get("Access-Control-Max-Age") != "86400" ||
			h.Get("Access-Control-Allow-Methods") != "POST" {
			t.Errorf("%s: %d %q %v", path, resp.StatusCode, body, h)
		}
	}
}

// pages notes how many names a view is asked for at once.
type pages struct {
	store.Store
	mu     sync.Mutex
	limits []int
}

func (p *pages) note(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits = append(p.limits, limit)
}

func (p *pages) noted() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.limits)
}

func (p *pages) View(ctx context.Context) (store.View, error) {
	v, err := p.Store.View(ctx)
	return &pagedView{v, p}, err
}

type pagedView struct {
	store.View
	pages *pages
}

func (v *pagedView) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	v.pages.note(q.Limit)
	return v.View.Names(ctx, q)
}

func TestNamesArePaged(t *testing.T) {
	asked := &pages{Store: openEmbedded(t)}
	s := startServerWith(t, asked, query.DefaultConfig(), DefaultConfig())
	var b store.Batch
	b.Reset(s.store.Epoch())
	for i := range namesPage + 5 {
		ref, err := s.store.Create(context.Background(), model.Series{
			Metric: fmt.Sprintf("n%06d", i), Tags: model.MustTags("h", "a"), Type: model.TypeLong,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.AddLong(ref, 1, 1, 0)
	}
	if err := s.store.Append(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	_, body := s.do(t, "GET", "/api/v1/metricnames?prefix=n", "")
	var got struct{ Results []string }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != namesPage+5 || got.Results[namesPage] != fmt.Sprintf("n%06d", namesPage) {
		t.Errorf("%d names", len(got.Results))
	}
	if got, want := asked.noted(), []int{namesPage, namesPage}; !slices.Equal(got, want) {
		t.Errorf("names are read in pages of %d, want %d", got, want)
	}
	if _, body := s.do(t, "GET", "/api/v1/tagvalues", "{}"); body != `{"results":["a"]}` {
		t.Error(body)
	}
}

func TestSmallAnswersStayPlain(t *testing.T) {
	s := startServer(t)
	resp, body := s.do(t, "GET", "/api/v1/metricnames", "", "Accept-Encoding", "gzip")
	if resp.Header.Get("Content-Encoding") != "" || body != `{"results":[]}` {
		t.Errorf("%v %s", resp.Header, body)
	}
	for header, want := range map[string]bool{
		"gzip": true, "gzip, deflate": true, "deflate": false, "": false, "identity;q=1, GZIP;q=0.5": true, "gzip;q=0": false,
	} {
		if acceptsGzip(header) != want {
			t.Errorf("%q: %v", header, !want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"start_absolute":1,"metrics":[{"name":"m","tags":{"h":["a","regex:b.*"]},"limit":"2","order":"desc",` +
		`"group_by":[{"name":"tag","tags":["h"]}],"aggregators":[{"name":"sum","sampling":{"value":"1","unit":"days"},"time_zone":"Europe/Berlin"}]}]}`))
	f.Add([]byte(`{start_relative:{value:1,unit:hours},metrics:[{name:'x'}]} // end`))
	f.Add([]byte(`{"start_absolute":1.5,"end_relative":{"value":2,"unit":"YEARS"},"metrics":[{"name":["a"],"aggregators":[{"name":"rate","unit":"weeks"}]}]}`))
	f.Add([]byte(`[[[[[[[[[[`))
	p := New(nil, idleEngine(), DefaultConfig(), "", time.Now).parser
	f.Fuzz(func(t *testing.T, text []byte) {
		req, err := p.parse(text)
		if err != nil {
			if _, ok := err.(*fault); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if req.Range.EndMS < req.Range.StartMS && len(req.Metrics) > 0 {
			t.Fatalf("empty range %v", req.Range)
		}
	})
}

func BenchmarkRawAnswer(b *testing.B) {
	s := startServer(b)
	s.fill(b, 1, 172_800)
	body := []byte(`{"start_absolute":0,"metrics":[{"name":"m"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := s.client.Post(s.url+queryPath, "", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || n < 172_800*8 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/172_800, "ns/sample")
}

// TestAccessOfRoutes: pages of another origin may send requests that read. Queries read
// although they are posted; killing a query does not although it is a GET.
func TestAccessOfRoutes(t *testing.T) {
	changes := map[string]bool{
		"POST /api/v1/datapoints/query":          false,
		"POST /api/v1/datapoints/query/tags":     false,
		"POST /api/v1/datapoints/delete/preview": false,
		"GET /api/v1/admin/killquery/{hash}":     true,
	}
	for _, r := range fuzzedAPI(t).Routes() {
		name := r.Method + " " + r.Path
		want, ok := changes[name]
		if !ok {
			want = r.Method != http.MethodGet && r.Method != http.MethodOptions
		}
		delete(changes, name)
		if r.Changes() != want {
			t.Errorf("%s has the access %s and changes something: %t", name, r.Access, r.Changes())
		}
	}
	for name := range changes {
		t.Errorf("there is no %s", name)
	}
}

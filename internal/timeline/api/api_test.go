package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/query"
	"varve/internal/store/reference"
	"varve/internal/timeline"
	"varve/internal/timeline/local"
)

// A served is the API over a real engine and shelf, behind a real server.
type served struct {
	t    *testing.T
	url  string
	api  *API
	stop func() // announces that the server stops
}

func serve(t *testing.T, change ...func(*timeline.Config, *ingest.Config)) *served {
	t.Helper()
	return serveQueries(t, query.DefaultConfig(), change...)
}

func serveQueries(t *testing.T, queries query.Config, change ...func(*timeline.Config, *ingest.Config)) *served {
	t.Helper()
	shelf, err := local.Open(vfs.NewMem(), "timelines", local.Options{})
	must(t, err)
	return serveShelf(t, shelf, queries, change...)
}

// serveShelf serves timelines of a shelf, which it closes at the end.
func serveShelf(t *testing.T, shelf timeline.Shelf, queries query.Config, change ...func(*timeline.Config, *ingest.Config)) *served {
	t.Helper()
	config, limits := timeline.DefaultConfig(), ingest.DefaultConfig()
	for _, f := range change {
		f(&config, &limits)
	}
	engine, err := timeline.Open(shelf, timeline.Options{Config: config, Upkeep: -1, Own: map[string]timeline.Layout{"_own": {}}})
	must(t, err)
	samples := reference.New(nil)
	pipeline := ingest.New(samples, limits, ingest.Options{Registerer: prometheus.NewRegistry()})
	api := New(Options{
		Engine: engine, Config: config, Pipeline: pipeline, Metric: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Queries: query.New(samples, queries, prometheus.NewRegistry(), time.Now),
	})
	mux := http.NewServeMux()
	for _, r := range api.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Checked())
	}
	stopping := make(chan struct{})
	s := httptest.NewUnstartedServer(mux)
	s.Config.BaseContext = func(net.Listener) context.Context {
		return httpapi.WithStopping(context.Background(), stopping)
	}
	s.Start()
	stop := sync.OnceFunc(func() { close(stopping) })
	t.Cleanup(func() {
		stop()
		s.Close()
		pipeline.Close()
		must(t, engine.Close())
		must(t, shelf.Close())
	})
	return &served{t: t, url: s.URL, api: api, stop: stop}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send sends a request. Words after the body are headers, as "Name: value".
func (s *served) send(method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+root+path, strings.NewReader(body))
	must(s.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(request)
	must(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(s.t, err)
	return answer.StatusCode, string(text)
}

// want sends a request and compares the answer.
func (s *served) want(status int, answer, method, path, body string, headers ...string) {
	s.t.Helper()
	if got, text := s.send(method, path, body, headers...); got != status || text != answer {
		s.t.Errorf("%s %s %.200s\n got %d %.2000s\nwant %d %s", method, path, body, got, text, status, answer)
	}
}

// wantPart sends a request whose answer is to have a part.
func (s *served) wantPart(status int, part, method, path, body string, headers ...string) {
	s.t.Helper()
	if got, text := s.send(method, path, body, headers...); got != status || !strings.Contains(text, part) {
		s.t.Errorf("%s %s %.200s\n got %d %.2000s\nwant %d ...%s...", method, path, body, got, text, status, part)
	}
}

const lines = "Content-Type: application/x-ndjson"

// Data is returned as it was sent, byte for byte, and so are times. The largest data is as
// large as the setting says.
func TestDataComesBack(t *testing.T) {
	s := serve(t)
	largest := int(timeline.DefaultConfig().PayloadBytesMax)
	for i, c := range []struct{ sent, back string }{
		{`"time":1700000000000,"data":{"b":1,"a":[1.50,1e2, -0 ],"a":"twice"}`, ``},
		{`"time":1700000000000,"data":null`, ``},
		{`"time":1700000000000,"data":"\u00e4\ud83d\ude00 \/ ä"`, ``},
		{`"time":1700000000000,"data":12345678901234567890.000`, ``},
		{`"time":1700000000000,"data":""`, ``},
		{`"time":1700000000000,"data_base64":""`, ``},
		{`"time":1700000000000,"data_base64":"AAH/IiI="`, ``},
		{"\"time\":1700000000000,\"data\":[1,\r\n\t2]", "\"time\":1700000000000,\"data\":[1,  \t2]"},
		{`"time_us":1700000000000123,"data":1`, `"time":1700000000000,"time_us":1700000000000123,"data":1`},
		{`"time_us":1700000000000000,"data":1`, `"time":1700000000000,"data":1`},
		{`"time":1.7e12,"data":1`, `"time":1700000000000,"data":1`},
		{`"time":-1,"data":1`, ``},
		{`"time_us":-1,"data":1`, `"time":-1,"time_us":-1,"data":1`},
		{`"time":-62135596800000,"data":1`, ``},
		{`"time":1,"data":"` + strings.Repeat("x", largest-2) + `"`, ``},
		{`"time":1,"data_base64":"` + base64.StdEncoding.EncodeToString(make([]byte, largest)) + `"`, ``},
	} {
		if c.back == "" {
			c.back = c.sent
		}
		name := fmt.Sprintf("/round%d", i)
		s.want(200, `{"accepted":1,"rejected":[],"ids":["x"]}`, "POST", name+"/events", `{"id":"x",`+c.sent+`}`)
		at, data, _ := strings.Cut(c.back, `,"data`)
		s.want(200, `{`+at+`,"id":"x","type":"","data`+data+`}`, "GET", name+"/latest", "")
	}
}

// Each form of a body: an event, an array, lines, packed or not.
func TestBodies(t *testing.T) {
	s := serve(t)
	event := func(i int) string { return fmt.Sprintf(`{"time":%d,"id":"e%d","type":"t","data":%d}`, 1000+i, i, i) }
	answer := `{"accepted":2,"rejected":[],"ids":["e1","e2"]}`
	s.want(200, `{"accepted":1,"rejected":[],"ids":["e1"]}`, "POST", "/a/events", event(1))
	s.want(200, answer, "POST", "/b/events", "\n[ "+event(1)+" ,\n"+event(2)+" ]\n")
	s.want(200, answer, "POST", "/c/events", event(1)+"\n\r\n  \n "+event(2), lines)
	s.want(200, answer, "POST", "/d/events", pack(t, event(1)+"\n"+event(2)+"\n"), lines, "Content-Encoding: gzip")
	s.want(200, answer, "POST", "/e/events", pack(t, "["+event(1)+","+event(2)+"]"), "Content-Encoding: gzip")
	s.want(200, `{"accepted":0,"rejected":[],"ids":[]}`, "POST", "/f/events", "[]")
	s.want(200, `{"accepted":0,"rejected":[],"ids":[]}`, "POST", "/f/events", "", lines)
	for _, name := range []string{"b", "c", "d", "e"} {
		s.want(200, `{"events":[`+event(2)+`,`+event(1)+`],"end":true}`, "GET", "/"+name+"/events", "")
	}
	status, text := s.send("POST", "/own/events", `[{"time":1,"data":1},{"time":1,"data":2}]`)
	var got report
	if must(t, json.Unmarshal([]byte(text), &got)); status != 200 || len(got.IDs) != 2 || got.IDs[0] == "" || got.IDs[0] >= got.IDs[1] {
		t.Errorf("ids of the server: %d %s", status, text)
	}
}

func pack(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	must(t, err)
	must(t, z.Close())
	return b.String()
}

// What one event gets wrong costs that event, and the answer names it.
func TestRejectedEvents(t *testing.T) {
	s := serve(t)
	for _, c := range []struct{ event, reason string }{
		{`{"data":1}`, `no \"time\"`},
		{`{"time":1}`, `no \"data\"`},
		{`{"time":1,"time_us":1,"data":1}`, `send one of them`},
		{`{"time":1,"data":1,"data_base64":""}`, `send one of them`},
		{`{"time":1,"time":1,"data":1}`, `\"time\" twice`},
		{`{"time":"1","data":1}`, `whole number of milliseconds`},
		{`{"time":1.5,"data":1}`, `whole number of milliseconds`},
		{`{"time":null,"data":1}`, `whole number of milliseconds`},
		{`{"time_us":9223372036854775807,"data":1}`, `whole number of microseconds`},
		{`{"time":-9223372036854775808,"data":1}`, `of the years 1 to 9999`},
		{`{"time":253402300800000,"data":1}`, `of the years 1 to 9999`},
		{`{"time":253402300799999,"data":1}`, `in the future`},
		{`{"tiem":1,"data":1}`, `no member \"tiem\"; did you mean time?`},
		{`{"time":1,"data":1,"timelines":["a"]}`, `the path names the timeline`},
		{`{"time":1,"data":1,"id":""}`, `\"id\" is empty`},
		{`{"time":1,"data":1,"id":5}`, `\"id\" is 5, but must be a text`},
		{`{"time":1,"data":1,"id":"` + strings.Repeat("x", 129) + `"}`, `at most 128`},
		{`{"time":1,"data":1,"type":"a\nb"}`, `control character`},
		{`{"time":1,"data":1,"id":"\ud800"}`, `half a character`},
		{`{"time":1,"data":1,"type":"\ufffd\\\ufffd\udc00\ud800"}`, `half a character`},
		{`{"time":1,"data_base64":"a"}`, `not base64`},
		{`{"time":1,"data":` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + `}`, `limit levels of the data of an event of 100`},
		{`{"time":1,"data_base64":"` + base64.StdEncoding.EncodeToString(make([]byte, 1<<20+1)) + `"}`, `limit timeline.payload_bytes_max of 1048576 reached, at least 1048577 needed: the data of an event`},
		{`{"time":1,"data":"` + strings.Repeat("x", 1<<20) + `"}`, `limit timeline.payload_bytes_max of 1048576`},
		{`5`, `an event is an object`},
	} {
		body := "[" + `{"time":1,"id":"before","data":1},` + c.event + `,{"time":2,"id":"behind","data":1}]`
		status, text := s.send("POST", "/r/events", body)
		if status != 200 || !strings.Contains(text, `{"accepted":2,"rejected":[{"index":1,"error":"`) || !strings.Contains(text, c.reason) {
			t.Errorf("%.100s: %d %.500s", c.event, status, text)
		}
		s.wantPart(400, c.reason, "POST", "/alone/events", c.event)
	}
	s.wantPart(200, `{"accepted":1,"rejected":[{"index":0,"error":"this is not valid JSON: `, "POST", "/r/events", "{\"time\":1\n{\"time\":1,\"data\":1}", lines)
	s.wantPart(200, `{"accepted":1,"rejected":[{"index":0,"error":"the text is not UTF-8`, "POST", "/r/events", "{\"time\":1,\"data\":\"\xff\"}\n{\"time\":1,\"data\":1}", lines)
	s.wantPart(404, `not found`, "GET", "/alone/latest", "")
}

// Bodies that are wrong as a whole store nothing.
func TestBadBodies(t *testing.T) {
	s := serve(t)
	for _, c := range []struct {
		body, reason string
		headers      []string
	}{
		{`[{"time":1,"data":1}`, "not valid JSON", nil},
		{``, "not valid JSON", nil},
		{`{"time":1,"data":1}` + "\n" + `{"time":1,"data":1}`, "application/x-ndjson", nil},
		{strings.Repeat("[", 20_000), "not valid JSON", nil},
		{"x", "Not in GZIP format", []string{"Content-Encoding: gzip"}},
		{"x", "ended early", []string{"Content-Encoding: gzip", lines}},
		{"not gzip at all", "damaged", []string{"Content-Encoding: gzip", lines}},
		{"x", `Content-Encoding \"br\" is not known`, []string{"Content-Encoding: br"}},
		{pack(t, `{"time":1,"data":1}`+"\n")[:30], "ended early", []string{"Content-Encoding: gzip", lines}},
	} {
		s.wantPart(400, c.reason, "POST", "/bad/events", c.body, c.headers...)
	}
	s.wantPart(404, "not found", "GET", "/bad/latest", "")
}

// Timelines of the server itself take no events from clients.
func TestOwnTimeline(t *testing.T) {
	s := serve(t)
	const reason = "timeline _own accepts no events here: the server stores its own events there"
	s.wantPart(400, reason, "POST", "/_own/events", `{"time":5,"data":1}`)
	s.want(200, `{"accepted":1,"rejected":[{"index":0,"error":"`+reason+`"}],"ids":["x","y"]}`, "POST", "/events",
		`[{"timelines":["a","_own"],"time":5,"id":"x","data":1},{"timelines":["a"],"time":5,"id":"y","data":1}]`)
	s.want(200, `{"events":[{"time":5,"id":"y","type":"","data":1}],"end":true}`, "GET", "/a/events", "")
}

// An event goes into several timelines, and a merged read has it of each.
func TestSeveralTimelines(t *testing.T) {
	s := serve(t)
	const event = `"time":5,"id":"x","type":"","data":1}`
	s.want(200, `{"accepted":1,"rejected":[],"ids":["x"]}`, "POST", "/events", `{"timelines":["a","b/c","ä"],`+event)
	s.want(200, `{"accepted":1,"rejected":[],"ids":["y"]}`, "POST", "/a/events", `{"time":6,"id":"y","data":2}`)
	s.want(200, `{`+event, "GET", "/b%2Fc/latest", "")
	s.want(200, `{`+event, "GET", "/%C3%A4/latest", "")
	s.want(200, `{"events":[{"timeline":"a","time":6,"id":"y","type":"","data":2},{"timeline":"a",`+event+`,{"timeline":"b/c",`+event+`],"end":true}`,
		"GET", "/events?timeline=a&timeline=b%2Fc", "")
	s.want(200, `{"accepted":1,"rejected":[],"ids":["��\\😀"]}`, "POST", "/events", `{"timelines":["s"],"time":5,"id":"\uFFFD\ufffd\\\ud83d\ude00","data":1}`)
	s.wantPart(400, `half a character`, "POST", "/events", `{"timelines":["\ud800"],"time":5,"data":1}`)
	s.wantPart(400, `cannot be called /`, "POST", "/events", `{"timelines":["/"],"time":5,"data":1}`)
	for _, name := range []string{".", ".."} {
		s.wantPart(400, `cannot be called `+name+`,`, "POST", "/events", `{"timelines":["`+name+`"],"time":5,"data":1}`)
		path := "/" + strings.ReplaceAll(name, ".", "%2E")
		s.wantPart(400, `cannot be called `+name+`,`, "POST", path+"/events", `{"time":5,"data":1}`)
		s.wantPart(400, `cannot be called `+name+`,`, "POST", path+"/layout", `{"size":60000}`)
	}
	s.wantPart(200, `"accepted":1`, "POST", "/events", `{"timelines":["...","./..","%2E"],"time":5,"data":1}`)
	s.wantPart(400, `no \"timelines\"`, "POST", "/events", `{"time":5,"data":1}`)
	s.wantPart(400, `must be a list of texts`, "POST", "/events", `{"time":5,"data":1,"timelines":"a"}`)
	s.wantPart(400, `no timeline`, "POST", "/events", `{"time":5,"data":1,"timelines":[]}`)
	s.wantPart(400, `twice`, "POST", "/events", `{"time":5,"data":1,"timelines":["a","a"]}`)
	many, err := json.Marshal(strings.Split(strings.Repeat("a ", 64), " "))
	must(t, err)
	s.wantPart(400, `limit timelines of an event of 64`, "POST", "/events", `{"time":5,"data":1,"timelines":`+string(many)+`}`)
	s.wantPart(400, `name the timelines`, "GET", "/events", "")
	s.wantPart(400, `given twice`, "GET", "/events?timeline=a&timeline=a", "")
	s.wantPart(400, `limit timelines of a merged read of 64`, "GET", "/events?"+strings.Repeat("timeline=a&", 65), "")
}

// Pages by cursor are the whole, in both directions.
func TestPages(t *testing.T) {
	s := serve(t)
	var b strings.Builder
	for i := range 250 {
		fmt.Fprintf(&b, `{"time":%d,"id":"e%03d","type":"t%d","data":%d}`+"\n", i/10, i, i%2, i)
	}
	s.wantPart(200, `{"accepted":250,"rejected":[]`, "POST", "/p/events", b.String(), lines)
	for _, c := range []struct {
		query       string
		first, last int
		step, count int
	}{
		{"", 249, 0, -1, 250},
		{"order=desc", 249, 0, -1, 250},
		{"order=asc&until=100", 0, 249, 1, 250},
		{"from=5&until=9", 99, 50, -1, 50},
		{"from_us=5000&until_us=8999", 89, 50, -1, 40},
		{"type=t1", 249, 1, -2, 125},
		{"from=-9223372036854775808&until=9223372036854775807", 249, 0, -1, 250},
	} {
		var got []string
		cursor := ""
		for {
			var page struct {
				Events []struct{ ID string }
				Cursor string
				End    bool
			}
			status, text := s.send("GET", "/p/events?limit=7&"+c.query+cursor, "")
			must(t, json.Unmarshal([]byte(text), &page))
			if status != 200 || len(page.Events) > 7 {
				t.Fatalf("%s: %d %s", c.query, status, text)
			}
			for _, e := range page.Events {
				got = append(got, e.ID)
			}
			if page.End {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(page.Cursor)
		}
		if len(got) != c.count {
			t.Errorf("%s: %d events, want %d", c.query, len(got), c.count)
			continue
		}
		for i, at := 0, c.first; i < len(got); i, at = i+1, at+c.step {
			if want := fmt.Sprintf("e%03d", at); got[i] != want {
				t.Fatalf("%s: event %d is %s, want %s", c.query, i, got[i], want)
			}
		}
	}
}

func TestBadParameters(t *testing.T) {
	s := serve(t)
	s.send("POST", "/p/events", `{"time":1,"id":"a","data":1}`)
	for _, c := range []struct{ method, path, reason string }{
		{"GET", "/p/events?limt=5", `did you mean limit?`},
		{"GET", "/p/events?limit=0", `limit is \"0\", but must be a whole number from 1 to 10000`},
		{"GET", "/p/events?limit=10001", `from 1 to 10000`},
		{"GET", "/p/events?limit=", `the parameter limit is empty`},
		{"GET", "/p/events?limit=1&limit=2", `is given 2 times`},
		{"GET", "/p/events?order=up", `desc or asc`},
		{"GET", "/p/events?from=now", `whole number of milliseconds`},
		{"GET", "/p/events?from=1&from_us=1", `give one of them`},
		{"GET", "/p/events?from=2&until=1", `until is before from`},
		{"GET", "/p/events?cursor=x", `cursor`},
		{"GET", "/p/events?cursor=" + strings.Repeat("A", 3000), `cursor`},
		{"GET", "/p/events?limit=%zz", `the query string cannot be read`},
		{"GET", "/p/tail?cursor=x", `cursor`},
		{"GET", "/p/tail?from=1", `unknown parameter`},
		{"GET", "/%01/events", `control character`},
		{"GET", "/" + strings.Repeat("x", 257) + "/latest", `at most 256`},
		{"GET", "/%ff/latest", `not UTF-8`},
		{"GET", "?limit=1001", `from 1 to 1000`},
		{"DELETE", "/p/events", `say which events`},
		{"DELETE", "/p/events?from=", `is empty`},
		{"DELETE", "/p/events?from=1&from=2", `is given 2 times`},
		{"DELETE", "/p/events?unitl=1", `did you mean until?`},
		{"DELETE", "/p/events?until=5;from=4", `cannot be read`},
		{"DELETE", "/p?id=a", `takes none`},
	} {
		s.wantPart(400, c.reason, c.method, c.path, "")
	}
	s.wantPart(200, `"id":"a"`, "GET", "/p/events?limit=1", "")
}

func TestDelete(t *testing.T) {
	s := serve(t)
	s.send("POST", "/d/events", `[{"time":1,"id":"a","data":1},{"time":2,"id":"b","data":2},{"time":3,"id":"c","data":3}]`)
	s.want(204, "", "DELETE", "/d/events?id=b", "")
	s.want(200, `{"events":[{"time":3,"id":"c","type":"","data":3},{"time":1,"id":"a","type":"","data":1}],"end":true}`, "GET", "/d/events", "")
	s.want(204, "", "DELETE", "/d/events?until=1", "")
	s.want(200, `{"events":[{"time":3,"id":"c","type":"","data":3}],"end":true}`, "GET", "/d/events", "")
	// A bound that leaves out all events is refused: it would select those at the end of time.
	s.send("POST", "/d/events", `{"time":-62135596800000,"id":"first","data":0}`)
	for _, beyond := range []string{"until=-9223372036854775808", "until_us=-62135596800000001", "from=9223372036854775807", "from_us=253402300800000000"} {
		s.wantPart(400, "events have times from", "DELETE", "/d/events?"+beyond, "")
		s.wantPart(400, "events have times from", "GET", "/d/events?"+beyond, "")
	}
	s.wantPart(200, `"id":"first"`, "GET", "/d/events", "")
	s.want(204, "", "DELETE", "/d/events?until=-62135596800000", "")
	s.want(200, `{"events":[{"time":3,"id":"c","type":"","data":3}],"end":true}`, "GET", "/d/events", "")
	s.want(204, "", "DELETE", "/d", "")
	s.wantPart(404, "not found", "GET", "/d/stats", "")
	s.want(204, "", "DELETE", "/never", "")
}

// What the API tells of a timeline, and changes of its layout.
func TestAboutATimeline(t *testing.T) {
	s := serve(t, func(c *timeline.Config, _ *ingest.Config) { c.Adapt = false })
	for _, path := range []string{"latest", "start", "stats", "layout"} {
		s.wantPart(404, `timeline \"x\": not found`, "GET", "/x/"+path, "")
	}
	s.wantPart(404, "not found", "POST", "/x/retention", `{"retention":0}`)
	s.send("POST", "/x/events", `[{"time":1700000000001,"id":"a","data":1},{"time_us":1700000001000002,"id":"b","data":22}]`)
	s.wantPart(200, `,"first":{"time":1700000000001,"id":"a"}}`, "GET", "/x/start", "")
	s.wantPart(200, `"newest":{"time":1700000001000,"time_us":1700000001000002,"id":"b"},"rate":`, "GET", "/x/stats", "")
	s.send("POST", "/x/events", `[{"time":1700000000001,"id":"c","data":1},{"time":253402300799999,"id":"in the future","data":1}]`)
	s.wantPart(200, `},"version":1,"retention":0,"appended":3}`, "GET", "/x/stats", "")
	s.wantPart(200, `"layouts":[{"from":null,"size":`, "GET", "/x/layout", "")
	s.wantPart(200, `{"timelines":[{"name":"x","start":`, "GET", "", "")
	s.want(200, `{"timelines":[]}`, "GET", "?prefix=y", "")

	s.wantPart(200, `,"size":3600000,"partitions":3,"mode":"index","placement":"round-robin"}]}`, "POST", "/x/layout", `{"size":3600000,"partitions":3,"mode":"index","placement":"round-robin"}`)
	for _, c := range []struct{ body, reason string }{
		{`{"size":7}`, `buckets cannot have a size of 0.007 s: it must be whole seconds`},
		{`{"from":1700000000000,"size":60000}`, `the layout cannot begin at 2023-11-14T22:13:20Z: `},
		{`{"partitions":65}`, `a bucket cannot have 65 partitions: 1 to 64 are allowed`},
		{`{"partitions":0}`, `from 1 to`},
		{`{"sizes":5}`, `did you mean size?`},
		{`{"size":60000,"size":60000}`, `twice`},
		{`{"mode":"both"}`, `one of`},
		{`{"mode":null}`, `must be a text`},
		{`[]`, `must be an object`},
		{`{`, `not valid JSON`},
		{`{"threshold":"` + strings.Repeat("x", 5000) + `"}`, `limit bytes of a change of a timeline of 4096`},
	} {
		s.wantPart(400, c.reason, "POST", "/x/layout", c.body)
	}
	s.wantPart(409, "changed meanwhile", "POST", "/x/layout", `{"version":1,"partitions":2}`)
	for _, body := range []string{`{}`, `{"retention":null}`, `{"retention":-1}`, `{"retention":"1d"}`, `{"retention":9223372036854775807}`} {
		s.wantPart(400, "retention", "POST", "/x/retention", body)
	}
	for _, ms := range []string{"-1", "9223372036855", "18446744073710"} { // the last one would be 0.4 ms in 64 bits of nanoseconds
		s.wantPart(400, ms+`, but must be a whole number of milliseconds from 0, for ever, to 9223372036854`, "POST", "/x/retention", `{"retention":`+ms+`}`)
	}
	s.wantPart(200, `"retention":86400000,`, "POST", "/x/retention", `{"retention":86400000}`)
	s.want(200, `{"events":[],"end":true}`, "GET", "/x/events", "")
}

func TestNames(t *testing.T) {
	s := serve(t)
	for i := range 5 {
		s.send("POST", fmt.Sprintf("/n%d/events", i), `{"time":1,"id":"a","data":1}`)
	}
	var got []string
	for cursor := ""; ; {
		var page struct {
			Timelines []struct{ Name string }
			Cursor    string
		}
		_, text := s.send("GET", "?prefix=n&limit=2&cursor="+url.QueryEscape(cursor), "")
		must(t, json.Unmarshal([]byte(text), &page))
		for _, n := range page.Timelines {
			got = append(got, n.Name)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if strings.Join(got, " ") != "n0 n1 n2 n3 n4" {
		t.Errorf("names: %q", got)
	}
}

// Limits are named, and overload is 503.
func TestLimits(t *testing.T) {
	s := serve(t, func(c *timeline.Config, i *ingest.Config) {
		c.TimelinesMax, c.RateMax = 2, 1
		i.MaxBodyBytes, i.MaxUnpackedBytes = 1000, 2000
	})
	s.send("POST", "/a/events", `{"time":1,"data":1}`)
	s.send("POST", "/b/events", `{"time":1,"data":1}`)
	s.wantPart(400, "limit timeline.timelines_max of 2", "POST", "/c/events", `{"time":1,"data":1}`)
	s.wantPart(503, "limit timeline.rate_max of 1", "POST", "/a/events", "["+strings.Repeat(`{"time":1,"data":1},`, 20)+`{"time":1,"data":1}]`)
	s.wantPart(400, "limit bytes of a body of 1000", "POST", "/a/events", strings.Repeat(" ", 1001))
	s.wantPart(400, "limit bytes of an unpacked body of 2000", "POST", "/a/events", pack(t, strings.Repeat(" ", 2001)), "Content-Encoding: gzip")
}

// A countingSpool counts the events that it gets.
type countingSpool struct {
	*timeline.Engine
	events int
}

func (s *countingSpool) Append(ctx context.Context, events []timeline.Addressed) (timeline.Result, error) {
	s.events += len(events)
	return s.Engine.Append(ctx, events)
}

// Events go to the spool, and deletes to the store.
func TestEventsGoToTheSpool(t *testing.T) {
	s := serve(t)
	spool := &countingSpool{Engine: s.api.engine}
	s.api.spool = spool
	s.want(200, `{"accepted":1,"rejected":[],"ids":["x"]}`, "POST", "/a/events", `{"time":1,"id":"x","data":1}`)
	if spool.events != 1 {
		t.Errorf("the spool took %d events, want 1", spool.events)
	}
	s.want(204, "", "DELETE", "/a/events?id=x", "")
	s.want(200, `{"events":[],"end":true}`, "GET", "/a/events", "")
	s.want(204, "", "DELETE", "/a", "")
}

// Of a body with more events than timeline.rate_max lets in at once, the first ones are stored. The
// answer says with which event to continue: the first one that was refused for the server's sake.
func TestRateLimitedBody(t *testing.T) {
	const rate, most, all = 2, 20, 47
	events := make([]string, all)
	for i := range events {
		events[i] = fmt.Sprintf(`{"time":%d,"id":"e%d","data":1}`, i+1, i)
	}
	for _, lines := range []bool{false, true} {
		s := serve(t, func(c *timeline.Config, _ *ingest.Config) { c.RateMax = rate })
		send := func(from int) (int, report) {
			body, kind := "["+strings.Join(events[from:], ",")+"]", "application/json"
			if lines {
				body, kind = strings.Join(events[from:], "\n"), "application/x-ndjson"
			}
			status, text := s.send("POST", "/a/events", body, "Content-Type: "+kind)
			var r report
			must(t, json.Unmarshal([]byte(text), &r))
			return status, r
		}
		status, r := send(0)
		if status != 503 || r.Accepted != most || r.Next == nil || *r.Next != most || len(r.Rejected) != most || r.Rejected[0].Index != most {
			t.Fatalf("lines %v: %d, %d accepted, %d rejected; want 503, %d and that event next", lines, status, r.Accepted, len(r.Rejected), most)
		}
		status, r = send(most)
		if status != 503 || r.Accepted != 0 || r.Next == nil || *r.Next != 0 {
			t.Errorf("lines %v, at once: %d, %d accepted; want 503, none, and the first event next", lines, status, r.Accepted)
		}
	}
}

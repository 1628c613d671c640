package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/failure"
	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/timeline"
)

// A body with almost only invalid events is read for a moment only, however strongly it is
// compressed. The valid events before that are stored.
func TestWrongEvents(t *testing.T) {
	s := serve(t)
	good := `{"time":1,"data":1}`
	for _, c := range []struct{ kind, body string }{
		{"application/x-ndjson", good + "\n" + strings.Repeat("x\n", badMost+10_000) + good},
		{"application/json", "[" + good + strings.Repeat(",{}", badMost+10_000) + "," + good + "]"},
	} {
		status, answer := s.send("POST", "/wrong/events", c.body, "Content-Type: "+c.kind)
		if status != 400 || !strings.Contains(answer, `{"accepted":1,`) || !strings.Contains(answer, `"errors":["limit invalid events of a request of 100000 reached`) {
			t.Errorf("%s: %d %.100s ... %s", c.kind, status, answer, answer[max(0, len(answer)-200):])
		}
	}
}

// A long body of lines is stored as it comes: others see its events before it ends, and it
// holds little memory.
func TestStreamedLines(t *testing.T) {
	s := serve(t, func(_ *timeline.Config, c *ingest.Config) {
		c.MaxBodyBytes, c.MaxUnpackedBytes, c.BodyMemory = 1<<10, 1<<20, 2<<20
	})
	in, out := io.Pipe()
	answered := make(chan string)
	go func() {
		request, err := http.NewRequest("POST", s.url+root+"/long/events", in)
		if err != nil {
			panic(err)
		}
		request.Header.Set("Content-Type", "application/x-ndjson")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		answered <- fmt.Sprint(answer.StatusCode, " ", string(text), err)
	}()
	r := s.follow("/long/tail", "")
	const n, wrong = 30_000, 2000
	for i := range n {
		fmt.Fprintf(out, `{"time":%d,"data":"%0100d"}`+"\n", i, i)
		if i < wrong {
			fmt.Fprintln(out, "{")
		}
		if i == 0 {
			if got := r.event(); !strings.HasPrefix(got, `{"time":0,`) {
				t.Fatalf("the first event arrives as %s", got)
			}
			r.cancel()
		}
	}
	must(t, out.Close())
	got := <-answered
	if !strings.HasPrefix(got, `200 {"accepted":30000,"rejected":[{"index":1,"error":"this is`) || !strings.HasSuffix(got, `"rejected_more":1000,"ids_more":22000}<nil>`) {
		t.Errorf("%.200s ... %s", got, got[max(0, len(got)-200):])
	}
}

// A sender that breaks off has stored its whole lines, and no half one.
func TestHalfLines(t *testing.T) {
	s := serve(t)
	r := s.follow("/half/tail", "")
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "POST", s.url+root+"/half/events", in)
	must(t, err)
	request.Header.Set("Content-Type", "application/x-ndjson")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if answer, err := http.DefaultClient.Do(request); err == nil {
			answer.Body.Close()
		}
	}()
	fmt.Fprint(out, `{"time":1,"id":"a","data":1}`+"\n"+`{"time":2,"id":"b","data":1}`) // the second lacks its line end
	if got := r.event(); !strings.Contains(got, `"id":"a"`) {
		t.Errorf("got %s", got)
	}
	cancel()
	out.CloseWithError(context.Canceled) // the client waits for its body
	<-ended
	s.want(200, `{"accepted":1,"rejected":[],"ids":["c"]}`, "POST", "/half/events", `{"time":3,"id":"c","data":1}`)
	if got := r.event(); !strings.Contains(got, `"id":"c"`) {
		t.Errorf("got %s", got)
	}
}

// A line that is too long costs that line. A text without line ends is no lines.
func TestLongLines(t *testing.T) {
	s := serve(t, func(c *timeline.Config, _ *ingest.Config) { c.PayloadBytesMax = 1 << 10 })
	limit := s.api.lineMax()
	long := `{"time":1,"data":"` + strings.Repeat("x", limit) + `"}`
	for _, end := range []string{"", "\n"} {
		s.wantPart(200, fmt.Sprintf(`"rejected":[{"index":1,"error":"limit bytes of a line of events of %d reached, at least %d needed`, limit, len(long)),
			"POST", "/l/events", `{"time":1,"data":1}`+"\n"+long+end, lines)
	}
	s.wantPart(200, `{"accepted":2,`, "POST", "/l/events", `{"time":1,"data":1}`+"\n"+long+"\n"+`{"time":1,"data":1}`, lines)
	s.wantPart(400, "the body is not lines of events", "POST", "/l/events", strings.Repeat("x", 20*limit), lines)
}

// While the server stops, the answer to a body of lines ends with the events stored so far.
func TestLinesEndWithTheServer(t *testing.T) {
	s := serve(t)
	s.stop()
}

// Without memory for bodies, requests are answered as overload.
func TestNoMemory(t *testing.T) {
	s := serve(t, func(_ *timeline.Config, c *ingest.Config) {
		c.MaxBodyBytes, c.MaxUnpackedBytes, c.BodyMemory, c.BusyWait = 1<<10, 1<<10, 2<<10, 1
	})
	share := s.api.pipeline.NewShare("")
	must(t, share.Grow(t.Context(), 2<<10))
	for _, header := range []string{lines, "Content-Type: application/json"} {
		s.wantPart(503, "ingest.body_memory", "POST", "/l/events", `{"time":1,"data":1}`, header)
	}
	share.Release()
	s.wantPart(200, `"accepted":1`, "POST", "/l/events", `{"time":1,"data":1}`)
}

// FuzzLines: lines are what a split at line ends gives, however they arrive.
func FuzzLines(f *testing.F) {
	p := ingest.New(&ingesttest.Recorder{}, ingest.DefaultConfig(), ingest.Options{Registerer: prometheus.NewRegistry()})
	defer p.Close()
	f.Add([]byte("a\n\n b \r\nc"), 3)
	f.Add([]byte(strings.Repeat("x", 10_000)+"\ny\n"+strings.Repeat("z", 5000)), 5000)
	f.Fuzz(func(t *testing.T, text []byte, most int) {
		most = 1 + most&0xffff
		for _, src := range []io.Reader{bytes.NewReader(text), iotest.HalfReader(bytes.NewReader(text)), iotest.DataErrReader(bytes.NewReader(text))} {
			in := &lineReader{src: src, share: p.NewShare(""), max: most}
			defer in.share.Release()
			must(t, in.open(t.Context()))
			var want [][]byte
			long := false
			for line := range bytes.SplitSeq(text, []byte("\n")) {
				if long = long || len(line) > skipLimit*most; len(line) > most {
					want = append(want, nil)
				} else if line = bytes.TrimSpace(line); len(line) > 0 {
					want = append(want, line)
				}
			}
			for !in.ended {
				err := in.fill(t.Context())
				if err != nil && long {
					return
				}
				must(t, err)
				for {
					line, err, ok := in.next()
					if !ok {
						break
					}
					if len(want) == 0 || !bytes.Equal(line, want[0]) || (err != nil) != (want[0] == nil) {
						t.Fatalf("line %.100q, %v; want %.100q", line, err, want[:min(1, len(want))])
					}
					want = want[1:]
				}
			}
			if len(want) > 0 {
				t.Fatalf("%d lines are missing, %.100q", len(want), want[0])
			}
			if cap(in.buf) > max(usualBuffer, 2*most) {
				t.Fatalf("the buffer has %d bytes for lines of %d", cap(in.buf), most)
			}
		}
	})
}

// FuzzEvent: a parsed event is encoded so that it parses as the same event.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"time":1700000000000,"id":"a","type":"b","data":{"x":[1,2,{"y":"z\"\\"}]}}`))
	f.Add([]byte(`{ "time_us" : -1 , "data_base64" : "AAEC" }`))
	f.Add([]byte("{\"time\":1,\"data\":[1,\n2],\"id\":\"\\u0041\"}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if checkJSON(text) != nil {
			return
		}
		e, err := parseEvent(text[space(text, 0):], "n")
		if err != nil {
			return
		}
		again := appendEvent(nil, "", &e.Event, false)
		if err := checkJSON(again); err != nil || bytes.ContainsAny(again, "\r\n") {
			t.Fatalf("%q: %v", again, err)
		}
		if e.ID == "" {
			e.ID = "x" // as the engine does
			again = appendEvent(nil, "", &e.Event, false)
		}
		again = bytes.Replace(again, fmt.Appendf(nil, `"time":%d,"time_us"`, floorMS(e.Time)), []byte(`"time_us"`), 1) // an event is sent with one of them
		got, err := parseEvent(again, "n")
		if err != nil || got.Time != e.Time || got.ID != e.ID || got.Type != e.Type || !bytes.Equal(got.Data, e.Data) {
			t.Fatalf("%q is shown as %q, which is read as %+v, %v", text, again, got, err)
		}
	})
}

// FuzzParameters: a query string gives a query that makes sense, or an error of the client.
func FuzzParameters(f *testing.F) {
	f.Add("limit=5&order=asc&from=1&until_us=2000&type=a&cursor=b")
	f.Add("from=-9223372036854775808&until=9223372036854775807")
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := parametersOf(&http.Request{URL: &url.URL{RawQuery: raw}}, "timeline")
		if err == nil {
			var q timeline.Query
			if q, err = p.query(); err == nil {
				if q.Limit < 0 || q.Limit > timeline.PageEventsMax || q.From != nil && (*q.From < timeline.MinTime || *q.From > timeline.MaxTime) ||
					q.Until != nil && (*q.Until < timeline.MinTime || *q.Until > timeline.MaxTime) || q.From != nil && q.Until != nil && *q.From > *q.Until {
					t.Fatalf("%q: %+v", raw, q)
				}
			}
		}
		if err != nil && failure.Of(err).Status != http.StatusBadRequest {
			t.Fatalf("%q: %v", raw, err)
		}
	})
}

// A packed body is read no further after 128 MiB without an event. What came before is stored.
func TestPackedBodyOfNothing(t *testing.T) {
	s := serve(t)
	event := `{"time":1,"data":1}` + "\n"
	gz := []string{"Content-Type: application/x-ndjson", "Content-Encoding: gzip"}
	blank := strings.Repeat("\n", 100<<20)
	if status, answer := s.send("POST", "/a/events", pack(t, event+blank+event+blank+event), gz...); status != http.StatusOK || !strings.HasPrefix(answer, `{"accepted":3,`) {
		t.Errorf("events among blanks: %d %.200s", status, answer)
	}
	status, answer := s.send("POST", "/b/events", pack(t, event+blank+blank+event), gz...)
	if status != http.StatusBadRequest || !strings.HasPrefix(answer, `{"accepted":1,`) || !strings.Contains(answer, "limit bytes without an accepted event in a compressed body of 134217728 reached") || !strings.Contains(answer, `"next":1`) {
		t.Errorf("200 MiB of blanks: %d %.300s", status, answer)
	}
}

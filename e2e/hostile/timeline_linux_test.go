package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const ndjson = "application/x-ndjson"

// lines sends a body of lines to a timeline.
func (w *ward) lines(ctx context.Context, name, body string, packed bool) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, "POST", "http://"+w.HTTP+"/api/v1/timelines/"+name+"/events", strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", ndjson)
	if packed {
		request.Header.Set("Content-Encoding", "gzip")
	}
	return w.Send(request)
}

// Readers of a timeline that never read are cut off and hold little memory, and more readers
// than there may be are turned away at once.
func TestTailsThatNeverRead(t *testing.T) {
	w := guard(t, "--timeline-tails-max=1000")
	w.under(300*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*(*attackFor))
		defer cancel()
		var busy atomic.Int64
		crowd(1500, func(i int) {
			c, err := connect(ctx, w.HTTP)
			if err != nil {
				return
			}
			defer c.Close()
			if c.say(fmt.Sprintf("GET /api/v1/timelines/loud/tail HTTP/1.1\r\nHost: %s\r\n\r\n", w.HTTP)) != nil {
				return
			}
			if i%3 == 0 {
				if status, _, _ := c.status(5 * time.Second); status == http.StatusServiceUnavailable {
					busy.Add(1)
					return
				}
			}
			if i == 0 { // one writes, all others sleep
				line := fmt.Sprintf(`{"time":1,"data":"%s"}`+"\n", strings.Repeat("x", 100<<10))
				for ctx.Err() == nil {
					status, answer, err := w.lines(ctx, "loud", strings.Repeat(line, 10), false)
					w.blames(status, answer, err)
					pause(ctx, lookEvery)
				}
			}
			<-ctx.Done()
		})
		if busy.Load() == 0 {
			t.Error("no reader was turned away")
		}
	})
}

// Bodies of lines that never go on, have no line ends, nest without end or unfold hold what
// has arrived of them, at most a line.
func TestLinesWithoutEnd(t *testing.T) {
	w := guard(t)
	w.part("half", 120*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, *attackFor)
		defer cancel()
		crowd(400, func(i int) {
			c, err := connect(ctx, w.HTTP)
			if err != nil {
				return
			}
			defer c.Close()
			c.say(fmt.Sprintf("POST /api/v1/timelines/half/events HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: 9000000000\r\n\r\n{\"time\":1,\"data\":1}\n{\"time\":", w.HTTP, ndjson))
			<-ctx.Done()
		})
	})
	for name, body := range map[string]string{
		"huge":   strings.Repeat("x", 40*mib),
		"text":   `{"time":1,"data":"` + strings.Repeat("x", 20*mib) + `"}`,
		"deep":   `{"time":1,"data":` + strings.Repeat("[", mib) + "\n" + strings.Repeat(`{"a":`, mib/5) + "\n",
		"blank":  strings.Repeat("\n", 40*mib),
		"tiny":   strings.Repeat("{}\n", 5*mib),
		"escape": `{"time":1,"type":"` + strings.Repeat(`\u0000`, 10_000) + `","data":1}`,
	} {
		w.part(name, 200*mib, func(ctx context.Context) {
			for _, gz := range []bool{false, true} {
				if gz {
					body = string(packed([]byte(body)))
				}
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				status, answer, err := w.lines(ctx, name, body, gz)
				cancel()
				w.blames(status, answer, err)
			}
		})
	}
}

// Names, cursors, times and parameters at and beyond their ends are answered, never 500.
func TestStrangeTimelines(t *testing.T) {
	w := guard(t)
	const most, least = "9223372036854775807", "-9223372036854775808"
	names := []string{"a%2Fb", "%2F", "%2F%2F..%2F", "%2E%2E", "%2E", "%00", "%0A", "%7F", "%FF%FE", "%E2%80%A8", "%25", "+", "events", "..;", strings.Repeat("n", 256), strings.Repeat("n", 257), strings.Repeat("%2F", 8000), strings.Repeat("n", 30<<10)}
	ends := []string{"", "/events", "/latest", "/start", "/stats", "/layout", "/retention", "/tail?cursor=%00", "/tail?cursor=" + strings.Repeat("A", 20<<10),
		"/events?cursor=AAAA", "/events?cursor=" + strings.Repeat("_", 9000), "/events?from=" + least + "&until=" + most, "/events?from_us=" + least + "&until_us=" + most + "&order=asc",
		"/events?from=" + most + "&until=" + least, "/events?limit=" + most, "/events?type=" + strings.Repeat("t", 9000), "/events?id=" + strings.Repeat("i", 9000), "/events?until=" + least}
	bodies := []string{"", "[]", "{}", "null", `{"time":` + most + `,"data":1}`, `{"time_us":` + least + `,"data":1}`, `{"time":1e308,"data":1}`, `{"time":-0,"data":1}`,
		`{"size":` + most + `}`, `{"from":` + most + `,"size":1000}`, `{"partitions":` + most + `}`, `{"retention":` + most + `}`, `{"retention":9223372036854}`}
	w.under(100*mib, func(ctx context.Context) {
		for _, name := range names {
			for _, end := range ends {
				for _, method := range []string{"GET", "DELETE", "POST"} {
					some := bodies
					if method != "POST" {
						some = bodies[:1]
					}
					for _, body := range some {
						if method == "GET" && strings.HasPrefix(end, "/tail") && !bytes.Contains([]byte(end), []byte("cursor")) {
							continue
						}
						ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
						status, answer, err := w.Do(ctx, method, "/api/v1/timelines/"+name+end, body)
						cancel()
						if err != nil || status >= 500 && status != http.StatusServiceUnavailable {
							w.t.Errorf("%s %.80s%.80s %.80s: %d %.300s, %v", method, name, end, body, status, answer, err)
						}
					}
				}
			}
		}
	})
}

// Readers whose filter matches nothing look through all events again and again, and lists of
// timelines describe each of them. Others have their turn meanwhile, and pages take the memory of
// queries.
func TestReadersOfEverything(t *testing.T) {
	w := guard(t)
	w.fillTimelines(1000, 100)
	for name, path := range map[string]string{
		"filter": "/api/v1/timelines/all/events?type=none&limit=10000",
		"pages":  "/api/v1/timelines/all/events?order=asc&limit=10000",
		"names":  "/api/v1/timelines?prefix=n&limit=1000",
	} {
		w.part(name, 400*mib, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, *attackFor)
			defer cancel()
			crowd(40, func(int) {
				for ctx.Err() == nil {
					w.Do(ctx, "GET", path, "")
				}
			})
		})
	}
}

// fillTimelines puts events into several timelines n0, n1, ... and all of them into the timeline all.
// Each request has the events of some of the timelines, since over Cassandra it writes to each
// timeline that it has events of.
func (w *ward) fillTimelines(timelines, each int) {
	w.t.Helper()
	const perRequest = 50
	for first := 0; first < timelines; first += perRequest {
		var b strings.Builder
		for i := first * each; i < min(first+perRequest, timelines)*each; i++ {
			fmt.Fprintf(&b, "{\"time\":%d,\"data\":\"%0300d\",\"timelines\":[\"all\",\"n%d\"]}\n", i, i, i/each)
		}
		request, err := http.NewRequestWithContext(w.t.Context(), "POST", "http://"+w.HTTP+"/api/v1/timelines/events", strings.NewReader(b.String()))
		if err != nil {
			w.t.Fatal(err)
		}
		request.Header.Set("Content-Type", ndjson)
		status, answer, err := w.Send(request)
		if err != nil || status != http.StatusOK {
			w.t.Fatalf("%d %.300s, %v", status, answer, err)
		}
	}
	w.base = w.memory("VmRSS")
}

// Small packed bodies that unpack to 64 MiB and more without an event keep no other request waiting, however
// many clients send them.
func TestPackedLinesOfNothing(t *testing.T) {
	w := guard(t)
	for name, text := range map[string]string{
		"blank": strings.Repeat("\n", 64*mib),
		"long":  strings.Repeat(strings.Repeat("x", 8*mib)+"\n", 16),
	} {
		body := string(packed([]byte(text)))
		w.part(name, 200*mib, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, *attackFor)
			defer cancel()
			crowd(40, func(int) {
				for ctx.Err() == nil {
					w.lines(ctx, name, body, true)
				}
			})
		})
	}
}

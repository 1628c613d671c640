package hostile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// quick are limits of time under which a test sees the end of a slow client.
var quick = []string{"--tune=server.stall_timeout=1s", "--tune=server.read_header_timeout=1s", "--server-idle-timeout=2s"}

// paths are requests by every way that a handler can deal with a body: read it
// all, read it as it comes, not read it, have no handler.
var paths = []string{
	"POST /api/v1/datapoints", "POST /api/put", "POST /api/v1/datapoints/query", "POST /api/v1/datapoints/query/tags",
	"POST /api/v1/datapoints/delete", "POST /api/v1/rollups", "POST /api/v1/metadata/s/k/n", "POST /api/v1/import",
	"POST /nothing", "DELETE /api/v1/version", "GET /api/v1/version", "POST /api/v1/version", "GET /api/v1/metricnames",
	"POST /admin/compact", "POST /admin/check", "POST /admin/backup", "GET /admin/stats", "GET /internal/metrics", "GET /api/v1/datapoints/query",
	"POST /render", "POST /metrics/find", "POST /events", "POST /tags/tagSeries", "POST /tags/delSeries", "GET /functions", "GET /metrics/index.json",
}

// Requests whose headers or bodies never come to their end, on every path, hold
// no place that others need, and are cut.
func TestHalfRequests(t *testing.T) {
	overBoth(t, slices.Concat(quick, []string{"--server-max-connections=400"}), halfRequests)
}

func halfRequests(t *testing.T, w *ward) {
	w.under(150*mib, func(ctx context.Context) {
		crowd(4*len(paths), func(i int) {
			method, path, _ := strings.Cut(paths[i%len(paths)], " ")
			c, err := w.visit(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			switch i / len(paths) {
			case 0: // announced and never sent
				c.say(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 10000000\r\n\r\n", method, path, w.HTTP, w.shows))
			case 1: // begun
				c.say(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 1000\r\n\r\n[{\"name\":", method, path, w.HTTP, w.shows))
			case 2: // a chunk that lacks its end
				c.say(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sTransfer-Encoding: chunked\r\n\r\nfffff\r\n[[[", method, path, w.HTTP, w.shows))
			case 3: // headers without an end
				c.say(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sX-", method, path, w.HTTP, w.shows))
			}
			if err := c.cut(10 * time.Second); err != nil {
				t.Errorf("%s, half request %d: %v", paths[i%len(paths)], i/len(paths), err)
			}
		})
	})
}

// More half bodies than there are connections, with as many headers as they may
// have, lock nobody out: the slowest make room.
func TestHalfBodiesInAllConnections(t *testing.T) {
	const most = "--server-max-connections=200"
	t.Run("plain", func(t *testing.T) { halfBodiesInAllConnections(guard(t, most)) })
	t.Run("over TLS", func(t *testing.T) {
		w, s := guardSecured(t, most)
		w.showsToken(s)
		halfBodiesInAllConnections(w)
	})
}

func halfBodiesInAllConnections(w *ward) {
	var headers strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&headers, "x%d:\r\n", i)
	}
	// Without the bystander: its idle connection makes room, too.
	w.halfBodies(w.t.Context(), "")
	w.halfBodies(w.t.Context(), headers.String())
	w.rests()
	w.judge(60 * mib)
}

// halfBodies fills all connections and more, then visits the server.
func (w *ward) halfBodies(ctx context.Context, headers string) {
	w.t.Helper()
	for range 250 {
		c, err := w.visit(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		defer c.Close()
		c.say(fmt.Sprintf("POST /api/v1/datapoints/query HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 1000\r\n%s\r\n{", w.HTTP, w.shows, headers))
	}
	const within = 5 * time.Second
	c, err := w.visit(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	c.say(fmt.Sprintf("GET /api/v1/version HTTP/1.1\r\nHost: %s\r\n\r\n", w.HTTP))
	if status, _, err := c.status(within); status != http.StatusOK {
		w.t.Errorf("a visitor got status %d within %v: %v", status, within, err)
	}
}

// Clients that bring a byte now and then never stall, and yet cannot shut others
// out: what they announce costs nothing, what has arrived does.
func TestTrickle(t *testing.T) { overBoth(t, nil, trickle) }

func trickle(_ *testing.T, w *ward) {
	w.under(100*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, *attackFor)
		defer cancel()
		crowd(64, func(i int) {
			method, path, _ := strings.Cut(paths[i%len(paths)], " ")
			c, err := w.visit(ctx)
			if err != nil {
				return
			}
			defer c.Close()
			if c.say(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 60000000\r\n\r\n", method, path, w.HTTP, w.shows)) != nil {
				return
			}
			for ctx.Err() == nil && c.say(" ") == nil {
				pause(ctx, 100*time.Millisecond)
			}
		})
	})
}

// Two bodies that are announced at the largest size there is do not keep a
// third one out.
func TestAnnouncedBodies(t *testing.T) {
	w := guard(t)
	w.under(100*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, *attackFor)
		defer cancel()
		crowd(8, func(i int) {
			c, err := w.visit(ctx)
			if err != nil {
				return
			}
			defer c.Close()
			announced := []string{"67108864", "134217727", "67108863", "9223372036854775807"}[i%4]
			c.say(fmt.Sprintf("POST /api/v1/datapoints HTTP/1.1\r\nHost: %s\r\nContent-Length: %s\r\nContent-Encoding: %s\r\n\r\n[",
				w.HTTP, announced, []string{"identity", "gzip"}[i/4]))
			<-ctx.Done()
		})
	})
}

// wide stores so many points that the answer to a question for all of them has
// some 10 MiB.
func (w *ward) wide() {
	w.t.Helper()
	const series, points = 40, 10_000
	for s := range series {
		var b strings.Builder
		fmt.Fprintf(&b, `[{"name":"wide","tags":{"host":"h%d"},"datapoints":[`, s)
		for p := range points {
			if p > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "[%d,%d.25]", bystanderStart+p*1000, p*7919%1_000_003)
		}
		b.WriteString("]}]")
		if _, err := w.Want(w.t.Context(), http.StatusNoContent, "POST", "/api/v1/datapoints", b.String()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.base = w.memory("VmRSS")
}

const wideQuestion = `{"start_absolute":0,"metrics":[{"name":"wide"}]}`

// Clients that ask for large answers and do not read them keep neither the
// memory nor the places of others.
func TestSlowReaders(t *testing.T) { overBoth(t, quick, slowReaders) }

func slowReaders(_ *testing.T, w *ward) {
	w.wide()
	w.under(700*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, max(*attackFor, 5*time.Second))
		defer cancel()
		crowd(80, func(int) {
			c, err := w.visit(ctx)
			if err != nil {
				return
			}
			defer c.Close()
			c.say(fmt.Sprintf("POST /api/v1/datapoints/query HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", w.HTTP, w.shows, len(wideQuestion), wideQuestion))
			<-ctx.Done()
		})
	})
}

// Clients of many addresses that read large answers slowly, but do read, keep memory only until others
// need it.
func TestSlowReadersOfManyAddresses(t *testing.T) {
	overBoth(t, []string{"--query-total-memory=128MiB"}, manySlowReaders)
}

func manySlowReaders(t *testing.T, w *ward) {
	w.wide()
	w.under(300*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var readers sync.WaitGroup
		for i, full := 0, false; !full && i < 50; i++ { // one after the other, until there is no memory
			begun := make(chan struct{})
			readers.Go(func() { w.readSlowly(ctx, fmt.Sprintf("127.0.0.%d", 3+i), begun) })
			select {
			case <-begun:
			case <-time.After(2 * time.Second):
				full = true
			}
		}
		for range 3 {
			if _, err := w.Want(ctx, http.StatusOK, "POST", "/api/v1/datapoints/query", wideQuestion); err != nil {
				t.Error(err)
			}
		}
		cancel()
		readers.Wait()
	})
}

// readSlowly asks for a large answer and reads 4 KiB of it a second. It closes begun at the first byte.
func (w *ward) readSlowly(ctx context.Context, from string, begun chan<- struct{}) {
	c, err := w.visitFrom(ctx, from)
	if err != nil {
		return
	}
	defer c.Close()
	c.say(fmt.Sprintf("POST /api/v1/datapoints/query HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", w.HTTP, w.shows, len(wideQuestion), wideQuestion))
	piece := make([]byte, 4<<10)
	for n := 0; ; n++ {
		if _, err := c.Read(piece); err != nil {
			return
		}
		if n == 0 {
			close(begun)
		}
		pause(ctx, time.Second)
	}
}

// Queries that together need more memory than there is wait for each other, but keep others from
// neither memory nor slots.
func TestQueriesThatWaitForMemory(t *testing.T) {
	w := guard(t, "--query-total-memory=64MiB", "--query-max-memory=32MiB")
	w.wide()
	const question = `{"start_absolute":0,"metrics":[{"name":"wide","aggregators":[{"name":"percentile","percentile":0.9,"sampling":{"value":10,"unit":"years"}}]}]}`
	var answered atomic.Int64
	w.under(300*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, max(*attackFor, 5*time.Second))
		defer cancel()
		crowd(32, func(int) {
			for ctx.Err() == nil {
				status, answer, err := w.post(ctx, "/api/v1/datapoints/query", []byte(question), false, time.Minute)
				w.blames(status, answer, err)
				if err == nil && status == http.StatusOK {
					answered.Add(1)
				}
			}
		})
	})
	if answered.Load() == 0 {
		t.Error("none of the queries was answered")
	}
}

// A client that reads slowly but steadily gets its whole answer, however many
// times the stall timeout that takes.
func TestSteadyReader(t *testing.T) {
	w := guard(t, quick...)
	w.wide()
	w.under(200*mib, func(ctx context.Context) {
		request, err := http.NewRequestWithContext(ctx, "POST", "http://"+w.HTTP+"/api/v1/datapoints/query", strings.NewReader(wideQuestion))
		if err != nil {
			t.Fatal(err)
		}
		response, err := w.Client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		n, began := 0, time.Now()
		for b := make([]byte, 128<<10); ; {
			m, err := io.ReadFull(response.Body, b)
			n += m
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				break
			}
			if err != nil {
				t.Fatalf("cut off after %d bytes and %v: %v", n, time.Since(began), err)
			}
			pause(ctx, 50*time.Millisecond)
		}
		if n < 8*mib {
			t.Errorf("the answer ended after %d bytes, in order", n)
		}
	})
}

// Connections on which nothing happens do not lock out those on which something
// does, by either port.
func TestIdleCrowds(t *testing.T) {
	w := guard(t, "--telnet-max-connections=64", "--server-max-connections=64", "--server-idle-timeout=2s", "--tune=server.read_header_timeout=1s")
	w.under(100*mib, func(ctx context.Context) {
		crowdCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		for range 80 {
			c, err := connect(crowdCtx, w.Telnet)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		c, err := connect(ctx, w.Telnet)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.say("put telnet.visitor 1700000000 1.5 host=a\n")
		for limit := time.Now().Add(10 * time.Second); ; pause(ctx, lookEvery) {
			names, err := w.MetricNames(ctx, "telnet.visitor")
			if err != nil {
				t.Error(err)
				return
			}
			if len(names) == 1 {
				return
			}
			if time.Now().After(limit) {
				t.Error("80 idle connections keep a sender out of the telnet port")
				return
			}
		}
	})
}

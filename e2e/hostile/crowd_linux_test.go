package hostile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// crowdAddress is where a crowd connects from. The bystander and visitors do from 127.0.0.1.
const crowdAddress = "127.0.0.2"

// One address that sends points as fast as it can, over hundreds of connections, holds up neither
// visitors that send by the same protocol nor the bystander.
func TestCrowdOfOneAddress(t *testing.T) {
	now := time.Now().Unix()
	each := func(format string) func(name string, n int) string {
		return func(name string, n int) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, format, name, now-int64(i))
			}
			return b.String()
		}
	}
	items := each("(S'%s'\n(I%d\nF1\nttp1\na")
	lines := func(w *ward) string { return w.Carbon(w.t, "lines") }
	telnet := func(w *ward) string { return w.Telnet }
	pickles := func(w *ward) string { return w.Carbon(w.t, "pickles") }
	for name, p := range map[string]struct {
		address func(w *ward) string
		points  func(name string, n int) string
	}{
		"lines":   {lines, each("%s 1 %d\n")},
		"telnet":  {telnet, each("put %s %d 1 h=a\n")},
		"pickles": {pickles, func(name string, n int) string { return frame("(lp0\n" + items(name, n) + ".") }},
	} {
		t.Run(name, func(t *testing.T) {
			w := guard(t)
			w.beside(func(ctx context.Context) { w.crowdBeside(ctx, p.address(w), p.points) })
			w.judge(400 * mib) // it does not rest: what the crowd left in the kernel's buffers is valid, and is stored
		})
	}
}

// Queries of one address, however many, do not take the places of others that wait for a slot.
func TestQueriesOfOneAddress(t *testing.T) {
	w := guard(t, quick...)
	w.wide()
	w.under(1200*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, max(*attackFor, 5*time.Second))
		defer cancel()
		crowd(600, func(int) {
			c, err := connectFrom(ctx, crowdAddress, w.HTTP)
			if err != nil {
				return
			}
			defer c.Close()
			c.say(fmt.Sprintf("POST /api/v1/datapoints/query HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", w.HTTP, len(wideQuestion), wideQuestion))
			<-ctx.Done()
		})
	})
}

// Requests of one address, however many, whole or not, leave others all that requests need: turns to be
// parsed, memory for texts, deletes, exports, pages of metrics.
func TestRequestsOfOneAddress(t *testing.T) {
	w := guard(t, "--query-total-memory=128MiB")
	const form = "Content-Type: application/x-www-form-urlencoded\r\n"
	post := func(path, header string, length int, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", path, w.HTTP, header, length, body)
	}
	half := func(path, header string, length int) string {
		return post(path, header, length, strings.Repeat(" ", length-1))
	}
	get := func(path string) string { return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, w.HTTP) }
	remove := `{"start_absolute":1,"end_absolute":2,"metrics":[{"name":"crowd"}]}`
	many := `{"start_absolute":1,"metrics":[` + strings.Repeat(`{"name":"crowd"},`, 200) + `{"name":"crowd"}]}`
	for name, text := range map[string]string{
		"halves of queries":       half("/api/v1/datapoints/query", "", 64_000),
		"halves of large queries": half("/api/v1/datapoints/query", "", 1<<20),
		"halves of forms":         half("/render", form, 1<<20),
		"halves of events":        half("/events", "", 64_000),
		"queries":                 strings.Repeat(post("/api/v1/datapoints/query", "", len(many), many), 50),
		"deletes":                 strings.Repeat(post("/api/v1/datapoints/delete", "", len(remove), remove), 200),
		"exports":                 strings.Repeat(get("/api/v1/export?metric=bystander"), 200),
		"pages of metrics":        strings.Repeat(get("/internal/metrics"), 50),
		"readers that follow":     get("/api/v1/timelines/crowd/tail"),
	} {
		w.part(name, 400*mib, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, max(*attackFor, 3*time.Second))
			defer cancel()
			visits := make(chan struct{})
			go func() {
				defer close(visits)
				for pause(ctx, time.Second/2); ctx.Err() == nil; pause(ctx, askEvery) {
					w.visitAll(ctx)
				}
			}()
			crowd(1200, func(int) {
				c, err := connectFrom(ctx, crowdAddress, w.HTTP)
				if err != nil {
					return
				}
				defer c.Close()
				go io.Copy(io.Discard, c)
				c.say(text)
				<-ctx.Done()
			})
			<-visits
		})
	}
}

// visitAll sends a request of each kind that has places or memory of its own.
func (w *ward) visitAll(ctx context.Context) {
	for _, v := range []struct {
		status             int
		method, path, body string
	}{
		{http.StatusOK, "POST", "/api/v1/datapoints/query", bystanderQuestion(0, 0) + strings.Repeat(" ", 5000)},
		{http.StatusOK, "POST", "/api/v1/datapoints/query", bystanderQuestion(0, 0) + strings.Repeat(" ", 100_000)},
		{http.StatusNoContent, "POST", "/api/v1/datapoints/delete", `{"start_absolute":1,"end_absolute":2,"metrics":[{"name":"visitor"}]}`},
		{http.StatusOK, "GET", "/api/v1/export?metric=visitor", ""},
		{http.StatusOK, "GET", "/internal/metrics", ""},
		{http.StatusOK, "POST", "/events", `{"what":"` + strings.Repeat("w", 5000) + `"}`},
	} {
		w.timed(ctx, v.method+" "+v.path, func(ctx context.Context) error {
			_, err := w.Want(ctx, v.status, v.method, v.path, v.body)
			return err
		})
	}
}

// crowdBeside sends points from many connections of one address, and visits the server beside them.
func (w *ward) crowdBeside(ctx context.Context, address string, points func(name string, n int) string) {
	ctx, cancel := context.WithCancel(ctx)
	visits := make(chan struct{})
	go func() {
		defer close(visits)
		defer cancel()
		pause(ctx, *attackFor)
		for i := range 5 {
			visitor := fmt.Sprint("visitor", i)
			w.timed(ctx, "visitor", func(ctx context.Context) error { return w.visitWith(ctx, address, visitor, points(visitor, 1)) })
		}
	}()
	var flood string
	for i := range 100 {
		flood += points(fmt.Sprint("crowd", i), 12)
	}
	crowd(200, func(int) {
		c, err := connectFrom(ctx, crowdAddress, address)
		if err != nil {
			return
		}
		defer c.Close()
		for err == nil {
			_, err = c.Write([]byte(flood)) // until ctx ends
		}
	})
	<-visits
}

// visitWith sends the first point of a metric and waits until queries see it.
func (w *ward) visitWith(ctx context.Context, address, metric, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := connect(ctx, address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.say(text); err != nil {
		return err
	}
	for ; ; pause(ctx, lookEvery/10) {
		if names, err := w.MetricNames(ctx, metric); err != nil || len(names) == 1 {
			return err
		}
	}
}

package hostile

import (
	"context"
	"fmt"
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

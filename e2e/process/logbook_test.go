package process

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestLogbook: lines come in any pieces; warnings and what is no log line are
// faults, and messages are counted and waited for.
func TestLogbook(t *testing.T) {
	l := newLogbook()
	ready, never := l.Next("server is ready"), l.Next("never")
	for _, piece := range []string{
		"time=1 level=INFO msg=star", "ting\ntime=2 level=INFO msg=\"server is ready\" addr=127.0.0.1:1 pid=7\n",
		"time=3 level=INFO msg=\"server is ready\" addr=127.0.0.1:2 pid=8\ntime=4 level=DEBUG msg=request path=/\n",
	} {
		if l.Fault() != "" {
			t.Errorf("before %q: fault %q", piece, l.Fault())
		}
		io.WriteString(l, piece)
	}
	select {
	case <-ready:
	default:
		t.Error("the message that came is still waited for")
	}
	select {
	case <-never:
		t.Error("a message that did not come is told")
	default:
	}
	if n, m := l.Count("server is ready"), l.Count("starting"); n != 2 || m != 1 {
		t.Errorf("counted %d and %d", n, m)
	}
	if addr, none := l.Attribute("server is ready", "addr"), l.Attribute("server is ready", "nothing"); addr != "127.0.0.1:2" || none != "" {
		t.Errorf("attributes %q, %q", addr, none)
	}
	if tail := l.Tail(); strings.Contains(tail, "request") || strings.Count(tail, "\n") != 2 {
		t.Errorf("tail %q", tail)
	}
	for _, line := range []string{"panic: no", "time=5 level=WARN msg=slow", "time=6 level=INFO msg=fine"} {
		fmt.Fprintln(l, line)
	}
	if got := l.Fault(); got != "panic: no" || len(l.faults) != 2 {
		t.Errorf("fault %q of %d", got, len(l.faults))
	}
	for i := range 1000 {
		fmt.Fprintf(l, "time=7 level=INFO msg=many i=%d\n", i)
	}
	if n := len(l.lines); n > keptLines || l.Count("many") != 1000 || l.Attribute("many", "i") != "999" {
		t.Errorf("%d lines are kept, %d were counted", n, l.Count("many"))
	}
}

package ingest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A deadlined connection keeps the read deadlines that are set.
type deadlined struct {
	http.ResponseWriter
	set []time.Time
}

func (d *deadlined) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// The timer of a body that has ended sets no deadline, even if it has begun to fire:
// the connection may have its next request.
func TestTimerOfAnEndedBody(t *testing.T) {
	c := &deadlined{ResponseWriter: httptest.NewRecorder()}
	p := newPace(strings.NewReader("x"), http.NewResponseController(c))
	p.stop()
	p.expire()
	if len(c.set) != 0 {
		t.Errorf("deadlines %v were set", c.set)
	}
	p = newPace(strings.NewReader("x"), http.NewResponseController(c))
	p.expire()
	p.stop()
	p.stop()
	if len(c.set) != 2 || c.set[0].IsZero() || !c.set[1].IsZero() {
		t.Errorf("a body that is late at its end leaves the deadlines %v", c.set)
	}
}

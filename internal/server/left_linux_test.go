package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"varve/internal/httpapi"
)

// A long request ends with its client, also if net/http answers it and the client has sent more
// behind it, which net/http does not read.
func TestClientLeavesBytesBehind(t *testing.T) {
	t.Parallel()
	type end struct {
		name string
		err  error
	}
	entered, ended := make(chan struct{}), make(chan end, 3)
	s := start(t, func(o *Options) {
		o.Routes = []httpapi.Route{route("POST", "/long", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			entered <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-time.After(2 * time.Minute):
			}
			ended <- end{r.Header.Get("Name"), r.Context().Err()}
		})}
	})
	requests := map[string]string{
		"by the fast path": "Content-Length: 3\r\n\r\nabc",
		"by net/http":      "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"without a body":   "X: \x80\r\n\r\n",
	}
	for name, framing := range requests {
		w := s.dial()
		w.send(fmt.Sprintf("POST /long HTTP/1.1\r\nHost: %s\r\nName: %s\r\n%s", s.Addr("http"), name, framing))
		<-entered
		w.send("G")
		w.Close()
	}
	for range requests { // each is noticed after two seconds
		if got := <-ended; !errors.Is(got.err, context.Canceled) {
			t.Errorf("%s: the request ended with %v, want %v", got.name, got.err, context.Canceled)
		}
	}
}

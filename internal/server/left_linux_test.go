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
	entered, ended := make(chan struct{}), make(chan error, 1)
	s := start(t, func(o *Options) {
		o.Routes = []httpapi.Route{route("POST", "/long", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			entered <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-time.After(20 * time.Second):
			}
			ended <- r.Context().Err()
		})}
	})
	for name, framing := range map[string]string{
		"by the fast path": "Content-Length: 3\r\n\r\nabc",
		"by net/http":      "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"without a body":   "X: \x80\r\n\r\n",
	} {
		w := s.dial()
		w.send(fmt.Sprintf("POST /long HTTP/1.1\r\nHost: %s\r\n%s", s.Addr("http"), framing))
		<-entered
		w.send("G")
		w.Close()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the request ended with %v, want %v", name, err, context.Canceled)
		}
	}
}

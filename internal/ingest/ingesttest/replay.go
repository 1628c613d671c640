package ingesttest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"varve/internal/httpapi"
)

// Replay writes a connection's bytes in pieces to a server of some routes, and returns
// status and body of each answer. Other paths get 200, which is left out.
func Replay(t testing.TB, routes []httpapi.Route, data []byte, piece int) string {
	t.Helper()
	const elsewhere = "X-Elsewhere"
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set(elsewhere, "yes")
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		WritePieces(c, data, piece) // an error shows in the answers
		c.(*net.TCPConn).CloseWrite()
	}()
	var out strings.Builder
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			break // the server closes after the last request
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.Header.Get(elsewhere) == "" {
			fmt.Fprintf(&out, "%d %s\n", resp.StatusCode, body)
		}
	}
	<-sent
	return out.String()
}

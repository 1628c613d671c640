package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAsker(t *testing.T) {
	long := strings.Repeat("points", 100_000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "text/plain":
			http.Error(w, "not what was sent", http.StatusBadRequest)
		case string(body) == "never":
			<-r.Context().Done()
		case string(body) == "last":
			w.Header().Set("Connection", "close")
			io.WriteString(w, "last"+long)
		case string(body) == "wrong":
			http.Error(w, "no such metric", http.StatusNotFound)
		default:
			w.Write(append(body, long...)) // in chunks
		}
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	text := func(body string) []byte {
		r := request{http.MethodPost, s.URL + "/query", http.Header{"Content-Type": {"text/plain"}}, []byte(body)}
		text, err := r.text()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	a, err := dialAsker(ctx, request{url: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, body := range []string{"first", "", "last", "next"} {
		if got, err := a.ask(text(body)); err != nil || string(got) != body+long {
			t.Errorf("%d bytes %v, want %d", len(got), err, len(body+long))
		}
	}
	if _, err := a.ask(text("wrong")); err == nil || !strings.Contains(err.Error(), "404 Not Found: no such metric") {
		t.Errorf("%v, want the server's", err)
	}
	go cancel()
	if got, err := a.ask(text("never")); err == nil {
		t.Errorf("%q after the end", got)
	}
}

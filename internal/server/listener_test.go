package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
)

// Answers around the sizes at which net/http writes, in one or more pieces, with
// and without a length, come whole and in order.
func TestAnswersOfAllSizes(t *testing.T) {
	text := make([]byte, 40_000)
	for i := range text {
		text[i] = 'a' + byte(i%23)
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		piece, _ := strconv.Atoi(r.URL.Query().Get("piece"))
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", strconv.Itoa(size))
		}
		for at := 0; at < size; at += piece {
			if _, err := w.Write(text[at:min(size, at+piece)]); err != nil {
				t.Error(err)
			}
		}
	}
	s := start(t, func(o *Options) {
		o.Routes = append(o.Routes, route(http.MethodGet, "/answer", handler))
	})
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	for _, size := range []int{0, 1, 2047, 2048, 2049, 3900, 4095, 4096, 4097, 8000, 8192, 40_000} {
		for _, piece := range []int{size + 1, 1000, 2048, 4096, 5000} {
			for _, length := range []string{"", "&length"} {
				path := fmt.Sprintf("/answer?size=%d&piece=%d%s", size, piece, length)
				r, err := client.Get("http://" + s.Addr("http") + path)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || !bytes.Equal(got, text[:size]) {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
			}
		}
	}
}

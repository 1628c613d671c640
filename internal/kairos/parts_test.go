package kairos

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"varve/internal/query"
)

// A large answer that is held back has the text of one that is sent as it grows, with
// its length and with sample_size in KairosDB's place, even if part of it is cached.
func TestHeldBackInParts(t *testing.T) {
	kc := DefaultConfig()
	s := startServerWith(t, openEmbedded(t), query.DefaultConfig(), kc)
	s.fill(t, 3, 30_000)
	kc.ResponseBuffer = 1000
	sending := startServerWith(t, s.store, query.DefaultConfig(), kc)
	const q = `{"start_absolute":0,"cache_time":100,"metrics":[{"name":"m","group_by":[{"name":"tag","tags":["h"]}]},{"name":"m","tags":{"h":["1"]}}]}`
	_, sent := sending.do(t, "POST", queryPath, q)
	const size, results = `"sample_size":90000`, `"results":[`
	want := strings.Replace(sent, `{`+results, `{`+size+`,`+results, 1)
	want = strings.Replace(want, `],`+size+`}`, `]}`, 1)
	want = strings.Replace(want, `,{`+results, `,{"sample_size":30000,`+results, 1)
	want = strings.Replace(want, `],"sample_size":30000}`, `]}`, 1)
	if len(want) < 4*partSize {
		t.Fatalf("%d bytes are not several parts", len(want))
	}
	for _, ask := range []string{"first", "from the cache"} {
		for _, encoding := range []string{"gzip", "identity"} {
			resp, got := s.do(t, "POST", queryPath, q, "Accept-Encoding", encoding)
			if got != want {
				t.Errorf("%s, %s: %d bytes, want %d: %.200s", ask, encoding, len(got), len(want), got)
			}
			if encoding == "identity" && resp.ContentLength != int64(len(want)) {
				t.Errorf("%s: content length %d of %d", ask, resp.ContentLength, len(want))
			}
			if encoding == "gzip" && ask == "first" && resp.ContentLength < 1 {
				t.Error("the answer was not compressed before its query ended")
			}
		}
	}
}

// A large answer leaves little garbage: its buffer does not grow by copying itself, and
// the next answer reuses it.
func TestGarbageOfLargeAnswers(t *testing.T) {
	s := startServer(t)
	s.fill(t, 20, 20_000)
	ask := func() (size, garbage float64) {
		r := httptest.NewRequest(http.MethodPost, queryPath, strings.NewReader(`{"start_absolute":0,"metrics":[{"name":"m","group_by":[{"name":"tag","tags":["h"]}]}]}`))
		w := &discard{header: http.Header{}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.api.serve(s.api.postQuery)(w, r)
		runtime.ReadMemStats(&after)
		return float64(w.bytes), float64(after.TotalAlloc - before.TotalAlloc)
	}
	size, garbage := ask()
	if size < 4<<20 || garbage > 2.5*size {
		t.Errorf("an answer of %.0f bytes allocated %.1f times as much", size, garbage/size)
	}
}

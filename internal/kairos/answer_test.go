package kairos

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/store/reference"
)

// idleEngine is an engine over an empty store, for tests that run no query.
func idleEngine() *agg.Engine {
	return agg.New(query.New(reference.New(nil), query.DefaultConfig(), prometheus.NewRegistry(), time.Now), nil)
}

// A large answer that was held back is compressed when its sending begins. Meanwhile a
// waiting query gets its turn.
func TestLargeAnswerLetsOthersHaveTheirTurn(t *testing.T) {
	config := query.DefaultConfig()
	config.MaxConcurrent = 1
	engine := agg.New(query.New(reference.New(nil), config, prometheus.NewRegistry(), time.Now), nil)
	run, err := engine.Start(t.Context(), agg.Query{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	r := httptest.NewRequest(http.MethodPost, queryPath, nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	a := newAnswer(w, r, 0)
	a.run = run
	var text []byte
	for rng := rand.New(rand.NewPCG(1, 2)); len(text) < 16<<20; {
		text = append(strconv.AppendFloat(text, rng.Float64(), 'f', -1, 64), ',')
	}
	for at := 0; at < len(text); at += partSize {
		part := text[at:min(at+partSize, len(text))]
		a.full, a.held = append(a.full, bytes.Clone(part)), a.held+int64(len(part))
	}
	other := make(chan error, 1)
	go func() {
		run, err := engine.Start(t.Context(), agg.Query{})
		if err == nil {
			run.Close(nil)
		}
		other <- err
	}()
	waitFor(t, 2*time.Minute, func() bool { return engine.Queued() == 1 })
	if err := a.spill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-other:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("the other query still waits, although all is compressed")
	}
	if err := a.finish(); err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(unpacked); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes arrived, %v; want the %d that were written", len(got), err, len(text))
	}
}

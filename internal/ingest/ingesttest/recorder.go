// Package ingesttest helps to test front ends: a store that remembers what it
// was given, and recorded requests in pieces.
package ingesttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/model"
	"varve/internal/store"
)

// Recorder is a store.Appender that keeps all samples in order. It stands in
// for a store when a pipeline is tested; it answers no questions.
type Recorder struct {
	// OnAppend, if set, is asked before a batch is kept; an error refuses it.
	OnAppend func(b *store.Batch) error

	// OnCreate, if set, is asked before a series is created; an error refuses it.
	OnCreate func(s model.Series) error

	// Refused, if set, is a metric whose samples are refused, while those beside them are
	// kept: the error is a *store.PartError.
	Refused string

	mu struct {
		sync.Mutex
		epoch   uint64
		refs    map[string]store.Ref
		void    map[store.Ref]bool
		series  []model.Series
		bytes   int64 // of all keys
		samples []string
		count   int
		appends int
		quiet   bool
	}
}

// Epoch is the number of times Forget was called without series.
func (r *Recorder) Epoch() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.epoch
}

// Forget makes the references of some series void, or all, which begins an epoch.
func (r *Recorder) Forget(some ...model.Series) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range some {
		key := string(s.AppendKey(nil))
		if ref, ok := r.mu.refs[key]; ok {
			if r.mu.void == nil {
				r.mu.void = map[store.Ref]bool{}
			}
			r.mu.void[ref] = true
			r.mu.bytes -= int64(len(key))
			delete(r.mu.refs, key)
		}
	}
	if len(some) > 0 {
		return
	}
	r.mu.epoch++
	clear(r.mu.void)
	clear(r.mu.refs)
	r.mu.series, r.mu.bytes = nil, 0
}

// Quiet makes the recorder count samples only, for benchmarks.
func (r *Recorder) Quiet() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.quiet = true
}

func (r *Recorder) Lookup(key []byte) (store.Ref, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref, ok := r.mu.refs[string(key)]
	return ref, ok
}

func (r *Recorder) Create(_ context.Context, s model.Series) (store.Ref, error) {
	key := string(s.AppendKey(nil))
	if _, err := model.ParseKey(key); err != nil {
		return 0, fmt.Errorf("created with a bad key: %w", err)
	}
	if r.OnCreate != nil {
		if err := r.OnCreate(s); err != nil {
			return 0, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.refs == nil {
		r.mu.refs = map[string]store.Ref{}
	}
	if ref, ok := r.mu.refs[key]; ok {
		return ref, nil
	}
	ref := store.Ref(len(r.mu.series))
	r.mu.refs[key] = ref
	r.mu.series = append(r.mu.series, s)
	r.mu.bytes += int64(len(key))
	return ref, nil
}

func (r *Recorder) SeriesCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.series)
}

// SeriesBytes is the length of all keys.
func (r *Recorder) SeriesBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.bytes
}

func (r *Recorder) Append(ctx context.Context, b *store.Batch) error {
	if r.OnAppend != nil {
		if err := r.OnAppend(b); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Epoch != r.mu.epoch || slices.ContainsFunc(b.Samples, func(s store.Sample) bool { return r.mu.void[s.Ref] }) {
		return store.ErrStale
	}
	r.mu.appends++
	refused := 0
	for _, s := range b.Samples {
		switch series := r.mu.series[s.Ref]; {
		case r.Refused != "" && series.Metric == r.Refused:
			refused++
		case !r.mu.quiet:
			r.mu.samples = append(r.mu.samples, render(series, s, b))
		}
	}
	stored := len(b.Samples) - refused
	r.mu.count += stored
	if refused > 0 {
		return &store.PartError{Stored: stored, Refused: refused, Err: &store.UnavailableError{Reason: "a part of the store takes no samples"}}
	}
	return nil
}

// render is, for example, load{host=a} long 1700000000000 5 ttl=60.
func render(series model.Series, s store.Sample, b *store.Batch) string {
	kind := series.Type.Kind()
	text := fmt.Sprintf("%s%s %v %d ", series.Metric, series.Tags, kind, s.TimeMS)
	switch kind {
	case model.Long:
		text += fmt.Sprint(int64(s.Value))
	case model.Double:
		text += fmt.Sprint(model.Float(kind, s.Value))
	case model.Complex:
		text += fmt.Sprintf("%x", b.Bytes(s))
	default:
		text += fmt.Sprintf("%q", b.Bytes(s))
	}
	if s.TTL > 0 {
		text += fmt.Sprintf(" ttl=%d", s.TTL)
	}
	return text
}

// Samples returns what was stored, in order, one line each.
func (r *Recorder) Samples() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.samples)
}

// Text is Samples as one text.
func (r *Recorder) Text() string { return strings.Join(r.Samples(), "\n") }

// Count returns the number of samples and of batches.
func (r *Recorder) Count() (samples, appends int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.count, r.mu.appends
}

// NewPipeline makes a Pipeline over r with the default limits as change leaves
// them, and its own metrics registry.
func NewPipeline(r store.Appender, change func(*ingest.Config)) (*ingest.Pipeline, *prometheus.Registry) {
	return NewPipelineAt(r, change, nil)
}

// NewPipelineAt is NewPipeline with a clock.
func NewPipelineAt(r store.Appender, change func(*ingest.Config), now func() time.Time) (*ingest.Pipeline, *prometheus.Registry) {
	cfg := ingest.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	reg := prometheus.NewRegistry()
	return ingest.New(r, cfg, ingest.Options{Registerer: reg, Logger: slog.New(slog.DiscardHandler), Now: now}), reg
}

// Counters returns the counters called name that are not 0, by the values of
// their labels joined with a comma.
func Counters(t testing.TB, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				values[strings.Join(labels, ",")] = v
			}
		}
	}
	return values
}

// Pieces yields data cut into pieces of n bytes.
func Pieces(data []byte, n int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for piece := range slices.Chunk(data, n) {
			if !yield(piece) {
				return
			}
		}
	}
}

// WritePieces writes data to w in pieces of n bytes.
func WritePieces(w io.Writer, data []byte, n int) error {
	for piece := range Pieces(data, n) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// Rejections returns the refused inputs that are kept, newest first, the number of
// all, and the size of the kept ones as JSON.
func Rejections(tb testing.TB, p *ingest.Pipeline) (list []ingest.Rejection, total, size int) {
	tb.Helper()
	list, all := p.Rejected()
	text, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return list, int(all), len(text)
}

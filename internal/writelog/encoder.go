package writelog

import (
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/registry"
	"varve/internal/store"
)

// MaxBatchBytes bounds the size of one batch in a log. Ingest sends smaller batches.
const MaxBatchBytes = 16 << 20

// An Encoder prepares batches for a log and a head. Reuse it to reuse its memory.
type Encoder struct {
	Kinds   []model.Kind        // of each sample's series
	Samples []byte              // second part of a batch record
	Define  []record.Definition // scratch for the writer of the first part

	forgets uint64 // calls of Forget before the refs were looked up
}

// Encode fills Kinds and Samples from b. It returns store.ErrStale if b has void or
// unknown refs, and the errors of store.Appender for a batch that cannot be stored.
func (e *Encoder) Encode(r *registry.Registry, b *store.Batch) error {
	if r.Epoch() != b.Epoch {
		return store.ErrStale
	}
	e.forgets = r.Forgets()
	var ok bool
	if e.Kinds, ok = r.Kinds(e.Kinds[:0], b.Samples); !ok {
		return store.ErrStale
	}
	e.Samples = record.AppendSamples(e.Samples[:0], b, e.Kinds)
	if len(e.Samples) > MaxBatchBytes {
		return &store.LimitError{Limit: "bytes of a batch", Max: MaxBatchBytes, Need: int64(len(e.Samples)), What: "append"}
	}
	return nil
}

// Current reports whether the refs that Encode has looked up are still valid. The
// caller must keep series from being forgotten during the call.
func (e *Encoder) Current(r *registry.Registry, b *store.Batch) bool {
	if r.Epoch() != b.Epoch {
		return false
	}
	if r.Forgets() == e.forgets {
		return true
	}
	_, ok := r.Kinds(e.Kinds[:0], b.Samples) // a series' kind never changes
	return ok
}

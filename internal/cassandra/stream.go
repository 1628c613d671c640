package cassandra

import (
	"context"
	"sync"
	"sync/atomic"

	"varve/internal/store"
	"varve/internal/work"
)

// A stream is a cursor whose first block may be read before it is requested.
type stream struct {
	ctx    context.Context // of the reader
	source store.Cursor

	mu     sync.Mutex // held while another goroutine reads the first block
	closed atomic.Bool
	begun  chan struct{} // closed when the first block has been read; nil without read-ahead
	first  *store.Block
	err    error
}

// newStream opens the rows of a series in all keyspaces.
func newStream(ctx context.Context, sel selected, o store.ReadOptions) *stream {
	if len(sel.stored) == 1 {
		return &stream{ctx: ctx, source: sel.stored[0].open(ctx, o)}
	}
	o.Summarize = nil // samples of one keyspace may hide those of another
	m := &mergedSource{kind: sel.series.Type.Kind(), descending: o.Descending}
	for _, st := range sel.stored {
		m.inputs = append(m.inputs, &input{source: st.open(ctx, o)})
	}
	return &stream{ctx: ctx, source: m}
}

// begin reads the first block before it is requested.
func (s *stream) begin() {
	s.mu.Lock()
	s.err = work.Do("read ahead", func() (err error) {
		s.first, err = s.source.Next()
		return err
	})
	s.mu.Unlock()
	if s.closed.Load() {
		s.Close()
	}
	close(s.begun)
}

// Next implements store.Cursor.
func (s *stream) Next() (*store.Block, error) {
	if s.begun != nil {
		select {
		case <-s.begun:
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
		s.begun = nil
		return s.first, s.err
	}
	return s.source.Next()
}

// Close releases the stream. It does not wait for a first block that is still being read: the
// goroutine that reads it then closes the cursor.
func (s *stream) Close() {
	s.closed.Store(true)
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.source.Close()
}

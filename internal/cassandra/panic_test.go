package cassandra

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/work"
)

// A faultySource panics like code that has a fault.
type faultySource struct{ closed int }

func (s *faultySource) Next() (*store.Block, error) {
	var none []*store.Block
	return none[s.closed], nil
}
func (s *faultySource) Close() { s.closed++ }

// TestPanicWhileReadingAhead: a fault of Varve in the goroutine that reads ahead is
// the error of the call that asks for the block, and its source is closed.
func TestPanicWhileReadingAhead(t *testing.T) {
	source := &faultySource{}
	s := &stream{ctx: t.Context(), source: source, begun: make(chan struct{})}
	go s.begin()
	var fault *work.PanicError
	if block, err := s.Next(); block != nil || !errors.As(err, &fault) {
		t.Errorf("%v, %v", block, err)
	}
	s.Close()
	if source.closed != 1 {
		t.Errorf("closed %d times", source.closed)
	}
}

// noLook is a layout.Look that nothing is asked of.
type noLook struct{ layout.Look }

// TestPanicInOneKeyspace: a fault of Varve while one of several keyspaces is asked
// is the error of the request, and ends what the others do for it.
func TestPanicInOneKeyspace(t *testing.T) {
	v := &view{}
	for _, name := range []string{"", "old", "older"} {
		v.keyspaces = append(v.keyspaces, &keyspace{cluster: &cluster{name: name, within: model.AllTime}, look: noLook{}})
	}
	for n := range v.keyspaces {
		v := &view{keyspaces: v.keyspaces[:n+1]}
		var others atomic.Int64
		err := v.eachKeyspace(t.Context(), v.keyspaces, model.AllTime, func(ctx context.Context, i int, _ layout.Look) error {
			if i == n {
				panic("no such luck")
			}
			<-ctx.Done()
			others.Add(1)
			return ctx.Err()
		})
		var fault *work.PanicError
		if !errors.As(err, &fault) || others.Load() != int64(n) {
			t.Errorf("%d keyspaces: %v, and %d others ended", n+1, err, others.Load())
		}
	}
}

// A fault of Varve in what is done for several clusters or keyspaces is the error of the request, even
// if there is only one of them.
func TestPanicInEach(t *testing.T) {
	for n := 1; n <= 3; n++ {
		var fault *work.PanicError
		if err := each("delete from a cluster", n, func(int) error { panic("no such luck") }); !errors.As(err, &fault) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

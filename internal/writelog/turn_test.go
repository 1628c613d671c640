package writelog

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/store"
)

// A queue appends batches that wait behind one that is being applied.
type queue struct {
	*tenant
	t    *testing.T
	ref  store.Ref
	errs chan error
}

// newQueue returns a queue behind a batch that is applied until release is closed.
func newQueue(t *testing.T) (q *queue, release chan struct{}) {
	n := newTenant(t, vfs.NewMem()).open(t)
	t.Cleanup(func() { n.Close() })
	ref := mustCreate(t, n.series, model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	q = &queue{tenant: n, t: t, ref: ref, errs: make(chan error, 20)}
	inside, release := make(chan struct{}), make(chan struct{})
	go func() {
		q.errs <- q.append(t.Context(), crowdAddress, 0, func() { close(inside); <-release })
	}()
	<-inside
	return q, release
}

var (
	crowdAddress  = netip.MustParsePrefix("192.0.2.1/32")
	singleAddress = netip.MustParsePrefix("192.0.2.2/32")
)

func (q *queue) append(ctx context.Context, sender netip.Prefix, ms int64, before func()) error {
	b := store.Batch{Sender: sender}
	b.Reset(q.series.Epoch())
	b.AddLong(q.ref, ms, ms, 0)
	return q.Append(ctx, &b, func(e *Encoder) (Entry, error) {
		before()
		q.applied = append(q.applied, ms)
		return Entry{}, nil
	})
}

// A waiting context tells that somebody waits for its end.
type waiting struct {
	context.Context
	told chan struct{}
}

func (w waiting) Done() <-chan struct{} {
	select {
	case w.told <- struct{}{}:
	default:
	}
	return w.Context.Done()
}

// wait appends a batch, and returns when it waits for its turn.
func (q *queue) wait(ctx context.Context, sender netip.Prefix, ms int64) {
	q.t.Helper()
	w := waiting{ctx, make(chan struct{}, 1)}
	go func() { q.errs <- q.append(w, sender, ms, func() {}) }()
	select {
	case <-w.told:
	case <-time.After(time.Minute):
		q.t.Fatal("a batch waits for no turn beside another one that is being applied")
	}
}

// A sender whose many batches wait delays the batch of another one by a single batch.
func TestSendersTakeTurns(t *testing.T) {
	q, release := newQueue(t)
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	const single = 100
	for ms := range int64(10) {
		q.wait(t.Context(), crowdAddress, 1+ms)
	}
	q.wait(t.Context(), singleAddress, single)
	free()
	for range 12 {
		if err := <-q.errs; err != nil {
			t.Fatal(err)
		}
	}
	if at := slices.Index(q.applied, single); at != 2 {
		t.Errorf("batches were applied in the order %v, want %d after one of the crowd that waited", q.applied, single)
	}
	if n := q.TurnWaits(); n != 11 {
		t.Errorf("%d batches have waited, want 11", n)
	}
}

// A batch whose context ends while it waits for its turn is not applied, and the log goes on.
func TestContextEndsBeforeTheTurn(t *testing.T) {
	q, release := newQueue(t)
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	ctx, cancel := context.WithCancel(t.Context())
	q.wait(ctx, singleAddress, 1)
	cancel()
	if err := <-q.errs; !errors.Is(err, context.Canceled) {
		t.Errorf("the batch that waits: %v", err)
	}
	free()
	if err := errors.Join(<-q.errs, q.append(t.Context(), singleAddress, 2, func() {})); err != nil {
		t.Error(err)
	}
	if !slices.Equal(q.applied, []int64{0, 2}) || q.Writable() != nil {
		t.Errorf("batches %v were applied; the log: %v", q.applied, q.Writable())
	}
}

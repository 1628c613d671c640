package ingest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// newTags names the i-th series of a sender, each with 60 tags that no other series has.
func newTags(sender, i int) *ingest.Names {
	n := &ingest.Names{Metric: "m"}
	for k := range 60 {
		n.Tags = append(n.Tags, model.Tag{Name: fmt.Sprintf("%d.%d.%d", sender, i, k), Value: "v"})
	}
	return n
}

// sendNew sends series with new tags in as many blocks as they take. With full, blocks end when they are full;
// otherwise all are in one, as the lines of a connection are. It returns how many are refused.
func sendNew(ctx context.Context, w *ingest.Writer, sender, series int, full bool) (blocks, refused int, err error) {
	for at := 0; at < series; blocks++ {
		begin := at
		_, err := w.Ingest(ctx, series, func() error {
			for at = begin; at < series && !(full && w.Full()); at++ {
				ref, err := w.ResolveTyped(model.TypeLong, newTags(sender, at))
				if f, ok := err.(*ingest.Fault); ok {
					refused++
					w.Reject(f, nil)
					continue
				}
				if err != nil {
					return err
				}
				w.AddLong(ref, 1, 1, 0)
			}
			return nil
		})
		if err != nil {
			return blocks, refused, err
		}
	}
	return blocks, refused, nil
}

// A store indexes new series one block after the other. A sender of many of them, with short names and tags that
// are all new, kept all other senders waiting for each of its blocks, of 100,000 tags, and for those of as many
// connections as it had.
func TestNewNamesDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ingesttest.Recorder{}
		var indexing atomic.Int64 // blocks with new names in the store, which do not end
		release := make(chan struct{})
		known := store.Ref(0)
		r.OnAppend = func(b *store.Batch) error {
			if b.Samples[0].Ref != known {
				if n := int64(len(b.Samples)) * 60; n > 5000 && indexing.Load() < 2 {
					t.Errorf("the store has to index %d tags at once", n)
				}
				indexing.Add(1)
				<-release
			}
			return nil
		}
		p, reg := ingesttest.NewPipeline(r, nil)
		bystander := p.NewWriter(p.Protocol("test"), "127.0.0.2", time.Second)
		write := func() {
			t.Helper()
			if _, err := bystander.Ingest(t.Context(), 1, func() error { return put(bystander, "m", "known", 1) }); err != nil {
				t.Errorf("a sender of known series: %v", err)
			}
		}
		write()
		var senders sync.WaitGroup
		for i := range 40 {
			senders.Go(func() {
				w := p.NewWriter(p.Protocol("test"), "127.0.0.1", 0)
				if blocks, refused, err := sendNew(t.Context(), w, i, 200, true); err != nil || refused > 0 || blocks < 2 {
					t.Errorf("%d blocks, %d refused, %v", blocks, refused, err)
				}
			})
		}
		synctest.Wait()
		if n := indexing.Load(); n < 1 || n > 2 {
			t.Errorf("the store indexes %d blocks at once, and all others wait for it", n)
		}
		write()
		w := p.NewWriter(p.Protocol("test"), "127.0.0.3", time.Second)
		if _, _, err := sendNew(t.Context(), w, 100, 100, false); err != ingest.ErrBusy {
			t.Errorf("one more sender of new names, after a second: %v", err)
		}
		ctx, leave := context.WithCancel(t.Context())
		left, before := make(chan error, 1), indexing.Load()
		go func() {
			_, _, err := sendNew(ctx, p.NewWriter(p.Protocol("test"), "127.0.0.4", 0), 102, 100, false)
			left <- err
		}()
		synctest.Wait()
		leave()
		synctest.Wait()
		if n := indexing.Load() - before; n != 0 || len(left) != 1 {
			t.Errorf("a sender leaves while it waits: %d of its blocks are indexed, and it has %d answers", n, len(left))
		}
		close(release)
		senders.Wait()
		if err := <-left; err != context.Canceled {
			t.Errorf("a sender that left while it waited: %v", err)
		}
		if n := r.SeriesCount(); n != 40*200+100+100+1 {
			t.Errorf("%d series are stored", n)
		}
		if n := ingesttest.Counters(t, reg, "varve_ingest_waits_total")["names"]; n < 38 {
			t.Errorf("%v waits are counted", n)
		}
		if _, refused, err := sendNew(t.Context(), w, 101, 200, false); err != nil || refused > 0 {
			t.Errorf("in one block: %d refused, %v", refused, err)
		}
	})
}

// Series that are not indexed yet count as what they may take in the index: senders that create very many at the
// same time, all before the first of them is indexed, exceed max_series_memory by little.
func TestNewNamesAtTheLimit(t *testing.T) {
	for _, full := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const most, perSeries = int64(32 * units.MiB), 60 * 450
			r := &indexed{perSeries: perSeries}
			p, _ := ingesttest.NewPipeline(r, func(c *ingest.Config) { c.MaxSeriesMemory = units.Bytes(most) })
			var senders sync.WaitGroup
			var refused atomic.Int64
			for i := range 40 {
				senders.Go(func() {
					w := p.NewWriter(p.Protocol("test"), "127.0.0.1", 0)
					_, n, err := sendNew(t.Context(), w, i, 150, full)
					if err != nil {
						t.Error(err)
					}
					refused.Add(int64(n))
				})
			}
			senders.Wait()
			if n := r.SeriesBytes(); n > most*12/10 || n < most*8/10 {
				t.Errorf("full %v: series take %d of %d bytes", full, n, most)
			}
			if n := refused.Load(); int(n)+r.SeriesCount() != 40*150 {
				t.Errorf("full %v: %d are refused, and %d stored", full, n, r.SeriesCount())
			}
		})
	}
}

// indexed is a store that knows what a series takes in its index once the block of the series is stored.
type indexed struct {
	ingesttest.Recorder
	perSeries int64
	order     sync.Mutex
	bytes     atomic.Int64
}

func (x *indexed) Append(ctx context.Context, b *store.Batch) error {
	time.Sleep(time.Millisecond) // all create their series before the first is indexed
	x.order.Lock()
	defer x.order.Unlock()
	x.bytes.Add(int64(len(b.Samples)) * x.perSeries)
	return x.Recorder.Append(ctx, b)
}

func (x *indexed) SeriesBytes() int64 { return x.Recorder.SeriesBytes() + x.bytes.Load() }

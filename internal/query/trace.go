package query

import (
	"sync/atomic"
	"time"

	"varve/internal/store"
)

// Stats say what a session did and where its time went.
type Stats struct {
	Wait    time.Duration // for a free slot
	Index   time.Duration // finding series, listing names
	Series  int64
	Samples int64
	Sent    int64 // bytes of the answer, if it went through Session.Writer

	// The rest is measured for a Request with Trace only. Series are read in
	// parallel, and Read is the sum over all goroutines, so it may exceed the
	// time that passed.
	Read   time.Duration // in the store: reading and decoding
	Blocks int64
	Bytes  int64 // of decoded samples

	Store  []store.Count    // what the store counts about its work, if it does
	Stages []store.StageUse // the stages that were read, of a store that downsamples
}

// A trace is where a Session counts. The first three are nanoseconds.
type trace struct {
	wait, index, read atomic.Int64
	blocks, bytes     atomic.Int64
	sent              atomic.Int64
	stages            store.StageLog
}

// Stats returns what the session did so far.
func (s *Session) Stats() Stats {
	t := &s.trace
	stats := Stats{
		Wait: time.Duration(t.wait.Load()), Index: time.Duration(t.index.Load()), Series: s.series.Load(), Samples: s.samples.Load(), Sent: t.sent.Load(),
		Read: time.Duration(t.read.Load()), Blocks: t.blocks.Load(), Bytes: t.bytes.Load(), Stages: t.stages.Used(),
	}
	if view, ok := store.As[store.Tracer](s.view); ok && s.request.Trace {
		stats.Store = view.Trace()
	}
	return stats
}

func since(n *atomic.Int64, began time.Time) { n.Add(int64(time.Since(began))) }

package timeline

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/gate"
)

// An Engine answers requests on the timelines of a shelf. Its methods may be called by any
// goroutine.
type Engine struct {
	shelf   Shelf
	whole   bool        // the shelf is a Whole
	deletes DeletionLog // nil if only this process puts events
	config  Config
	options Options
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	ids     ids
	clock   clock

	lines struct { // timelines in use, and some that were used recently
		sync.Mutex
		named map[string]*line
	}
	tails  *gate.Gate
	asking chan struct{} // see tailsAtOnce

	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// Open starts an engine. The shelf stays open after Close.
func Open(shelf Shelf, o Options) (*Engine, error) {
	o.Config = o.Config.withDefaults()
	if err := o.Config.Validate(); err != nil {
		return nil, fmt.Errorf("open timelines: %w", err)
	}
	e := &Engine{shelf: shelf, config: o.Config, options: o, now: o.Now, log: o.Log, asking: make(chan struct{}, tailsAtOnce)}
	e.tails = gate.NewReserving(int64(e.config.TailsMax), int64(e.config.TailsMax/tailsShare))
	_, e.whole = shelf.(Whole)
	e.deletes, _ = shelf.(DeletionLog)
	e.lines.named = map[string]*line{}
	if e.now == nil {
		e.now = time.Now
	}
	e.log = cmp.Or(e.log, slog.New(slog.DiscardHandler))
	if o.Upkeep == 0 {
		e.options.Upkeep = 30 * time.Second
	}
	e.clock.opened = time.Now()
	e.ids.start(e.now())
	e.metrics = newMetrics(e)
	unregister, err := e.metrics.Register(o.Metric)
	if err != nil {
		return nil, fmt.Errorf("open timelines: %w", err)
	}
	e.metrics.unregister = unregister
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	if e.options.Upkeep > 0 {
		e.stopped.Go(func() { e.keepUp(ctx) })
	}
	return e, nil
}

// Close stops the goroutines of the engine and waits for them.
func (e *Engine) Close() error {
	e.stop()
	e.stopped.Wait()
	e.metrics.unregister()
	return nil
}

// IsOwn reports whether a timeline is one of Options.Own.
func (e *Engine) IsOwn(name string) bool {
	_, own := e.options.Own[name]
	return own
}

// ids makes ids for events that have none: a counter, which starts at the current time in
// microseconds, then a random suffix of the process. So ids sort by arrival, and ids of
// different processes differ.
type ids struct {
	count  atomic.Uint64
	suffix [5]byte
}

func (g *ids) start(now time.Time) {
	g.count.Store(uint64(now.UnixMicro()))
	rand.Read(g.suffix[:]) // never fails
}

var idText = base32.HexEncoding.WithPadding(base32.NoPadding)

func (g *ids) next() string {
	b := append(binary.BigEndian.AppendUint64(make([]byte, 0, 15), g.count.Add(1))[1:], g.suffix[:]...)
	return idText.EncodeToString(b)
}

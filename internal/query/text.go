package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"varve/internal/gate"
	"varve/internal/principal"
	"varve/internal/store"
)

// A Lane is a line of requests that wait to be parsed. Small texts do not wait behind
// large ones, and requests of operators wait behind neither.
type Lane uint8

const (
	SmallTexts Lane = iota
	LargeTexts
	OperatorTexts // of all running queries
	lanes
)

var laneNames = [lanes]string{"small", "large", "operator"}

const (
	// smallText is the length up to which a text is small.
	smallText = 64 << 10

	// freeText is the length up to which a text is not counted as memory: most
	// requests have less.
	freeText = 4 << 10

	// parsedFactor is what a request takes once it is parsed, as a multiple of its
	// text, which is part of it.
	parsedFactor = 16

	// One part in textShare of query.total_memory, and at most textMemory, is for
	// small texts, and as much for large ones: the rest is for what queries read.
	textShare  = 8
	textMemory = 256 << 20

	// One part in othersShare of a lane's memory is for senders that hold no more than that.
	othersShare = 4
)

// waitingTexts is how many requests may wait in a lane.
var waitingTexts = [lanes]int64{4096, 256, 64}

// LaneOf returns the lane for a text of n bytes.
func LaneOf(n int) Lane {
	if n > smallText {
		return LargeTexts
	}
	return SmallTexts
}

// texts are the requests that are being read, wait to be parsed, are being parsed, or
// have been parsed and have not ended. It is safe for concurrent use.
type texts struct {
	pool  *pool
	max   int64 // bytes of a lane
	lanes [lanes]struct {
		slots
		waiting atomic.Int64
		memory  *gate.Gate
	}

	mu sync.Mutex // the metrics show what lanes held last
}

func newTexts(p *pool) *texts {
	t := &texts{pool: p, max: max(1, min(p.max/textShare, textMemory))}
	// A text takes up to a hundred times its length while it is parsed.
	t.lanes[SmallTexts].free = runtime.GOMAXPROCS(0)
	t.lanes[LargeTexts].free = runtime.GOMAXPROCS(0)
	t.lanes[OperatorTexts].free = 1
	for lane, name := range laneNames {
		t.lanes[lane].memory = gate.NewReserving(t.max, t.max/othersShare)
		t.lanes[lane].fresh.refused = p.metrics.shed.WithLabelValues("parse_" + name)
	}
	return t
}

// A Text is the body that a client sent, such as the JSON of a query. It counts as memory
// of queries from its first bytes until it is closed. The caller closes it when the request
// has ended.
type Text struct {
	engine *Engine
	ctx    context.Context
	client string
	bytes  []byte
	lane   Lane
	held   int64
}

// A TextLimit bounds the length of a text.
type TextLimit struct {
	Key       string // the setting
	Max       int64
	What      string // of the *store.LimitError
	Announced int64  // length, -1 if not known
}

// NewText returns a text that has been read. client is the address that sent it.
func (e *Engine) NewText(ctx context.Context, client string, text []byte) *Text {
	return &Text{engine: e, ctx: ctx, client: client, bytes: text}
}

// ReadText reads a text to its end. It returns a *store.LimitError if the text is too
// long, one that is Busy if other requests hold all memory for texts, and a
// *store.InputError if in fails.
func (e *Engine) ReadText(ctx context.Context, client string, in io.Reader, limit TextLimit) (*Text, error) {
	t := e.NewText(ctx, client, nil)
	if err := t.read(in, limit); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Text) read(in io.Reader, limit TextLimit) error {
	for {
		if len(t.bytes) == cap(t.bytes) {
			if err := t.grow(limit.Max + 1); err != nil {
				return err
			}
		}
		n, err := in.Read(t.bytes[len(t.bytes):cap(t.bytes)])
		t.bytes = t.bytes[:len(t.bytes)+n]
		switch {
		case int64(len(t.bytes)) > limit.Max:
			return &store.LimitError{Limit: limit.Key, Max: limit.Max, Need: max(limit.Announced, limit.Max+1), What: limit.What}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &store.InputError{Reason: "reading the request: " + err.Error()}
		}
	}
}

// grow makes room for as many bytes as there are, up to a capacity of most.
func (t *Text) grow(most int64) error {
	const least = 512
	size := min(max(2*int64(cap(t.bytes)), least), most)
	if err := t.hold(size, size); err != nil {
		return err
	}
	t.bytes = append(make([]byte, 0, size), t.bytes...)
	return nil
}

// Bytes returns the text. It must not be called after Parse, which discards the text.
func (t *Text) Bytes() []byte { return t.bytes }

// Parse waits for its turn and calls f, which parses the text. f may keep the result
// until Close, but not the text. Parse returns the error of f, or a Busy limit.
func (t *Text) Parse(f func(text []byte) error) error {
	length := int64(len(t.bytes))
	if err := t.hold(parsedFactor*length, length); err != nil {
		return err
	}
	defer func() { t.bytes = nil }()
	return t.engine.Parse(t.ctx, t.client, LaneOf(len(t.bytes)), func() error { return f(t.bytes) })
}

// Close gives the memory back.
func (t *Text) Close() {
	t.bytes = nil
	t.engine.texts.release(t.lane, t.sender(), t.held)
	t.engine.texts.pool.release(t.sender(), t.held)
	t.held = 0
}

// Parse waits for a turn in a lane and calls f. The senders of requests that wait take turns; client
// is the address of one.
func (e *Engine) Parse(ctx context.Context, client string, lane Lane, f func() error) error {
	if err := e.texts.enter(ctx, client, lane, e.config.Load()); err != nil {
		return err
	}
	defer e.texts.lanes[lane].leave()
	return f()
}

func (a *texts) enter(ctx context.Context, client string, lane Lane, config *Config) error {
	l := &a.lanes[lane]
	if l.try() {
		return nil
	}
	err := l.queue(ctx, queue{
		config: config, most: waitingTexts[lane], sender: principal.NetworkOf(client), waiting: &l.waiting, gauge: a.pool.metrics.textWaiting.WithLabelValues(laneNames[lane]),
		full: store.LimitError{Limit: "waiting requests", What: "requests that wait to be parsed; send fewer at once"},
		late: store.LimitError{Limit: "query.max_wait", Max: config.MaxWait.Milliseconds(), What: "milliseconds that a request waits to be parsed; send fewer at once"},
		what: "a request waits to be parsed", wayOut: "send fewer, or smaller ones, at once",
	})
	if store.IsBusy(err) {
		a.pool.metrics.textRefused.Inc()
	}
	return err
}

func (a *texts) refuse(limit *store.LimitError) error {
	a.pool.metrics.textRefused.Inc()
	limit.Busy = true
	return limit
}

// hold sets the memory that t takes to n bytes. length is the length of the text.
func (t *Text) hold(n, length int64) error {
	if length <= freeText {
		n = 0
	}
	all, lane := t.engine.texts, LaneOf(int(length))
	n = min(n, all.share()) // the largest text has all that one sender may have
	if err := all.take(lane, n, t); err != nil {
		return err
	}
	more := n - t.held
	if more < 0 {
		all.pool.release(t.sender(), -more)
	} else if err := all.pool.acquire(t.ctx, want{bytes: more, held: n, sender: t.sender()}); err != nil {
		all.release(lane, t.sender(), more)
		return err
	}
	t.held = n
	return nil
}

// sender is who sent the text.
func (t *Text) sender() netip.Prefix { return principal.NetworkOf(t.client) }

// share is how many bytes of a lane one sender may hold.
func (a *texts) share() int64 { return a.max - a.max/othersShare }

// take changes what t holds to n bytes in a lane.
func (a *texts) take(lane Lane, n int64, t *Text) error {
	if lane == t.lane && n == t.held {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	had := t.held
	if lane != t.lane {
		had = 0
	}
	if n > had && !a.lanes[lane].memory.TryEnter(t.sender(), n-had) {
		return a.refuse(a.isFull(lane))
	}
	a.leave(lane, t.sender(), max(0, had-n))
	a.leave(t.lane, t.sender(), t.held-had)
	t.lane = lane
	return nil
}

func (a *texts) isFull(lane Lane) *store.LimitError {
	which := fmt.Sprintf("larger than %d bytes", smallText)
	if lane == SmallTexts {
		which = fmt.Sprintf("of up to %d bytes", smallText)
	}
	return &store.LimitError{Limit: "query.total_memory", Max: a.pool.max, What: fmt.Sprintf(
		"memory for the text of a request; requests %s may take %d bytes of it together, and those of one address %d; send fewer at once, or smaller ones", which, a.max, a.share())}
}

func (a *texts) release(lane Lane, sender netip.Prefix, n int64) {
	if n == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(lane, sender, n)
}

// leave gives memory of a lane back and shows what it holds. a.mu is held.
func (a *texts) leave(lane Lane, sender netip.Prefix, n int64) {
	l := &a.lanes[lane]
	l.memory.Leave(sender, n)
	a.pool.metrics.textBytes.WithLabelValues(laneNames[lane]).Set(float64(l.memory.InUse()))
}

package ingest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"varve/internal/clip"
	"varve/internal/congestion"
	"varve/internal/gate"
	"varve/internal/growth"
	"varve/internal/machine"
	"varve/internal/store"
	"varve/internal/work"
)

// Options are what a Pipeline needs beside its configuration.
type Options struct {
	Registerer prometheus.Registerer // required
	Logger     *slog.Logger          // nil: nothing is logged
	Now        func() time.Time      // nil: time.Now
	Limits     string                // section of the limits of series and samples, for errors; "": ingest

	// Largest and Fastest list the metrics with the most series, and with the
	// most new ones in the last minutes, for errors and warnings about limits of
	// series. nil: they name none.
	Largest, Fastest func(limit int) []growth.Metric
}

// A Pipeline passes samples from all front ends to one store. It starts no goroutine except that of
// a timer, which logs refused inputs. All methods may be called by many goroutines at once.
type Pipeline struct {
	appender store.Appender
	checker  store.SampleChecker // the appender, nil if it holds every sample
	cfg      Config
	limits   string // see Options
	series   atomic.Pointer[seriesLimits]
	now      func() time.Time
	metrics  *metrics
	inFlight *gate.Gate   // samples
	indexing *gate.Gate   // expected bytes of blocks that are being indexed
	expected atomic.Int64 // of all blocks, see Writer.expected
	bodies   *gate.Gate   // bytes
	// Bodies of at most smallBody bytes have memory of their own, so that those of a
	// thousand collectors do not wait in line behind those of one sender of large ones.
	smallBodies *gate.Gate
	buffers     *gate.Gate // of connections of lines and pickles, see Room
	smallBody   int64
	newcomer    *rate.Limiter
	samples     *sampleRate
	writes      writes

	defaultTTL uint32 // seconds

	culprits *culprits
	rejected *rejectedRing
	aliases  atomic.Pointer[aliasCache]

	observers atomic.Pointer[[]Observer] // nil without any

	mu struct {
		sync.Mutex
		protocols map[string]*Protocol
	}
}

// Of body_memory, one part in smallShare is kept for small bodies; body_memory holds
// smallCount of the largest of these (256 KiB of 256 MiB).
const (
	smallShare = 8
	smallCount = 1024
)

// senderShare is the part of each gate of bodies that is only for senders that hold no more than this
// part. It is smaller if one body would otherwise not fit beside it, packed and unpacked.
const senderShare = 8

// splitBodies makes the two gates of bodies. Where a small body would be smaller than the
// smallest buffer, below 4 MiB, nothing is kept for them.
func (p *Pipeline) splitBodies(memory int64) {
	kept := memory / smallShare
	if p.smallBody = memory / smallCount; p.smallBody < int64(bufferSizes[0]) {
		kept = 0
	}
	large := memory - kept
	free := large - int64(p.cfg.MaxBody()) - int64(p.cfg.maxUnpacked())
	p.bodies = gate.NewReserving(large, min(large/senderShare, max(free, 0)))
	p.smallBodies = gate.NewReserving(kept, kept/senderShare)
}

// New makes a Pipeline. cfg must be valid.
func New(appender store.Appender, cfg Config, o Options) *Pipeline {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	cfg.BodyMemory = cfg.Bodies()
	p := &Pipeline{
		appender: appender,

		defaultTTL: uint32(cfg.DefaultTTL / time.Second),

		cfg:      cfg,
		limits:   o.Limits,
		now:      o.Now,
		inFlight: gate.New(int64(cfg.MaxSamplesInFlight)),
		indexing: gate.New(2 * blockIndexed),
		newcomer: rate.NewLimiter(rate.Limit(cfg.NewSeriesPerSecond), cfg.newSeriesBurst()),
		samples:  newSampleRate(o.Limits, cfg.SamplesPerSecond, o.Now()),
		rejected: newRejectedRing(cfg.RejectedKept, o.Logger),
		culprits: &culprits{
			largest: culpritText{ask: o.Largest, what: "most series:"},
			fastest: culpritText{ask: o.Fastest, what: "most new series:"},
			log:     o.Logger,
		},
	}
	p.splitBodies(int64(cfg.BodyMemory))
	buffers := int64(cfg.Buffers())
	p.buffers = gate.NewReserving(buffers, buffers/senderShare)
	p.writes.patience = congestion.Patience(cfg.StoreWait)
	p.checker, _ = store.As[store.SampleChecker](appender)
	p.mu.protocols = map[string]*Protocol{}
	p.aliases.Store(newAliasCache(appender.Epoch(), cfg.AliasMemory()))
	p.series.Store(newSeriesLimits(cfg))
	p.metrics = newMetrics(o.Registerer, p)
	return p
}

// seriesLimits are the limits of new series. They may change while samples come in.
type seriesLimits struct {
	maxSeries, perSecond int

	maxMemory int64 // bytes
}

func newSeriesLimits(cfg Config) *seriesLimits {
	return &seriesLimits{cfg.MaxSeries, cfg.NewSeriesPerSecond, machine.Share(int64(cfg.MaxSeriesMemory))}
}

// SetSeriesLimits changes MaxSeries, MaxSeriesMemory and NewSeriesPerSecond. cfg must be
// valid.
func (p *Pipeline) SetSeriesLimits(cfg Config) {
	p.series.Store(newSeriesLimits(cfg))
	p.newcomer.SetLimitAt(p.now(), rate.Limit(cfg.NewSeriesPerSecond))
	p.newcomer.SetBurstAt(p.now(), cfg.newSeriesBurst())
}

// NewSeriesIn returns when NewSeriesPerSecond will admit n more new series, or as many as may come
// at once, if no other sender has new ones.
func (p *Pipeline) NewSeriesIn(n int) time.Duration {
	now := p.now()
	missing := float64(min(n, p.newcomer.Burst())) - p.newcomer.TokensAt(now)
	return time.Duration(max(0, missing) / float64(p.newcomer.Limit()) * float64(time.Second))
}

// SetSampleRate changes SamplesPerSecond.
func (p *Pipeline) SetSampleRate(perSecond int) { p.samples.set(perSecond, p.now()) }

// Config returns the limits that the Pipeline began with.
func (p *Pipeline) Config() Config { return p.cfg }

// Now is the pipeline's clock.
func (p *Pipeline) Now() time.Time { return p.now() }

// A Protocol is a wire format with its counters.
type Protocol struct {
	name     string
	syntax   uint8 // keeps aliases of different formats apart
	samples  prometheus.Counter
	rejected *prometheus.CounterVec
}

// reject counts refused inputs. Counters of reasons that a protocol never has are
// not exported.
func (x *Protocol) reject(counts *[reasons]uint32) {
	for r, n := range counts {
		if n > 0 {
			x.rejected.WithLabelValues(x.name, Reason(r).String()).Add(float64(n))
		}
	}
}

// Protocol returns the protocol called name, which is a metric label. Asking
// again returns the same one.
func (p *Pipeline) Protocol(name string) *Protocol {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, ok := p.mu.protocols[name]; ok {
		return x
	}
	x := &Protocol{
		name:    name,
		syntax:  uint8(len(p.mu.protocols) + 1),
		samples: p.metrics.samples.WithLabelValues(name),

		rejected: p.metrics.rejected,
	}
	p.mu.protocols[name] = x
	return x
}

// Reject counts and keeps an input that was refused outside of a block. n is the number of inputs
// that it stands for.
func (p *Pipeline) Reject(proto *Protocol, remote string, f *Fault, input []byte, n int) {
	var counts [reasons]uint32
	counts[f.Reason] = uint32(n)
	proto.reject(&counts)
	p.rejected.add(&counts, Rejection{
		Time: p.now(), Protocol: proto.name, Remote: remote, Reason: f.Reason.String(), Detail: f.detail(),
		Input: clip.Cut(input, int(p.cfg.RejectedBytes)), InputBytes: len(input),
	})
}

// Offer calls try until the store accepts or refuses what it is offered; a refusal is a
// *store.InputError. While the store is unavailable, Offer tries again for retryFor, or until ctx
// ends. It does not try again if a part was stored: the next block may be for parts of the store
// that accept samples. See PartOf.
func (p *Pipeline) Offer(ctx context.Context, retryFor time.Duration, try func() error) error {
	wait, giveUp := 10*time.Millisecond, p.Now().Add(retryFor)
	for {
		err := try()
		if err == nil || PartOf(err) != nil || ctx.Err() != nil || !store.Passes(err) || !p.Now().Before(giveUp) {
			return err
		}
		_ = work.Pause(ctx, wait) // the next attempt returns that ctx has ended
		wait = min(2*wait, time.Second)
	}
}

// PartOf returns the error of a block of which a part is stored, nil if err is another one.
func PartOf(err error) *store.PartError {
	if part, ok := errors.AsType[*store.PartError](err); ok && part.Stored > 0 {
		return part
	}
	return nil
}

// Close logs the refused inputs that are not logged yet. Call it after the last
// input.
func (p *Pipeline) Close() { p.rejected.close() }

// Rejected returns the latest refused inputs, newest first, and how many there were
// in all.
func (p *Pipeline) Rejected() (latest []Rejection, total uint64) { return p.rejected.latest() }

// aliasesOf returns the cache of an epoch, a new one if the epoch has moved on.
func (p *Pipeline) aliasesOf(epoch uint64) *aliasCache {
	for {
		c := p.aliases.Load()
		if c.epoch == epoch {
			return c
		}
		fresh := newAliasCache(epoch, p.cfg.AliasMemory())
		if p.aliases.CompareAndSwap(c, fresh) {
			return fresh
		}
	}
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"varve/internal/clip"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// ErrBusy means that MaxSamplesInFlight or body_memory is used up and the sender may not be delayed
// any longer. Nothing of the block was stored.
var ErrBusy error = &store.UnavailableError{Reason: "too much input is in flight (samples in flight, ingest.body_memory)"}

// maxStale bounds how often a block is parsed. It is parsed again if one of
// its series was forgotten meanwhile, or if the epoch has changed.
const maxStale = 8

// maxNotes limits the refused inputs of one block that are kept for people to look at.
const maxNotes = 32

// A Writer takes the input of one connection or request, block by block. Not
// safe for concurrent use.
type Writer struct {
	p       *Pipeline
	proto   *Protocol
	remote  string
	network netip.Prefix  // of remote
	wait    time.Duration // 0: as long as the context lasts
	begun   bool          // a part of the request is stored, see IngestAll

	ctx      context.Context // of the running Ingest
	by       principal.Principal
	nowMS    int64 // when that began
	cache    *aliasCache
	last     *Alias
	distrust bool // the cache led to a series that was forgotten
	batch    store.Batch
	key      []byte
	misses   int
	named    int   // bytes of the keys of these series
	expected int64 // bytes that the store may need to index the series that the block has created
	crowded  bool  // with those of all blocks, they may exceed max_series_memory
	created  bool  // series were created since the last warning of too many was considered
	counts   [reasons]uint32
	refused  uint32 // sum of counts
	steps    int    // times that Full was called
	notes    []Rejection
}

// NewWriter makes a Writer for a sender at remote. A wait of 0 lets Ingest
// wait for room as long as its context lasts.
func (p *Pipeline) NewWriter(proto *Protocol, remote string, wait time.Duration) *Writer {
	return &Writer{p: p, proto: proto, remote: remote, network: principal.NetworkOf(remote), wait: wait}
}

// SetRemote names another sender, for a Writer that is used again.
func (w *Writer) SetRemote(remote string) {
	w.remote, w.network = remote, principal.NetworkOf(remote)
}

// SetSender names another sender within a block. Its rights are those of the context of Ingest.
func (w *Writer) SetSender(remote, name string) { w.remote, w.by.Name = remote, name }

// Batch holds what the running fill function has added.
func (w *Writer) Batch() *store.Batch { return &w.batch }

// BlockSamples is how many samples front ends with large inputs store at once:
// enough to spread the cost of a group commit, 200 KB of batch.
const BlockSamples = 8192

// BlockBytes bounds the values of variable kinds in a block, and the names of the
// series that have to be looked up for it, since a store logs the new ones with
// the block.
const BlockBytes = 1 << 20

// blockSteps limits the inputs of a block, which may all be refused: the context is checked only
// between blocks. Full is called once for each input.
const blockSteps = 8 * BlockSamples

// Full reports that the running fill function should end, and leave the rest to the next block.
// Front ends call it before each input.
func (w *Writer) Full() bool {
	w.steps++
	return len(w.batch.Samples) >= BlockSamples || len(w.batch.Data) >= BlockBytes || w.named >= BlockBytes || w.steps > blockSteps ||
		w.expected >= blockIndexed || w.crowded
}

// Ingest parses and stores one block of input, which holds at most n samples.
// fill parses it: it resolves series with Find and Resolve, adds samples with
// AddLong and the like, and reports refused inputs with Reject. It may run several
// times and must begin at the same place each time. An error of fill ends the block
// and is returned; nothing is stored then.
//
// Ingest returns the number of samples stored. After a *store.PartError the caller may continue
// with the next block. Other errors are ErrBusy, a store.LimitError of ingest.samples_per_second or
// of writes that wait, those of store.Appender.Append and Create, and those of fill.
func (w *Writer) Ingest(ctx context.Context, n int, fill func() error) (int, error) {
	if w.wait == 0 {
		return w.ingest(ctx, n, fill)
	}
	came := w.p.now()
	if err := w.p.writes.enter(came); err != nil {
		return 0, err
	}
	defer w.p.writes.leave()
	stored, err := w.ingest(ctx, n, fill)
	if stored > 0 {
		now := w.p.now()
		w.p.writes.Served(now, now.Sub(came), w.p.writes.patience)
	}
	return stored, err
}

// IngestAll stores a whole request block by block, except for samples that a part of the store
// refuses, and returns the number of samples stored. next returns what Ingest takes for each block,
// and a nil fill after the last one. sender ends when the sender leaves. Errors are those of
// Ingest, and ErrLeft.
func (w *Writer) IngestAll(ctx, sender context.Context, next func() (most int, fill func() error)) (stored int, err error) {
	var part *store.PartError // the latest one
	defer func() { w.begun = false }()
	for n := 1; ; stored += n {
		w.begun = stored > 0
		most, fill := next()
		switch {
		case fill == nil && part != nil:
			return stored, part
		case fill == nil:
			return stored, nil
		case n == 0 && sender.Err() != nil:
			return stored, ErrLeft
		}
		if n, err = w.Ingest(ctx, most, fill); err != nil && !errors.As(err, &part) {
			return stored, err
		}
	}
}

func (w *Writer) ingest(ctx context.Context, n int, fill func() error) (int, error) {
	taken, err := w.enter(ctx, int64(n))
	if err != nil {
		return 0, err
	}
	defer w.p.inFlight.Leave(w.network, taken)

	w.ctx, w.by = ctx, principal.Of(ctx)
	defer func() { w.ctx = nil }()
	defer w.forgetExpected()
	for attempt := range maxStale {
		w.begin()
		w.distrust = attempt > 0
		if err := fill(); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		err := w.append(ctx)
		if errors.Is(err, store.ErrStale) {
			w.p.metrics.stale.Inc()
			continue
		}
		stored := len(w.batch.Samples)
		if part, ok := errors.AsType[*store.PartError](err); ok {
			stored = part.Stored
		} else if err != nil {
			return 0, err
		}
		if err == nil || stored > 0 {
			w.settle(stored)
		}
		return stored, err
	}
	return 0, &store.UnavailableError{Reason: fmt.Sprintf("series references became void %d times in a row while a block of input was parsed; send it again", maxStale)}
}

func (w *Writer) enter(ctx context.Context, n int64) (int64, error) {
	now, patience := w.p.now(), w.wait
	if deadline, bounded := ctx.Deadline(); w.begun && bounded && patience > 0 {
		// If a request is refused after a part of it is stored, its sender sends all of it
		// again, and that part uses up the limit again: the request would never complete. A
		// turn after the deadline comes too late, even if it comes within w.wait.
		patience = max(deadline.Sub(now), 1)
	}
	late, err := w.p.samples.wait(ctx, now, patience)
	if late {
		w.p.metrics.waits.WithLabelValues("rate").Inc()
	}
	if limit, ok := errors.AsType[*store.LimitError](err); ok && w.begun {
		limit.What = "this request alone has more samples than are stored in its time: send them again in several requests, the first of them in " + limit.Wait.Round(time.Millisecond).String()
	}
	if err != nil {
		return 0, err
	}
	if w.wait > 0 {
		bounded, cancel := context.WithTimeout(ctx, w.wait)
		defer cancel()
		ctx = bounded
	}
	taken, waited, err := w.p.inFlight.Enter(ctx, w.network, n)
	if waited {
		w.p.metrics.waits.WithLabelValues("samples").Inc()
	}
	if err != nil && w.wait > 0 && errors.Is(err, context.DeadlineExceeded) {
		return 0, ErrBusy
	}
	return taken, err
}

// A series takes much more memory in the index of a store than its name is long if nobody has sent
// its tags before: a tag name of three bytes takes hundreds. It takes this memory only once its
// block is in the log. The store indexes the new series of one block at a time, and admits no other
// block meanwhile.
const (
	expectedSeries = 300 // bytes that a new series of a new metric takes, without tags
	expectedTag    = 450 // a tag that no other series has, with its value

	// blockIndexed ends a block, so that others wait for some 10 ms.
	blockIndexed = 2 << 20

	// gatedLeast is how many bytes a block must expect before it waits until earlier blocks are
	// indexed. A crowded block always waits, so that a sender cannot begin further blocks before
	// its first ones count.
	gatedLeast = 64 << 10

	// crowdedLeast is what a block may expect although all blocks together may exceed max_series_memory. Front ends
	// that call Full end the block at its next input.
	crowdedLeast = 64 << 10
)

// expect counts what the store may need to index a series that the block has created.
func (w *Writer) expect(n *Names, maxMemory int64) {
	bytes := int64(expectedSeries + expectedTag*len(n.Tags))
	w.expected += bytes
	w.crowded = w.p.expected.Add(bytes)+w.p.appender.SeriesBytes() > maxMemory
}

// forgetExpected ends the expectations of a block: its series are indexed, and counted as such, or it has failed.
func (w *Writer) forgetExpected() {
	w.p.expected.Add(-w.expected)
	w.expected, w.crowded = 0, false
}

// enterIndex waits for the turn of a block that has created many series, so that blocks of known series wait for
// one or two such blocks only. The caller must leave w.p.indexing with what is returned.
func (w *Writer) enterIndex(ctx context.Context) (taken int64, err error) {
	if w.expected < gatedLeast && !w.crowded {
		return 0, nil
	}
	if w.wait > 0 {
		bounded, cancel := context.WithTimeout(ctx, w.wait)
		defer cancel()
		ctx = bounded
	}
	taken, waited, err := w.p.indexing.Enter(ctx, w.network, w.expected)
	if waited {
		w.p.metrics.waits.WithLabelValues("names").Inc()
	}
	if err != nil && w.wait > 0 && errors.Is(err, context.DeadlineExceeded) {
		return 0, ErrBusy
	}
	return taken, err
}

func (w *Writer) begin() {
	epoch := w.p.appender.Epoch()
	if cache := w.p.aliasesOf(epoch); cache != w.cache {
		w.cache, w.last = cache, nil
	}
	w.batch.Reset(epoch)
	w.batch.Sender = w.network
	w.forgetExpected()
	w.nowMS = w.p.now().UnixMilli()
	w.misses, w.named, w.refused, w.steps, w.notes = 0, 0, 0, 0, w.notes[:0]
	clear(w.counts[:])
}

func (w *Writer) append(ctx context.Context) error {
	if len(w.batch.Samples) == 0 {
		return nil
	}
	indexed, err := w.enterIndex(ctx)
	if err != nil {
		return err
	}
	defer w.p.indexing.Leave(w.network, indexed)
	done, err := w.p.appending(ctx, &w.batch)
	if err != nil {
		return err
	}
	defer done()
	began := time.Now()
	if err := w.p.appender.Append(ctx, &w.batch); err != nil {
		return err
	}
	w.p.metrics.appendTime.Observe(time.Since(began).Seconds())
	w.p.metrics.batchSamples.Observe(float64(len(w.batch.Samples)))
	return nil
}

// settle counts what the block held. stored of its samples were stored.
func (w *Writer) settle(stored int) {
	w.proto.samples.Add(float64(stored))
	w.p.samples.stored(w.p.now(), stored)
	if w.misses > 0 {
		w.p.metrics.misses.Add(float64(w.misses))
	}
	if w.created { // only now does the store know their metrics
		w.created = false
		w.p.warnOfGrowth()
	}
	if w.refused == 0 {
		return
	}
	w.proto.reject(&w.counts)
	w.p.rejected.add(&w.counts, w.notes...)
}

// Reject reports an input of the block that is refused. The first ones of a block are kept for
// people to look at.
func (w *Writer) Reject(f *Fault, input []byte) {
	w.Count(f.Reason)
	if w.Noted() {
		return
	}
	w.notes = append(w.notes, Rejection{
		Time: w.p.now(), Protocol: w.proto.name, Remote: w.remote, Reason: f.Reason.String(), Detail: f.detail(),
		Input: clip.Cut(input, int(w.p.cfg.RejectedBytes)), InputBytes: len(input),
	})
}

// Count counts a refused input and keeps nothing of it.
func (w *Writer) Count(r Reason) {
	w.counts[r]++
	w.refused++
}

// Noted reports that the block keeps as many refused inputs as it may: further ones
// are only counted.
func (w *Writer) Noted() bool { return len(w.notes) == maxNotes }

// Refused returns how many inputs of the block were refused.
func (w *Writer) Refused() int { return int(w.refused) }

// Find returns the alias of a series spelled as head (metric) and tail (tags),
// or nil, after which the caller parses them and calls Resolve. It allocates
// nothing and keeps neither.
func (w *Writer) Find(kind model.Kind, head, tail []byte) *Alias {
	if w.distrust || w.by.Prefix != "" {
		return nil // Resolve corrects aliases that lead to forgotten series, and knows who may write what
	}
	if w.last != nil {
		if a := w.last.next.Load(); a != nil && w.cache.current(a) && a.matches(kind, w.proto.syntax, head, tail) {
			w.last = a
			return a
		}
	}
	hash := w.cache.hash(kind, w.proto.syntax, head, tail)
	a := w.cache.find(hash, kind, w.proto.syntax, head, tail)
	if a != nil {
		w.follow(a)
	}
	return a
}

// Guess returns the alias that followed the last one when that one was last used, nil if none is
// known. A caller whose input is spelt like the alias accepts it with Follow, as if Find had
// returned it.
func (w *Writer) Guess() *Alias {
	if w.last == nil || w.distrust || w.by.Prefix != "" {
		return nil
	}
	a := w.last.next.Load()
	if a == nil || a.syntax != w.proto.syntax || !w.cache.current(a) {
		return nil
	}
	return a
}

// Sibling returns the alias of the same spelling and another kind that followed a when a was last
// used, nil if there is none: values with and without a point may alternate.
func (w *Writer) Sibling(a *Alias) *Alias {
	b := a.next.Load()
	if b == nil || b.kind == a.kind || b.syntax != a.syntax || !w.cache.current(b) || b.tail != a.tail || b.head != a.head {
		return nil
	}
	return b
}

// Follow notes that the input is spelt as a, which Guess or Sibling returned.
func (w *Writer) Follow(a *Alias) { w.last = a }

// Room is how many samples fit into the block beside those in the batch.
func (w *Writer) Room() int { return max(0, BlockSamples-len(w.batch.Samples)) }

// Retract takes back the samples beyond the first n of the batch. They have no values
// of variable kinds.
func (w *Writer) Retract(n int) { w.batch.Samples = w.batch.Samples[:n] }

func (w *Writer) follow(a *Alias) {
	if w.last != nil {
		w.last.next.Store(a)
	}
	w.last = a
}

// Names is a series in parsed form on its way to Resolve. The strings may
// share the memory of the input.
type Names struct {
	Metric string
	Tags   []model.Tag // in any order; Resolve sorts them
	TTL    uint32      // as it was sent, to be kept with the alias
}

// Reset empties n and keeps its memory.
func (n *Names) Reset() { n.Metric, n.Tags, n.TTL = "", n.Tags[:0], 0 }

// Resolve finds or creates the series that head and tail spell and n names. A *Fault means that
// these names are refused; any other error comes from the store and ends the block.
func (w *Writer) Resolve(kind model.Kind, head, tail []byte, n *Names) (*Alias, error) {
	if f := w.checkNames(n); f != nil {
		return nil, f
	}
	model.SortTags(n.Tags)
	for i := 1; i < len(n.Tags); i++ {
		if n.Tags[i].Name == n.Tags[i-1].Name {
			return nil, Faultf(BadTag, "tag %q is given twice", Brief(n.Tags[i].Name))
		}
	}
	typ := model.TypeOf(kind)
	w.key = model.AppendTags(model.AppendKeyHead(w.key[:0], typ, n.Metric), n.Tags)
	ref, err := w.ref(typ, n)
	if err != nil {
		return nil, err
	}
	if w.by.Prefix != "" {
		return &Alias{Ref: ref, TTL: n.TTL}, nil
	}
	hash := w.cache.hash(kind, w.proto.syntax, head, tail)
	a := w.cache.add(hash, kind, w.proto.syntax, head, tail, ref, n.TTL)
	w.follow(a)
	return a, nil
}

// checkNames says why the sender may not write a series, nil if it may.
func (w *Writer) checkNames(n *Names) *Fault {
	w.misses++
	if f := w.p.CheckNames(n); f != nil || w.by.Reaches(n.Metric) {
		return f
	}
	return Faultf(Forbidden, "metric %s: %s may only write metrics that begin with %q", Brief(n.Metric), w.by.Name, w.by.Prefix)
}

// ref finds or creates the series of a type that n names. Its key is in w.key.
func (w *Writer) ref(typ model.Type, n *Names) (store.Ref, error) {
	w.named += len(w.key)
	ref, ok := w.p.appender.Lookup(w.key)
	if !ok {
		var err error
		if ref, err = w.create(typ, n); err != nil {
			return 0, err
		}
	}
	w.p.resolved(w.batch.Epoch, ref, n.Metric)
	return ref, nil
}

// seriesFault refuses a new series for a limit. The metrics that use it up are named to the
// operator, and to a sender that may see them.
func (w *Writer) seriesFault(r Reason, key string, limit, need int64, what string, c *culpritText) *Fault {
	key = limitKey(w.p.limits, key)
	full := limitFault(r, key, limit, need, what+c.get(w.p.now()))
	if w.by.Prefix == "" && (w.by.Rights.Has(principal.Read) || w.by.Tenant == "") {
		return full
	}
	f := limitFault(r, key, limit, need, what)
	f.Detail = full.Text
	return f
}

func (w *Writer) create(typ model.Type, n *Names) (store.Ref, error) {
	if size := rowtime.SeriesBytes(n.Metric, typ, tagsOf(n)); size > rowtime.MaxKeyBytes {
		return 0, limitFault(SeriesTooLong, "bytes of a series", rowtime.MaxKeyBytes, int64(size), "names and tags of a series of metric "+Brief(n.Metric))
	}
	limits, now := w.p.series.Load(), w.p.now()
	have := w.p.appender.SeriesCount()
	if have >= limits.maxSeries {
		return 0, w.seriesFault(MaxSeries, "ingest.max_series", int64(limits.maxSeries), int64(have)+1, "new series "+Brief(n.Metric), &w.p.culprits.largest)
	}
	if need := w.p.appender.SeriesBytes() + nameCopies*int64(len(w.key)); need > limits.maxMemory {
		return 0, w.seriesFault(SeriesMemory, "ingest.max_series_memory", limits.maxMemory, need, "names of new series "+Brief(n.Metric), &w.p.culprits.largest)
	}
	if w.crowded && w.expected > crowdedLeast {
		need := w.p.appender.SeriesBytes() + w.p.expected.Load()
		return 0, w.seriesFault(SeriesMemory, "ingest.max_series_memory", limits.maxMemory, need, "names of new series "+Brief(n.Metric), &w.p.culprits.largest)
	}
	place := w.p.newcomer.ReserveN(now, 1)
	if !place.OK() || place.DelayFrom(now) > 0 {
		place.CancelAt(now)
		return 0, w.seriesFault(NewSeriesRate, "ingest.new_series_per_second", int64(limits.perSecond), 0, "new series "+Brief(n.Metric), &w.p.culprits.fastest)
	}
	owned := make([]model.Tag, len(n.Tags))
	for i, t := range n.Tags {
		owned[i] = model.Tag{Name: strings.Clone(t.Name), Value: strings.Clone(t.Value)}
	}
	tags, err := model.NewTags(owned...)
	if err != nil {
		return 0, Faultf(BadTag, "%v", err)
	}
	ref, err := w.p.appender.Create(w.ctx, model.Series{Metric: strings.Clone(n.Metric), Tags: tags, Type: typ})
	if err != nil {
		place.CancelAt(now) // not used
		return 0, createFault(fmt.Errorf("create a series of metric %s: %w", Brief(n.Metric), err))
	}
	w.p.metrics.created.Inc()
	w.created = true
	w.expect(n, limits.maxMemory)
	return ref, nil
}

// nameCopies is how often a store holds a name at most: in the key of its series,
// and in the index.
const nameCopies = 2

func tagsOf(n *Names) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for _, t := range n.Tags {
			if !yield(t.Name, t.Value) {
				return
			}
		}
	}
}

// createFault turns errors that concern only this series into a Fault, so that the series around it
// continue.
func createFault(err error) error {
	switch {
	case errors.As(err, new(*store.LimitError)):
		return &Fault{Reason: MaxSeries, Text: err.Error(), Err: err}
	case errors.As(err, new(*store.InputError)):
		return &Fault{Reason: Refused, Text: err.Error(), Err: err}
	}
	return err
}

func limitFault(r Reason, key string, limit, need int64, what string) *Fault {
	err := &store.LimitError{Limit: key, Max: limit, Need: need, What: what}
	return &Fault{Reason: r, Text: err.Error(), Err: err}
}

// CheckNames checks the names of a series against the limits that all protocols share.
func (p *Pipeline) CheckNames(n *Names) *Fault {
	if n.Metric == "" {
		return Faultf(BadName, "metric name is empty")
	}
	if f := p.checkName("metric name", "bytes of a metric name", n.Metric, int64(p.cfg.MaxMetricBytes)); f != nil {
		return f
	}
	if len(n.Tags) > p.cfg.MaxTags {
		return TooMany(p.cfg.MaxTags, n.Metric)
	}
	for _, t := range n.Tags {
		if t.Name == "" {
			return Faultf(BadTag, "a tag name is empty")
		}
		if t.Value == "" {
			return Faultf(BadTag, "the value of tag %s is empty", Brief(t.Name))
		}
		if f := p.checkName("tag name", "bytes of a tag name", t.Name, int64(p.cfg.MaxTagNameBytes)); f != nil {
			return f
		}
		if f := p.checkName("tag value", "ingest.max_tag_value_bytes", t.Value, int64(p.cfg.MaxTagValueBytes)); f != nil {
			return f
		}
	}
	return nil
}

// TooMany is the fault of a series with more than max_tags tags. Front ends stop reading at the
// first tag beyond that.
func TooMany(most int, metric string) *Fault {
	return limitFault(TooManyTags, "ingest.max_tags", int64(most), int64(most)+1, "tags of metric "+Brief(metric))
}

func (p *Pipeline) checkName(what, key, s string, limit int64) *Fault {
	if int64(len(s)) > limit {
		return limitFault(NameTooLong, key, limit, int64(len(s)), what+" "+Brief(s))
	}
	if !utf8.ValidString(s) {
		return Faultf(BadUTF8, "%s %q is not UTF-8", what, Brief(s))
	}
	return nil
}

// CheckString checks a string value against the limits.
func (p *Pipeline) CheckString(v []byte) *Fault {
	if int64(len(v)) > int64(p.cfg.MaxStringBytes) {
		return limitFault(ValueTooLong, "bytes of a string value", int64(p.cfg.MaxStringBytes), int64(len(v)), "string value")
	}
	if !utf8.Valid(v) {
		return Faultf(BadUTF8, "string value is not UTF-8")
	}
	return nil
}

package store

import (
	"context"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"strings"
	"time"

	"varve/internal/model"
)

// A Store keeps samples and answers for them. All methods may be called by
// many goroutines at once, except Close, which is called once, last.
type Store interface {
	Appender
	Viewer
	Deleter
	KeyValues
	Close() error
}

// Ref names a series within one open store. Refs are dense small numbers. A ref is
// void once the store is closed or a later epoch begins. While a ref for appending is
// valid, it is the model.SeriesNumber of the series; a ref of a View need not be.
type Ref uint32

// An Appender stores samples.
type Appender interface {
	// Epoch is the current generation of refs. The store forgets series without
	// samples; after it has forgotten many, a new epoch begins, which is rare. Every
	// ref obtained before is then void for appending. The ref of a forgotten series
	// is void at once.
	Epoch() uint64

	// Lookup finds a series by its canonical key (model.Series.AppendKey). It
	// allocates nothing and does no I/O.
	Lookup(key []byte) (Ref, bool)

	// Create returns the ref of s, new or known. A series without samples is
	// not selected and not listed; creating one promises nothing.
	Create(ctx context.Context, s model.Series) (Ref, error)

	// SeriesCount is the number of series that the store holds in memory.
	SeriesCount() int

	// SeriesBytes is the approximate memory of the names of these series and of the
	// index of the names. It does no I/O.
	SeriesBytes() int64

	// Append stores b's samples. Within a batch, later samples overwrite
	// earlier ones of the same series and time. It waits until the samples are
	// durable; if ctx ends first it returns the context's error, and the
	// samples may be stored or not.
	Append(ctx context.Context, b *Batch) error
}

// A SampleChecker is an Appender whose layout cannot hold every sample. Its Append
// refuses a batch that has such samples, and stores nothing of it. Callers that want
// the other samples stored check each sample before they add it. Create refuses a
// series that the layout cannot hold. All these errors are *InputErrors.
type SampleChecker interface {
	// CheckSample says why a sample of a series cannot be stored; nil means that it can.
	// value is as in Sample; for a variable kind, data has the bytes instead. A ref of an
	// earlier epoch gives any answer: Append refuses it.
	CheckSample(r Ref, k model.Kind, ms int64, value uint64, data []byte, ttl uint32) error
}

// A Sample is one value of one series on its way in.
type Sample struct {
	TimeMS int64
	Value  uint64 // Long: int64 bits; Double: IEEE-754 bits; variable kinds: see Batch
	Ref    Ref
	TTL    uint32 // seconds from TimeMS on, 0 = for ever
}

// A Batch is what Append stores at once. The zero value is ready for use after
// Reset. Batches are reused: Append keeps nothing of them.
type Batch struct {
	Epoch   uint64
	Samples []Sample

	// Data holds values of variable kinds; such a sample's Value is the
	// offset of its first byte << 32 | its length.
	Data []byte

	// Sender is the network of the client, the zero Prefix if there is none. Batches
	// of several senders that wait for a store take turns.
	Sender netip.Prefix
}

// Reset empties b for refs of the given epoch and keeps its memory, and its sender.
func (b *Batch) Reset(epoch uint64) {
	b.Epoch, b.Samples, b.Data = epoch, b.Samples[:0], b.Data[:0]
}

// AddLong adds a sample of a Long series.
func (b *Batch) AddLong(r Ref, ms, v int64, ttl uint32) {
	b.Samples = append(b.Samples, Sample{ms, uint64(v), r, ttl})
}

// AddDouble adds a sample of a Double series.
func (b *Batch) AddDouble(r Ref, ms int64, v float64, ttl uint32) {
	b.Samples = append(b.Samples, Sample{ms, math.Float64bits(v), r, ttl})
}

// AddBytes adds a sample of a String, Complex or Custom series. v is copied.
func (b *Batch) AddBytes(r Ref, ms int64, v []byte, ttl uint32) {
	at := uint64(len(b.Data))
	b.Data = append(b.Data, v...)
	b.Samples = append(b.Samples, Sample{ms, at<<32 | uint64(len(v)), r, ttl})
}

// AddNull adds a sample of a Null series.
func (b *Batch) AddNull(r Ref, ms int64, ttl uint32) {
	b.Samples = append(b.Samples, Sample{ms, 0, r, ttl})
}

// Bytes returns the value of a sample of a variable kind.
func (b *Batch) Bytes(s Sample) []byte {
	at, n := s.Value>>32, s.Value&math.MaxUint32
	return b.Data[at : at+n]
}

// Viewer opens views.
type Viewer interface {
	View(ctx context.Context) (View, error)
}

// A View is a snapshot of the store. It pins resources: close it soon. All
// methods but Close may be called by many goroutines at once.
type View interface {
	// Select yields the series that match, each once, ordered by model.Series.Compare
	// unless Selection.AnyOrder is set. It yields every series that has a sample in the
	// range. It may also yield others, since the store decides how coarsely it looks. A
	// series that is created or deleted during the iteration may be yielded or not.
	//
	// The store looks nothing up before the iteration begins, and looks again for each
	// iteration. An error ends the iteration, and comes with a zero Series. After ctx
	// has ended, at most SelectAhead more series are yielded; after the View was
	// closed, the iteration ends at once with ErrClosed.
	//
	// The caller may stop at any series: no work then continues, and the iteration
	// releases all that it held. No lock is held while the caller has a series, so the
	// caller may read that series, select others and write.
	Select(ctx context.Context, sel Selection) iter.Seq2[Series, error]

	// Read opens a cursor over one series of this View.
	Read(ctx context.Context, s Series, o ReadOptions) Cursor

	// Names lists metric names, tag names or tag values in the order of
	// model.CompareNames, each once. more reports that the limit cut the list.
	// Names without a sample are not listed.
	Names(ctx context.Context, q NamesQuery) (names []string, more bool, err error)

	Close() error
}

// A PartialView is a View that can answer from one part of the store while another
// part is unavailable. Not every View is one.
type PartialView interface {
	// AllowPartial makes later calls of Select and Names answer from the available
	// parts. Without it they fail if a part is unavailable.
	AllowPartial()

	// Missing says which part was asked and was unavailable, as an
	// *UnavailableError; nil if there was none.
	Missing() error
}

// A CurrentView is a View that may remember what earlier views have read, although other
// processes have changed it since. Not every View is one.
type CurrentView interface {
	// ReadCurrent makes the view read what is stored now, from as many replicas as that takes. It
	// is called before all other methods. If ranges follow each other without a gap, each sample
	// is in exactly one of them, also where queries of KairosDB's API begin up to a second
	// earlier. The view never contains samples that other processes have acknowledged but not
	// stored yet.
	ReadCurrent()
}

// OpenCurrent opens a view of what is stored now. It is for readers that copy the samples, or
// store what they compute from them: a sample that such a reader misses is missed for good.
func OpenCurrent(ctx context.Context, s Viewer) (View, error) {
	view, err := s.View(ctx)
	if err != nil {
		return nil, err
	}
	if v, ok := As[CurrentView](view); ok {
		v.ReadCurrent()
	}
	return view, nil
}

// A Tracer is a View that can say what it has done so far. Not every View is one.
type Tracer interface {
	// Trace returns counts by name, always in the same order. Names are in
	// snake_case.
	Trace() []Count
}

// A Count is a number of something that was done.
type Count struct {
	Name string
	N    int64
}

// Series is a series that a View handed out.
type Series struct {
	Ref Ref
	model.Series
}

// Selection says which series are wanted.
type Selection struct {
	Metric   string // exact, unless there are Metrics
	Matchers []model.Matcher
	Range    model.TimeRange

	// Metrics, if not empty, replaces Metric: it selects the series of every metric
	// whose name satisfies all of these matchers. Only their patterns and values count,
	// not their tag names. AnyMetric is a matcher that every metric satisfies.
	Metrics []model.Matcher

	// Limit bounds the number of series; 0 means no bound. If more match, the
	// iteration ends with a *LimitError that names LimitKey. The error comes in place
	// of series Limit+1 at the latest, or before the first one if the store already
	// knows the number.
	Limit    int
	LimitKey string

	// AnyOrder lets the store yield the series in the order that is cheapest for it,
	// preferably the one in which it reads them fastest. Sorting needs memory for each
	// series until the end.
	AnyOrder bool

	// Tick, if not nil, is called with the work of the selection since the last call, while the
	// store holds no lock, so that the caller may let others work. Its error ends the selection. Only
	// the goroutine of the iteration calls it, and a store need not.
	Tick func(work int) error

	// Hold, if not nil, is called before the store holds bytes of names and series that it has
	// read for the view, or of samples that the cursors of these series gather, and with a negative
	// number once it holds them no longer. It may wait, and its error ends the selection or the
	// cursor. Any goroutine may call it. A store that has them in memory anyway need not.
	Hold func(bytes int64) error
}

// SelectAhead is how many series a store may yield after the context has ended.
const SelectAhead = 1024

// LimitCheck returns a *LimitError if n series exceed the limit of the selection.
func (s *Selection) LimitCheck(n int64) error {
	if s.Limit <= 0 || n <= int64(s.Limit) {
		return nil
	}
	return &LimitError{Limit: s.LimitKey, Max: int64(s.Limit), Need: n, What: s.what()}
}

// SelectNone yields an error and no series.
func SelectNone(err error) iter.Seq2[Series, error] {
	return func(yield func(Series, error) bool) { yield(Series{}, err) }
}

// ReadOptions say which samples of a series are wanted, and in which form.
type ReadOptions struct {
	Range      model.TimeRange
	Descending bool
	Limit      int // samples, 0 = all; counted from the first one read

	// Exact leaves out samples before the range, also where queries of KairosDB's API begin up to
	// a second earlier. Readers that continue after a sample need it.
	Exact bool

	// Summarize, if not nil, lets the store answer samples of a Long or Double
	// series by statistics of runs. A store may ignore it, for some of the
	// samples or all. It is not used together with Limit.
	Summarize *Summary

	// Stale shows staleness markers: samples of a Double series whose value is
	// model.StaleMarker. Without it, markers are left out and do not count against Limit.
	// In both cases a marker replaces an older sample of the same time. Statistics and
	// buckets never include markers.
	Stale bool

	// Buckets says how the cursor shows samples that the store has downsampled.
	Buckets BucketMode

	// Needs are the columns of buckets that the caller will look at, beside those that
	// are always filled. It matters for BucketsOnly alone.
	Needs model.StatSet

	// Sketches asks for the sketches of buckets, and for Block.Aggregates where samples
	// stand for buckets. It is not used together with Summarize.
	Sketches bool

	// Final, if not nil, cuts time into spans as that of a Summary does. Block.Aggregates then has only
	// buckets that lie within a span. Sketches must be set.
	Final func(ms int64) int64

	// Hold, if not nil, is called as Selection.Hold before the cursor takes much memory beside its block:
	// for all samples of a series that arrived out of order and is not in files yet.
	Hold func(bytes int64) error

	// Stages, if not nil, records which stages were read. Only a store that downsamples
	// fills it.
	Stages *StageLog
}

// A Bucket is what remains of the samples of a series in the StepMS milliseconds from
// StartMS on, after the store has downsampled them.
type Bucket struct {
	StartMS, StepMS int64
	model.Aggregate
}

// Buckets are buckets of one series, column by column.
type Buckets struct {
	StepMS []int64
	model.Aggregates
}

// Reset empties b and keeps its memory.
func (b *Buckets) Reset() {
	b.StepMS = b.StepMS[:0]
	b.Aggregates.Reset()
}

// At returns a bucket.
func (b *Buckets) At(i int) Bucket {
	return Bucket{StartMS: b.StartMS[i], StepMS: b.StepMS[i], Aggregate: b.Aggregates.At(i)}
}

// Add adds a bucket to the columns of needs and those that are always filled.
func (b *Buckets) Add(one Bucket, needs model.StatSet) {
	b.StepMS = append(b.StepMS, one.StepMS)
	b.Aggregates.Add(one.StartMS, one.Aggregate, needs)
}

// Append adds the buckets of another one with the same columns.
func (b *Buckets) Append(o *Buckets) {
	b.StepMS = append(b.StepMS, o.StepMS...)
	b.Aggregates.Append(&o.Aggregates)
}

// Slice returns the buckets with indexes in [from, to). They share b's memory.
func (b *Buckets) Slice(from, to int) Buckets {
	return Buckets{b.StepMS[from:to], b.Aggregates.Slice(from, to)}
}

// A BucketMode says how a cursor shows buckets.
type BucketMode uint8

const (
	// BucketsAsSamples shows each bucket as one sample at its start, with the value that
	// the series' policy derives from it. If the read has a Summary and the bucket lies
	// within one of its spans, the bucket is shown as statistics instead.
	BucketsAsSamples BucketMode = iota
	WithoutBuckets              // samples only
	BucketsOnly                 // blocks of buckets, those that begin in the range
)

// A Summary says which statistics may replace samples, and how they are divided
// into runs.
type Summary struct {
	// Final cuts time into spans: it returns the last instant of the span that
	// contains ms. A run has samples of one span only. The store calls Final only
	// with times inside the range of the read.
	Final func(ms int64) int64

	// Needs are the statistics that the caller will look at.
	Needs model.StatSet
}

// A Cursor yields the samples of one series in blocks. It is used by one
// goroutine.
type Cursor interface {
	// Next returns the next block, nil at the end. The block belongs to the
	// cursor and is overwritten by the following call. After an error the
	// cursor stays at that error.
	Next() (*Block, error)

	// Close releases the cursor. It may be called at any time.
	Close()
}

// A Block holds samples in the requested order, with distinct times: as Columns or,
// if Stats is not nil, as statistics of consecutive runs. Blocks do not overlap and
// follow each other in the requested order; so do runs. The first sample of a run is
// the earliest one in either order. TTLs are not filled.
type Block struct {
	model.Columns
	Stats   []model.Stats
	Folded  bool     // the Stats are of buckets: without a Summary each of them is one sample
	Buckets *Buckets // not nil only for BucketsOnly

	// Aggregates, if not nil, has for each sample the bucket that the sample stands for.
	// A plain sample has a bucket with a count of 0. See ReadOptions.Sketches.
	Aggregates []model.Aggregate
}

// NameKind says which names are listed.
type NameKind uint8

const (
	MetricNames NameKind = iota
	TagNames
	TagValues
)

// NamesQuery says which names are wanted. Zero fields do not restrict.
type NamesQuery struct {
	Kind    NameKind
	Metric  string         // TagNames, TagValues: of this metric only
	Tag     string         // TagValues: of this tag only
	Prefix  string         // literal
	Pattern *model.Pattern // of the whole name
	After   string         // names that come after this one
	Limit   int

	// Delimiter, if not 0, lists one level of a tree: a name that contains Delimiter after Prefix
	// is cut after the first one there, and each result is listed once. Delimiter is an ASCII
	// character below 0x7f. It needs MetricNames without a Pattern.
	Delimiter byte

	// Tick and Hold are as those of a Selection.
	Tick func(work int) error
	Hold func(bytes int64) error
}

// Entry returns what q lists for a name that begins with Prefix.
func (q *NamesQuery) Entry(name string) string {
	if q.Delimiter != 0 {
		if i := strings.IndexByte(name[len(q.Prefix):], q.Delimiter); i >= 0 {
			return name[:len(q.Prefix)+i+1]
		}
	}
	return name
}

// Beyond returns where to continue after an entry: a text greater than every name with this entry.
// ok is false if the entry is a single name.
func (q *NamesQuery) Beyond(entry string) (from string, ok bool) {
	last := len(entry) - 1
	if q.Delimiter == 0 || last < len(q.Prefix) || entry[last] != q.Delimiter {
		return "", false
	}
	return entry[:last] + string(rune(q.Delimiter+1)), true
}

// Check returns an *InputError if q is invalid.
func (q *NamesQuery) Check() error {
	switch {
	case q.Kind > TagValues:
		return &InputError{Reason: fmt.Sprintf("unknown kind of names %d", q.Kind)}
	case q.Delimiter != 0 && (q.Kind != MetricNames || q.Pattern != nil || q.Delimiter >= 0x7f):
		return &InputError{Reason: "a delimiter is an ASCII character, for names of metrics without a pattern"}
	}
	return nil
}

// Deleter removes samples.
type Deleter interface {
	// Delete removes the samples of the matching series whose time is in the
	// range. When it returns, they are invisible to every View opened from
	// then on and stay so after a restart. Later writes are not affected. A
	// series without samples disappears from Select and Names. An empty
	// Metric is an *InputError. Callers pass the deletions of one request
	// together, since a store may read its index once for all of them. After an
	// error, some deletions may have been applied.
	Delete(ctx context.Context, deletions ...Deletion) error
}

// Deletion says what is removed.
type Deletion struct {
	Metric   string
	Matchers []model.Matcher
	Range    model.TimeRange

	// Only, if not nil, restricts the deletion to this one of the series that match.
	// [DeletionOf] sets it.
	Only *model.Series
}

// DeletionOf removes samples of one series, and none of series with more tags or
// of another type. There is one exception: KairosDB's oldest row format keeps longs
// and doubles of the same tags in one row, and both are removed.
func DeletionOf(s model.Series, r model.TimeRange) Deletion {
	return Deletion{Metric: s.Metric, Matchers: model.Matchers(s.Tags.Slice()), Range: r, Only: &s}
}

// Means reports whether the deletion applies to a series.
func (d *Deletion) Means(s model.Series) bool {
	return s.Metric == d.Metric && (d.Only == nil || *d.Only == s) && model.MatchesAll(d.Matchers, s.Tags)
}

// Meaning returns Means for many series: see [model.Filter].
func (d *Deletion) Meaning() func(model.Series) bool {
	filter := model.NewFilter(d.Matchers)
	return func(s model.Series) bool {
		return s.Metric == d.Metric && (d.Only == nil || *d.Only == s) && filter.Matches(s.Tags)
	}
}

// Memory estimates the bytes that the deletion takes while it is performed and recorded.
func (d *Deletion) Memory() int {
	return len(d.Metric) + MatchersMemory(d.Matchers)
}

// MatchersMemory estimates the bytes that matchers take, patterns as they are compiled.
func MatchersMemory(matchers []model.Matcher) (n int) {
	const perMatcher, perText, perPattern, perInstruction = 200, 32, 1200, 96
	for _, m := range matchers {
		n += len(m.Tag) + perMatcher
		for _, v := range m.Values {
			n += len(v) + perText
		}
		for _, p := range m.Patterns {
			n += perPattern + p.Size()*perInstruction // a few characters may repeat a class a thousand times
		}
	}
	return n
}

// A TimeCutter is a store that may give samples earlier times than they were appended with, once they
// are stored for good: a keyspace of KairosDB whose times are seconds.
type TimeCutter interface {
	// StoredTime returns the time that a sample of a metric at ms gets. It does not descend as
	// ms ascends, but where ms is negative.
	StoredTime(metric string, ms int64) int64
}

// KeyValues is KairosDB's metadata: a text for each service, service key and key.
// None of the three is empty.
type KeyValues interface {
	Get(ctx context.Context, service, serviceKey, key string) (Value, error) // ErrNotFound
	Set(ctx context.Context, service, serviceKey, key, value string) error
	Unset(ctx context.Context, service, serviceKey, key string) error // also if absent

	// ServiceKeys yields the distinct service keys of a service, in any order.
	ServiceKeys(ctx context.Context, service string) iter.Seq2[string, error]

	// Keys yields the keys that begin with prefix, ascending: by their bytes or as
	// model.CompareNames does.
	Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error]

	// Modified returns when a key of the service key was last set or unset, the
	// zero time if never. A store may forget the time together with the last key,
	// unless the service is an OwnService.
	Modified(ctx context.Context, service, serviceKey string) (time.Time, error)
}

// OwnService reports whether a service of KeyValues is the server's own, which
// clients neither read nor write.
func OwnService(service string) bool { return strings.HasPrefix(service, "_") }

// Value is a stored text and when it was set.
type Value struct {
	Text     string
	Modified time.Time
}

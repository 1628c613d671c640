// Package reference is a store in memory, written to be obviously right rather than
// fast. It is the oracle of package storetest, and a double for tests of code that needs
// a store.
//
// Where the contract leaves a choice, this store is exact: Select lists only series with
// a visible sample in the range, names vanish with the last sample, and a View is live,
// so it sees everything up to the moment of each call.
package reference

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// A Store keeps one sorted slice of samples per series, behind one mutex. Appending in
// order costs O(1) per sample, out of order O(n) of the series; Select and Names look at
// every series.
type Store struct {
	// BlockSamples is how many samples a cursor puts into one block, and so
	// how long the runs are that Summarize is asked about. Set it before use;
	// 0 means 100.
	BlockSamples int

	// Now is the clock of the store.
	Now func() time.Time

	mu     sync.Mutex
	closed bool
	epoch  uint64
	refs   []*series // by Ref; a ref is never used again
	byKey  map[string]store.Ref
	values map[valueKey]store.Value
	moved  map[valueKey]time.Time // of a service key: last set or unset, key is ""
}

type series struct {
	model.Series
	samples []Sample // times strictly increase
}

// A Sample is one sample of a series: its value has Bits if its kind is fixed, Data
// if its kind is variable.
type Sample struct {
	TimeMS int64
	Bits   uint64
	Data   string
	TTL    uint32 // in seconds, 0 for ever
}

type valueKey struct{ service, serviceKey, key string }

// New returns an empty Store. now is the clock that times-to-live and modification times
// are measured by; nil means time.Now.
func New(now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{
		Now:    now,
		epoch:  1,
		byKey:  map[string]store.Ref{},
		values: map[valueKey]store.Value{},
		moved:  map[valueKey]time.Time{},
	}
}

// Reopen closes r and returns a new Store with the same samples and
// key-values, as if a store on disk had been closed and opened. Refs are
// handed out again, in another epoch.
func (r *Store) Reopen() *Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	n := New(r.Now)
	n.BlockSamples, n.epoch = r.BlockSamples, r.epoch+1
	n.values, n.moved = maps.Clone(r.values), maps.Clone(r.moved)
	for _, s := range slices.Backward(r.refs) {
		if len(s.samples) > 0 {
			clone := n.refs[n.create(s.Series)]
			clone.samples = slices.Clone(s.samples)
		}
	}
	return n
}

// Purge drops expired samples and forgets series without samples, as the
// maintenance of a real store does. If it forgot one, a new epoch begins.
func (r *Store) Purge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, forgot := r.Now().UnixMilli(), false
	for key, ref := range r.byKey {
		s := r.refs[ref]
		s.samples = slices.DeleteFunc(s.samples, func(p Sample) bool { return !p.visible(now) })
		if len(s.samples) == 0 {
			delete(r.byKey, key)
			forgot = true
		}
	}
	if forgot {
		r.epoch++
	}
}

// Series returns the series that ref was given out for.
func (r *Store) Series(ref store.Ref) model.Series {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refs[ref].Series
}

// Samples returns what r keeps of each series, expired samples included.
func (r *Store) Samples() map[model.Series][]Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[model.Series][]Sample{}
	for _, s := range r.refs {
		all[s.Series] = append(all[s.Series], s.samples...)
	}
	return all
}

// Put writes samples of one series without a batch.
func (r *Store) Put(s model.Series, samples ...Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.refs[r.create(s)]
	for _, p := range samples {
		kept.put(p)
	}
}

// Close makes every later call on r and its views return ErrClosed.
func (r *Store) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return store.ErrClosed
	}
	r.closed = true
	return nil
}

// Epoch implements store.Appender.
func (r *Store) Epoch() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch
}

// Lookup implements store.Appender.
func (r *Store) Lookup(key []byte) (store.Ref, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref, ok := r.byKey[string(key)]
	return ref, ok
}

// SeriesCount implements store.Appender.
func (r *Store) SeriesCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey)
}

// SeriesBytes implements store.Appender.
func (r *Store) SeriesBytes() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.byKey {
		n += int64(len(key))
	}
	return n
}

// Create implements store.Appender.
func (r *Store) Create(ctx context.Context, s model.Series) (store.Ref, error) {
	defer r.mu.Unlock()
	if err := r.lockOpen(ctx); err != nil {
		return 0, err
	}
	return r.create(s), nil
}

// create returns the ref of s. r.mu must be held, or r not yet be shared.
func (r *Store) create(s model.Series) store.Ref {
	key := string(s.AppendKey(nil))
	if ref, ok := r.byKey[key]; ok {
		return ref
	}
	ref := store.Ref(len(r.refs))
	r.refs = append(r.refs, &series{Series: s})
	r.byKey[key] = ref
	return ref
}

// Append implements store.Appender.
func (r *Store) Append(ctx context.Context, b *store.Batch) error {
	defer r.mu.Unlock()
	if err := r.lockOpen(ctx); err != nil {
		return err
	}
	if b.Epoch != r.epoch {
		return store.ErrStale
	}
	for _, in := range b.Samples {
		if int(in.Ref) >= len(r.refs) {
			return &store.InputError{Reason: fmt.Sprintf("series reference %d was never given out", in.Ref)}
		}
	}
	for _, in := range b.Samples {
		s := r.refs[in.Ref]
		p := Sample{TimeMS: in.TimeMS, TTL: in.TTL}
		switch k := s.Type.Kind(); {
		case k.Fixed():
			p.Bits = in.Value
		case k.Variable():
			p.Data = string(b.Bytes(in))
		}
		s.put(p)
	}
	return nil
}

func (s *series) put(p Sample) {
	i, found := s.search(p.TimeMS)
	if found {
		s.samples[i] = p
		return
	}
	s.samples = slices.Insert(s.samples, i, p)
}

// search returns the index of the first sample at or after ms, and whether it
// is at ms.
func (s *series) search(ms int64) (int, bool) {
	if n := len(s.samples); n == 0 || s.samples[n-1].TimeMS < ms {
		return n, false
	}
	return slices.BinarySearchFunc(s.samples, ms, func(p Sample, ms int64) int {
		return cmp.Compare(p.TimeMS, ms)
	})
}

// within yields the samples of s in r that are visible at now, ascending.
func (s *series) within(r model.TimeRange, now int64) iter.Seq[Sample] {
	return func(yield func(Sample) bool) {
		from, _ := s.search(r.StartMS)
		for _, p := range s.samples[from:] {
			if p.TimeMS > r.EndMS || p.visible(now) && !yield(p) {
				return
			}
		}
	}
}

func (s *series) anyWithin(r model.TimeRange, now int64) bool {
	for range s.within(r, now) {
		return true
	}
	return false
}

func (p Sample) visible(nowMS int64) bool {
	return nowMS < model.ExpiryMS(p.TimeMS, p.TTL)
}

// Delete implements store.Deleter.
func (r *Store) Delete(ctx context.Context, deletions ...store.Deletion) error {
	defer r.mu.Unlock()
	if err := r.lockOpen(ctx); err != nil {
		return err
	}
	for _, d := range deletions {
		if d.Metric == "" {
			return &store.InputError{Reason: "delete: the metric name is empty"}
		}
		for _, s := range r.refs {
			if !d.Means(s.Series) {
				continue
			}
			s.samples = slices.DeleteFunc(s.samples, func(p Sample) bool { return d.Range.Contains(p.TimeMS) })
		}
	}
	return nil
}

// View implements store.Viewer.
func (r *Store) View(ctx context.Context) (store.View, error) {
	defer r.mu.Unlock()
	if err := r.lockOpen(ctx); err != nil {
		return nil, err
	}
	return &view{r: r}, nil
}

// lockOpen locks r.mu in any case. Its error says why the call with ctx must not continue.
func (r *Store) lockOpen(ctx context.Context) error {
	r.mu.Lock()
	if r.closed {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("reference store: %w", err)
	}
	return nil
}

type view struct {
	r      *Store
	closed bool // guarded by r.mu
}

func (v *view) lockOpen(ctx context.Context) error {
	if err := v.r.lockOpen(ctx); err != nil {
		return err
	}
	if v.closed {
		return store.ErrClosed
	}
	return nil
}

func (v *view) Close() error {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	if v.closed {
		return store.ErrClosed
	}
	v.closed = true
	return nil
}

func (v *view) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	return func(yield func(store.Series, error) bool) {
		all, err := v.selected(ctx, sel)
		for _, s := range all {
			if err = v.checkOpen(ctx); err != nil {
				break
			}
			if !yield(s, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Series{}, err)
		}
	}
}

func (v *view) checkOpen(ctx context.Context) error {
	defer v.r.mu.Unlock()
	return v.lockOpen(ctx)
}

func (v *view) selected(ctx context.Context, sel store.Selection) ([]store.Series, error) {
	defer v.r.mu.Unlock()
	if err := v.lockOpen(ctx); err != nil {
		return nil, err
	}
	now := v.r.Now().UnixMilli()
	var out []store.Series
	for ref, s := range v.r.refs {
		if sel.MeansMetric(s.Metric) && model.MatchesAll(sel.Matchers, s.Tags) && s.anyWithin(sel.Range, now) {
			out = append(out, store.Series{Ref: store.Ref(ref), Series: s.Series})
		}
	}
	if err := sel.LimitCheck(int64(len(out))); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b store.Series) int { return a.Compare(b.Series) })
	return out, nil
}

func (v *view) Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error) {
	if err := q.Check(); err != nil {
		return nil, false, err
	}
	defer v.r.mu.Unlock()
	if err := v.lockOpen(ctx); err != nil {
		return nil, false, err
	}
	now := v.r.Now().UnixMilli()
	found := map[string]bool{}
	for _, s := range v.r.refs {
		if !s.anyWithin(model.AllTime, now) {
			continue
		}
		for _, n := range s.names(q) {
			found[n] = true
		}
	}
	entries := map[string]bool{}
	for n := range found {
		if q.Delimiter != 0 && strings.HasPrefix(n, q.Prefix) {
			below, _, isBranch := strings.Cut(n[len(q.Prefix):], string(rune(q.Delimiter)))
			if n = q.Prefix + below; isBranch {
				n += string(rune(q.Delimiter))
			}
		}
		entries[n] = true
	}
	for n := range entries {
		if wanted(q, n) {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, model.CompareNames)
	if q.Limit > 0 && len(names) > q.Limit {
		return names[:q.Limit], true, nil
	}
	return names, false, nil
}

// names returns the names of the kind asked for that s contributes.
func (s *series) names(q store.NamesQuery) []string {
	if q.Kind == store.MetricNames {
		return []string{s.Metric}
	}
	if q.Metric != "" && q.Metric != s.Metric {
		return nil
	}
	var out []string
	for name, value := range s.Tags.All() {
		switch {
		case q.Kind == store.TagNames:
			out = append(out, name)
		case q.Tag == "" || q.Tag == name:
			out = append(out, value)
		}
	}
	return out
}

func wanted(q store.NamesQuery, name string) bool {
	return strings.HasPrefix(name, q.Prefix) &&
		(q.Pattern == nil || q.Pattern.MatchString(name)) &&
		(q.After == "" || model.CompareNames(name, q.After) > 0)
}

func (v *view) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	defer v.r.mu.Unlock()
	c := &cursor{ctx: ctx, view: v, o: o, kind: s.Type.Kind(), size: cmp.Or(v.r.BlockSamples, 100)}
	if c.err = v.lockOpen(ctx); c.err != nil {
		return c
	}
	if int(s.Ref) >= len(v.r.refs) {
		c.err = &store.InputError{Reason: fmt.Sprintf("series reference %d is not of this view", s.Ref)}
		return c
	}
	c.rest = slices.Collect(v.r.refs[s.Ref].within(o.Range, v.r.Now().UnixMilli()))
	if c.kind == model.Double && !o.Stale {
		c.rest = slices.DeleteFunc(c.rest, func(p Sample) bool { return p.Bits == model.StaleMarker })
	}
	if o.Descending {
		slices.Reverse(c.rest)
	}
	if o.Limit > 0 && len(c.rest) > o.Limit {
		c.rest = c.rest[:o.Limit]
	}
	return c
}

type cursor struct {
	ctx   context.Context
	view  *view
	o     store.ReadOptions
	kind  model.Kind
	size  int
	rest  []Sample // in the order asked for
	err   error
	block store.Block
}

func (c *cursor) Next() (*store.Block, error) {
	if c.err == nil {
		c.err = c.view.lockOpen(c.ctx)
		c.view.r.mu.Unlock()
	}
	if c.err != nil || len(c.rest) == 0 {
		return nil, c.err
	}
	run := c.rest[:min(c.size, len(c.rest))]
	c.rest = c.rest[len(run):]
	c.block.Reset()
	c.block.Stats = nil
	if c.o.Summarize != nil && c.kind.Fixed() {
		c.block.Stats = summaryOf(c.kind, run, c.o.Summarize)
		return &c.block, nil
	}
	for _, p := range run {
		switch {
		case c.kind.Fixed():
			c.block.AppendFixed(p.TimeMS, p.Bits, 0)
		case c.kind.Variable():
			c.block.AppendBytes(p.TimeMS, []byte(p.Data), 0)
		default:
			c.block.AppendNull(p.TimeMS, 0)
		}
	}
	return &c.block, nil
}

func (c *cursor) Close() {
	c.rest = nil
	c.err = cmp.Or(c.err, store.ErrClosed)
}

// summaryOf cuts samples, in either order, into runs. Statistics that the summary does
// not need get conspicuous values, so that a test fails if they are used.
func summaryOf(kind model.Kind, samples []Sample, s *store.Summary) (all []model.Stats) {
	for len(samples) > 0 {
		n := 1
		for n < len(samples) && s.Final(min(samples[0].TimeMS, samples[n].TimeMS)) >= max(samples[0].TimeMS, samples[n].TimeMS) {
			n++
		}
		stats := Stats(kind, samples[:n])
		spoil(&stats, s.Needs)
		all, samples = append(all, stats), samples[n:]
	}
	return all
}

func spoil(s *model.Stats, needs model.StatSet) {
	const odd = -7.25e77
	if needs&model.StatSum == 0 {
		s.Sum = odd
	}
	if needs&model.StatMin == 0 {
		s.Min = odd
	}
	if needs&model.StatMax == 0 {
		s.Max = -odd
	}
	if needs&model.StatFirst == 0 {
		s.First = math.Float64bits(odd)
	}
	if needs&model.StatLast == 0 {
		s.Last = math.Float64bits(odd)
	}
}

// Stats are the statistics of samples in ascending or descending order, of which there is at least one.
func Stats(kind model.Kind, run []Sample) model.Stats {
	if run[0].TimeMS > run[len(run)-1].TimeMS {
		run = slices.Clone(run)
		slices.Reverse(run)
	}
	first, last := run[0], run[len(run)-1]
	s := model.Stats{
		Count: len(run), FirstMS: first.TimeMS, LastMS: last.TimeMS, First: first.Bits, Last: last.Bits,
		Min: model.Float(kind, first.Bits), Max: model.Float(kind, first.Bits),
	}
	for _, p := range run {
		f := model.Float(kind, p.Bits)
		s.Min, s.Max, s.Sum = min(s.Min, f), max(s.Max, f), s.Sum+f
	}
	return s
}

// Get implements store.KeyValues.
func (r *Store) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	defer r.mu.Unlock()
	if err := r.lockOpen(ctx); err != nil {
		return store.Value{}, err
	}
	v, ok := r.values[valueKey{service, serviceKey, key}]
	if !ok {
		return store.Value{}, fmt.Errorf("%s/%s/%s: %w", service, serviceKey, key, store.ErrNotFound)
	}
	return v, nil
}

// Set implements store.KeyValues.
func (r *Store) Set(ctx context.Context, service, serviceKey, key, value string) error {
	defer r.mu.Unlock()
	if err := r.lockOpen(ctx); err != nil {
		return err
	}
	k := valueKey{service, serviceKey, key}
	if err := k.check(); err != nil {
		return err
	}
	now := r.Now()
	r.values[k] = store.Value{Text: value, Modified: now}
	r.moved[valueKey{service, serviceKey, ""}] = now
	return nil
}

// Unset implements store.KeyValues.
func (r *Store) Unset(ctx context.Context, service, serviceKey, key string) error {
	defer r.mu.Unlock()
	if err := r.lockOpen(ctx); err != nil {
		return err
	}
	k := valueKey{service, serviceKey, key}
	if err := k.check(); err != nil {
		return err
	}
	delete(r.values, k)
	r.moved[valueKey{service, serviceKey, ""}] = r.Now()
	return nil
}

func (k valueKey) check() error {
	if k.service == "" || k.serviceKey == "" || k.key == "" {
		return &store.InputError{Reason: "service, service key and key must not be empty"}
	}
	return nil
}

// ServiceKeys implements store.KeyValues.
func (r *Store) ServiceKeys(ctx context.Context, service string) iter.Seq2[string, error] {
	return r.list(ctx, func(k valueKey) (string, bool) { return k.serviceKey, k.service == service })
}

// Keys implements store.KeyValues.
func (r *Store) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	return r.list(ctx, func(k valueKey) (string, bool) {
		return k.key, k.service == service && k.serviceKey == serviceKey && strings.HasPrefix(k.key, prefix)
	})
}

// list yields the stored keys that pick accepts, ascending, each once.
func (r *Store) list(ctx context.Context, pick func(valueKey) (string, bool)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := r.lockOpen(ctx)
		found := map[string]bool{}
		for k := range r.values {
			if name, ok := pick(k); ok {
				found[name] = true
			}
		}
		r.mu.Unlock()
		if err != nil {
			yield("", err)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(found)) {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Modified implements store.KeyValues.
func (r *Store) Modified(ctx context.Context, service, serviceKey string) (time.Time, error) {
	defer r.mu.Unlock()
	if err := r.lockOpen(ctx); err != nil {
		return time.Time{}, err
	}
	return r.moved[valueKey{service, serviceKey, ""}], nil
}

package head

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"varve/internal/model"
	"varve/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is one sample as tests write and compare it.
type sample struct {
	MS    int64
	Value uint64 // fixed kinds
	Text  string // variable kinds
	TTL   uint32
}

// kindOf gives each series of the tests its kind: 1 long, 2 double, 3 string,
// 4 complex, 5 null, 6 custom, 7 long ...
func kindOf(id model.SeriesNumber) model.Kind { return model.Kind((id-1)%6 + 1) }

// write appends samples of one series as one batch.
func write(h *Head, id model.SeriesNumber, samples ...sample) {
	var b store.Batch
	var kinds []model.Kind
	for _, s := range samples {
		kinds = append(kinds, addTo(&b, id, s))
	}
	h.Append(&b, kinds)
}

func addTo(b *store.Batch, id model.SeriesNumber, s sample) model.Kind {
	kind := kindOf(id)
	switch {
	case kind.Fixed():
		b.Samples = append(b.Samples, store.Sample{TimeMS: s.MS, Value: s.Value, Ref: store.Ref(id), TTL: s.TTL})
	case kind.Variable():
		b.AddBytes(store.Ref(id), s.MS, []byte(s.Text), s.TTL)
	default:
		b.AddNull(store.Ref(id), s.MS, s.TTL)
	}
	return kind
}

func samplesOf(kind model.Kind, c *model.Columns) (all []sample) {
	for i, ms := range c.Times {
		s := sample{MS: ms, TTL: c.TTL(i)}
		if kind.Fixed() {
			s.Value = c.Values[i]
		}
		if kind.Variable() {
			s.Text = string(c.Bytes(i))
		}
		all = append(all, s)
	}
	return all
}

// read returns the samples of a snapshot that are in r, and checks what Run
// promises about their order.
func read(h *Head, run *Run, id model.SeriesNumber, r model.TimeRange) ([]sample, bool, error) {
	ok, err := h.Snapshot(id, r, run)
	if !ok || err != nil {
		return nil, ok, err
	}
	if run.Kind != kindOf(id) {
		return nil, true, fmt.Errorf("kind %s, want %s", run.Kind, kindOf(id))
	}
	var c model.Columns
	for _, f := range run.Fragments {
		at := c.Len()
		if err := run.Decode(f, &c); err != nil {
			return nil, true, err
		}
		if c.Times[at] != f.FirstMS || c.Times[c.Len()-1] != f.LastMS {
			return nil, true, fmt.Errorf("fragment %d..%d has samples %d..%d", f.FirstMS, f.LastMS, c.Times[at], c.Times[c.Len()-1])
		}
	}
	c.Append(&run.Open, 0, run.Open.Len())
	if !slices.IsSorted(c.Times) || len(slices.Compact(slices.Clone(c.Times))) < c.Len() {
		return nil, true, fmt.Errorf("%d fragments and %d open samples do not ascend: %v", len(run.Fragments), run.Open.Len(), c.Times)
	}
	return slices.DeleteFunc(samplesOf(run.Kind, &c), func(s sample) bool { return !r.Contains(s.MS) }), true, nil
}

func wantSamples(t *testing.T, h *Head, id model.SeriesNumber, r model.TimeRange, want ...sample) {
	t.Helper()
	got, _, err := read(h, &Run{}, id, r)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("series %d in %v (-want +got):\n%s", id, r, d)
	}
}

// measured computes what Bytes should be from the content.
func measured(h *Head) (n int64, err error) {
	for i := range h.shards {
		s := &h.shards[i]
		open, held := uint32(0), uint32(0)
		for _, d := range s.dirs {
			if d == nil {
				continue
			}
			n += dirBytes
			for _, p := range d {
				if p == nil {
					continue
				}
				n += pageBytes
				for j := range p {
					open += (uint32(p[j].open) + blockSize - 1) / blockSize
					held += p[j].held
				}
			}
		}
		free := uint32(len(s.free))
		if once := slices.Compact(slices.Sorted(slices.Values(s.free))); len(once) != len(s.free) {
			return 0, fmt.Errorf("shard %d: of %d free blocks, some are listed twice", i, free)
		}
		if open != s.busy {
			return 0, fmt.Errorf("shard %d: %d blocks busy, %d open", i, s.busy, open)
		}
		if open+free != s.used {
			return 0, fmt.Errorf("shard %d: %d blocks used, %d open, %d free", i, s.used, open, free)
		}
		if int(held)+s.waste != len(s.data) {
			return 0, fmt.Errorf("shard %d: %d bytes of strings, %d held, %d waste", i, len(s.data), held, s.waste)
		}
		if s.waste > wasteMin && s.waste > len(s.data)/2 {
			return 0, fmt.Errorf("shard %d: %d of %d bytes of strings are waste", i, s.waste, len(s.data))
		}
		n += int64(open)*s.blockBytes() + int64(len(s.data))
		for _, a := range s.arena {
			n += int64(len(a))
		}
	}
	return n, nil
}

func checkBytes(t interface{ Fatalf(string, ...any) }, h *Head) {
	n, err := measured(h)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if h.Bytes() != n {
		t.Fatalf("Bytes is %d, %d are there", h.Bytes(), n)
	}
}

func TestEmpty(t *testing.T) {
	h := New(0)
	var run Run
	if ok, err := h.Snapshot(7, model.AllTime, &run); ok || err != nil {
		t.Errorf("Snapshot: %v, %v", ok, err)
	}
	if r, ok := h.Span(7); ok || r.StartMS <= r.EndMS {
		t.Errorf("Span: %v, %v", r, ok)
	}
	if ids := slices.Collect(h.Series()); ids != nil || h.Count(7) != 0 || h.Samples() != 0 || h.Bytes() != 0 {
		t.Errorf("series %v, count %d, samples %d, bytes %d", ids, h.Count(7), h.Samples(), h.Bytes())
	}
	if err := h.Delete(7, model.AllTime); err != nil {
		t.Error(err)
	}
	h.Append(&store.Batch{}, nil)
}

func TestOrder(t *testing.T) {
	const long = 7
	at := func(ms ...int64) (all []sample) {
		for i, ms := range ms {
			all = append(all, sample{MS: ms, Value: uint64(i + 1)})
		}
		return all
	}
	count := func(from, n int64) (all []sample) {
		for i := range n {
			all = append(all, sample{MS: from + i, Value: uint64(from + i)})
		}
		return all
	}
	for _, c := range []struct {
		name      string
		in        []sample
		want      []sample
		shuffled  bool
		fragments int
	}{
		{name: "ascending", in: at(1, 2, 3), want: at(1, 2, 3)},
		{name: "late", in: at(1, 3, 2), want: []sample{{MS: 1, Value: 1}, {MS: 2, Value: 3}, {MS: 3, Value: 2}}},
		{name: "the last write wins", in: at(5, 5, 5), want: []sample{{MS: 5, Value: 3}}},
		{name: "time-to-live of the last write", in: []sample{{MS: 1, TTL: 5}, {MS: 1, Value: 2}}, want: []sample{{MS: 1, Value: 2}}, shuffled: true},
		{name: "time-to-live changes", in: []sample{{MS: 1}, {MS: 2, TTL: 60}, {MS: 3, TTL: 60}, {MS: 4}},
			want: []sample{{MS: 1}, {MS: 2, TTL: 60}, {MS: 3, TTL: 60}, {MS: 4}}, fragments: 2},
		{name: "first and last of all times", in: at(math.MaxInt64, math.MinInt64, 0),
			want: []sample{{MS: math.MinInt64, Value: 2}, {MS: 0, Value: 3}, {MS: math.MaxInt64, Value: 1}}, shuffled: true},
		{name: "further than an offset reaches", in: at(-1<<31, 0, 1<<31-1, 1<<31), want: at(-1<<31, 0, 1<<31-1, 1<<31), fragments: 2},
		{name: "sealed", in: count(0, 70), want: count(0, 70), fragments: 2},
		{name: "late among the open samples", in: append(count(0, 40), sample{MS: 35, Value: 9}, sample{MS: 41, Value: 41}),
			want: append(append(count(0, 35), sample{MS: 35, Value: 9}), append(count(36, 4), sample{MS: 41, Value: 41})...), fragments: 1},
		{name: "late among the sealed samples", in: append(count(0, 40), sample{MS: 31, Value: 9}),
			want: append(append(count(0, 31), sample{MS: 31, Value: 9}), count(32, 8)...), shuffled: true},
		{name: "late before the sealed samples", in: append(count(0, 40), count(-5, 5)...), want: count(-5, 45), shuffled: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := New(0)
			write(h, long, c.in...)
			wantSamples(t, h, long, model.AllTime, c.want...)
			si, pi, slot := locate(long)
			if r := h.shards[si].record(pi, slot); r.disorder.is(shuffled) != c.shuffled {
				t.Errorf("shuffled is %v", r.disorder.is(shuffled))
			}
			var run Run
			if _, err := h.Snapshot(long, model.AllTime, &run); err != nil || len(run.Fragments) != c.fragments {
				t.Errorf("%d fragments, want %d, %v", len(run.Fragments), c.fragments, err)
			}
			span, ok := h.Span(long)
			if want := (model.TimeRange{StartMS: c.want[0].MS, EndMS: c.want[len(c.want)-1].MS}); !ok || span != want {
				t.Errorf("span %v, %v, want %v", span, ok, want)
			}
			if h.Samples() != int64(len(c.in)) || h.Count(long) != int64(len(c.in)) {
				t.Errorf("%d samples, %d of the series, want %d", h.Samples(), h.Count(long), len(c.in))
			}
			checkBytes(t, h)
		})
	}
}

// TestOverwriteWithinOpen writes the newest sample twice, as clients that
// repeat their last interval do: reads must not fall back to sorting all.
func TestOverwriteWithinOpen(t *testing.T) {
	h := New(0)
	for i := range int64(1000) {
		write(h, 7, sample{MS: i, Value: 1}, sample{MS: i, Value: 2})
	}
	var run Run
	if _, err := h.Snapshot(7, model.TimeRange{StartMS: 500, EndMS: 510}, &run); err != nil || len(run.Fragments) != 1 {
		t.Errorf("%d fragments for 10 samples, %v", len(run.Fragments), err)
	}
}

// TestStringsAreCleared compares the raw bytes of strings with those of open samples.
func TestStringsAreCleared(t *testing.T) {
	const text = 3
	h := New(0)
	value := string(bytes.Repeat([]byte("x"), 1000))
	write(h, text+6, sample{MS: 1, Text: "stays open"})
	for i := range int64(20_000) { // all in one shard
		write(h, text, sample{MS: i, Text: value})
	}
	s := &h.shards[0]
	if len(s.data) > 2*(wasteMin+sealBytes) {
		t.Errorf("%d bytes of open strings", len(s.data))
	}
	if h.Bytes() > 4<<20 {
		t.Errorf("20 MB of equal strings take %d bytes", h.Bytes())
	}
	if n := h.Expanded(); n < 20_000_000 || n > 21_000_000 {
		t.Errorf("20 MB of equal strings count as %d bytes", n)
	}
	checkBytes(t, h)
	wantSamples(t, h, text+6, model.AllTime, sample{MS: 1, Text: "stays open"})
	got, _, err := read(h, &Run{}, text, model.AllTime)
	if err != nil || len(got) != 20_000 || got[19_999].Text != value {
		t.Errorf("%d samples, %v", len(got), err)
	}
}

// TestLongFragments: a series gathers many samples before they are sealed while few are open in
// its shard, and few when there are too many.
func TestLongFragments(t *testing.T) {
	const expected = 12 << 20
	for _, c := range []struct{ series, samples, least, most int }{
		{1, 1000, sealMost, sealMost},
		{640, 1000, 33, sealMost - 1},
		{64 * 640, 100, sealLeast, sealLeast},
	} {
		h := New(expected)
		for i := range c.samples {
			var b store.Batch
			for id := range c.series {
				b.AddLong(store.Ref(id), int64(i), 1, 0)
			}
			h.Append(&b, slices.Repeat([]model.Kind{model.Long}, c.series))
		}
		checkBytes(t, h)
		var sealed, fragments int
		var run Run
		for id := range c.series {
			if _, err := h.Snapshot(model.SeriesNumber(id), model.AllTime, &run); err != nil {
				t.Fatal(err)
			}
			sealed += c.samples - run.Open.Len()
			fragments += len(run.Fragments)
		}
		if mean := sealed / fragments; mean < c.least || mean > c.most {
			t.Errorf("%d series: fragments of %d samples, want %d to %d", c.series, mean, c.least, c.most)
		}
		perShard := max(c.series/shardCount, pageSize)
		for i := range h.shards {
			if most := h.shards[i].ample + uint32(perShard*sealLeast/blockSize); h.shards[i].busy > most {
				t.Errorf("%d series: %d blocks are open in shard %d, want at most %d", c.series, h.shards[i].busy, i, most)
			}
		}
	}
}

// TestShuffledNumbersCountInFull: a shuffled series is decoded as a whole, so each of its samples
// counts with the memory that it then takes, including those before the first one out of order.
func TestShuffledNumbersCountInFull(t *testing.T) {
	const number, samples = 1, 100_000
	h := New(0)
	for i := range int64(samples) {
		write(h, number, sample{MS: i})
	}
	const numberBytes = 8 + 8 // a time and a value
	if n := h.Expanded(); n > samples*numberBytes/2 || n != h.Bytes() {
		t.Errorf("%d samples in order count as %d bytes, stored in %d", samples, n, h.Bytes())
	}
	for i := range int64(samples) {
		write(h, number, sample{MS: i})
	}
	run := &Run{}
	if _, err := h.Snapshot(number, model.AllTime, run); err != nil {
		t.Fatal(err)
	}
	least := int64(samples-sealLeast)*numberBytes + int64(samples)*numberBytes
	if n := h.Expanded(); n < least || n > least+least/5 {
		t.Errorf("%d samples, half of them sent again, count as %d bytes, want at least %d", 2*samples, n, least)
	}
	checkBytes(t, h)
}

// TestSmallFragmentsCountInFull: samples far apart need a fragment each, and the list of fragments
// counts, too.
func TestSmallFragmentsCountInFull(t *testing.T) {
	const number, samples = 1, 10_000
	h := New(0)
	for i := range int64(samples) {
		write(h, number, sample{MS: i % 2 << 40})
	}
	run := &Run{}
	h.Arrivals(number, run)
	if list := int64(cap(run.Fragments)) * int64(unsafe.Sizeof(Fragment{})); len(run.Fragments) < samples-2 || h.Expanded() < h.Bytes()+list {
		t.Errorf("%d fragments count as %d bytes, want at least %d and their list of %d", len(run.Fragments), h.Expanded(), h.Bytes(), list)
	} else if h.Expanded() > h.Bytes()+2*list {
		t.Errorf("%d fragments count as %d bytes, want at most %d and twice their list of %d", len(run.Fragments), h.Expanded(), h.Bytes(), list)
	}
	checkBytes(t, h)
}

// TestBatchOverShardsCountsInFull: a batch of series in several shards counts as much as a batch
// for each of them.
func TestBatchOverShardsCountsInFull(t *testing.T) {
	ids := []model.SeriesNumber{1, 1 + 6*pageSize, 1 + 12*pageSize} // of numbers
	one, each := New(0), New(0)
	for i := range int64(1000) {
		var b store.Batch
		var kinds []model.Kind
		for _, id := range ids {
			s := sample{MS: i % 500}
			kinds = append(kinds, addTo(&b, id, s))
			write(each, id, s)
		}
		one.Append(&b, kinds)
	}
	if got, want := one.Expanded(), each.Expanded(); got != want || got <= one.Bytes() {
		t.Errorf("%d bytes of shuffled series count as %d, want %d", one.Bytes(), got, want)
	}
}

// TestShuffledFitsItsSize: a shuffled series is read as a whole, with offsets of 32
// bits. Its byte strings never exceed the size that MaxBytes bounds, however well they
// compress.
func TestShuffledFitsItsSize(t *testing.T) {
	const text = 3
	h := New(0)
	value := strings.Repeat("x", 1000)
	for i := range int64(3000) {
		write(h, text, sample{MS: i * 7919 % 3000, Text: value})
	}
	if h.Bytes() > 1<<20 {
		t.Errorf("3 MB of equal strings take %d bytes", h.Bytes())
	}
	run := &Run{}
	if _, err := h.Snapshot(text, model.AllTime, run); err != nil {
		t.Fatal(err)
	}
	if n := int64(len(run.Open.Data)); n != 3_000_000 || n > h.Expanded() || h.Expanded() > n+n/10 {
		t.Errorf("%d bytes of strings are read, %d are counted", n, h.Expanded())
	}
	if MaxBytes > math.MaxUint32/4*3 { // one more batch may come
		t.Error("a head of MaxBytes may not fit offsets of 32 bits")
	}
}

// TestLargeStrings has fragments larger than an arena block.
func TestLargeStrings(t *testing.T) {
	const text = 3
	h := New(0)
	var want []sample
	for i := range int64(5) {
		v := bytes.Repeat([]byte{byte(i), byte(i >> 1), 7}, 200_000*int(i+1))
		want = append(want, sample{MS: i, Text: string(v)}, sample{MS: 100 + i, Text: "small"})
	}
	write(h, text, want...)
	slices.SortFunc(want, func(a, b sample) int { return int(a.MS - b.MS) })
	wantSamples(t, h, text, model.AllTime, want...)
	checkBytes(t, h)
}

func TestDelete(t *testing.T) {
	const long = 1
	fill := func() *Head {
		h := New(0)
		for i := range int64(100) {
			write(h, long, sample{MS: i, Value: uint64(i)})
		}
		return h
	}
	for _, c := range []struct {
		name  string
		r     model.TimeRange
		left  int
		count int64
	}{
		{"nothing", model.TimeRange{StartMS: 100, EndMS: 1000}, 100, 100},
		{"an empty range", model.TimeRange{StartMS: 50, EndMS: 49}, 100, 100},
		{"one sample", model.TimeRange{StartMS: 50, EndMS: 50}, 99, 99},
		{"all but the ends", model.TimeRange{StartMS: 1, EndMS: 98}, 2, 2},
		{"exactly all", model.TimeRange{StartMS: 0, EndMS: 99}, 0, 0},
		{"all of time", model.AllTime, 0, 0},
		{"the last sample of a fragment", model.TimeRange{StartMS: sealLeast - 1, EndMS: sealLeast - 1}, 99, 99},
		{"the first sample of a fragment", model.TimeRange{StartMS: sealLeast, EndMS: sealLeast}, 99, 99},
		{"a fragment", model.TimeRange{StartMS: sealLeast, EndMS: 2*sealLeast - 1}, 100 - sealLeast, 100 - sealLeast},
		{"the open samples", model.TimeRange{StartMS: 3 * sealLeast, EndMS: 99}, 3 * sealLeast, 3 * sealLeast},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := fill()
			if err := h.Delete(long, c.r); err != nil {
				t.Fatal(err)
			}
			got, ok, err := read(h, &Run{}, long, model.AllTime)
			if err != nil || len(got) != c.left || ok != (c.left > 0) || h.Count(long) != c.count {
				t.Errorf("%d samples, %v, %v, count %d", len(got), ok, err, h.Count(long))
			}
			if i := slices.IndexFunc(got, func(s sample) bool { return c.r.Contains(s.MS) }); i >= 0 {
				t.Errorf("%v is still there", got[i])
			}
			if listed := len(slices.Collect(h.Series())) > 0; listed != (c.left > 0) {
				t.Errorf("listed: %v", listed)
			}
			checkBytes(t, h)
		})
	}
}

// TestOpenWithin: a read walks only the blocks of the newest samples, if these are asked for, and about a quarter
// of those that are newer than its range, unless samples came out of order since the last fragment. Then an older block may have
// newer samples.
func TestOpenWithin(t *testing.T) {
	const long = 1
	h := New(MaxBytes) // seals at sealMost samples
	next := int64(0)
	add := func(samples int) {
		for range samples {
			write(h, long, sample{MS: next})
			next++
		}
	}
	want := func(why string, fromMS, toMS int64, want int) {
		t.Helper()
		si, pi, slot := locate(long)
		var blocks openBlocks
		within := model.TimeRange{StartMS: fromMS, EndMS: toMS}
		got := h.shards[si].openWithin(h.shards[si].record(pi, slot), within, &blocks)
		if len(got) != want {
			t.Errorf("%s: %d blocks of samples in %v, want %d", why, len(got), within, want)
		}
	}
	add(64)
	want("in order", 0, 1000, 8)
	want("in order", 55, 1000, 2)
	want("in order", 56, 1000, 1)
	want("in order", 1000, 1000, 1)
	want("in order", 0, 7, 5)
	want("in order", 0, 31, 5)
	want("in order", 0, 32, 8)
	want("in order", 24, 31, 2)
	for ms := range next {
		wantSamples(t, h, long, model.TimeRange{StartMS: ms, EndMS: ms}, sample{MS: ms})
	}
	write(h, long, sample{MS: next - 1})
	want("a sample came again", 56, 1000, 9)
	want("a sample came again", 0, 7, 9)
	add(sealMost - 65)
	want("sealed", 0, 1000, 0)
	add(16)
	want("in order since the last fragment", next-1, 1000, 1)
	wantSamples(t, h, long, model.TimeRange{StartMS: next - 9, EndMS: next - 8}, sample{MS: next - 9}, sample{MS: next - 8})
}

// TestDamageIsAnError: samples that cannot be decoded are an error for every reader,
// and are not silently omitted.
func TestDamageIsAnError(t *testing.T) {
	const long = 1
	damaged := func(shuffled bool) *Head {
		h := New(0)
		for i := range int64(2000) {
			write(h, long, sample{MS: 1000 + i, Value: uint64(i * i * i)})
		}
		if shuffled {
			write(h, long, sample{MS: 0, Value: 1})
			for i := range int64(1000) {
				write(h, long, sample{MS: 500 - i%3, Value: uint64(i)})
			}
		}
		var run Run
		h.Arrivals(long, &run)
		if len(run.Fragments) == 0 {
			t.Fatal("nothing is sealed")
		}
		for _, f := range run.Fragments {
			for i := range f.encoded {
				f.encoded[i] = 0xFF
			}
		}
		return h
	}
	for _, shuffled := range []bool{false, true} {
		h := damaged(shuffled)
		var run Run
		if _, err := h.Snapshot(long, model.AllTime, &run); (err == nil) != !shuffled { // else whoever decodes meets it
			t.Errorf("shuffled %v: snapshot of damaged memory: %v", shuffled, err)
		}
		if got, _, err := read(h, &run, long, model.AllTime); err == nil {
			t.Errorf("shuffled %v: %d samples of damaged memory, no error", shuffled, len(got))
		}
		if err := h.Delete(long, model.TimeRange{StartMS: 1001, EndMS: 2998}); err == nil {
			t.Errorf("shuffled %v: deleted from the middle of damaged memory, no error", shuffled)
		}
		if err := h.Delete(long, model.TimeRange{StartMS: 5000, EndMS: 6000}); err != nil {
			t.Errorf("shuffled %v: nothing to delete: %v", shuffled, err)
		}
	}
}

// TestDeleteBesideDamage: only what a delete cuts through is decoded. A series is gone when its damaged
// samples are deleted as well, although a delete before has failed.
func TestDeleteBesideDamage(t *testing.T) {
	const long = 1
	damaged := func(fragment int) (*Head, Fragment) {
		h := New(0)
		for i := range int64(3 * sealLeast) {
			write(h, long, sample{MS: i})
		}
		var run Run
		h.Arrivals(long, &run)
		f := run.Fragments[fragment]
		for i := range f.encoded {
			f.encoded[i] = 0xFF
		}
		return h, f
	}
	h, last := damaged(2)
	if err := h.Delete(long, model.TimeRange{StartMS: 1, EndMS: last.FirstMS - 1}); err != nil {
		t.Errorf("before the damage: %v", err)
	}
	h, first := damaged(0)
	if err := h.Delete(long, model.TimeRange{StartMS: first.LastMS, EndMS: math.MaxInt64}); err == nil {
		t.Error("deleted one of the damaged samples, and all later ones")
	}
	if err := h.Delete(long, model.TimeRange{StartMS: first.FirstMS, EndMS: first.LastMS}); err != nil {
		t.Errorf("delete all that are left: %v", err)
	}
	if span, ok := h.Span(long); ok {
		t.Errorf("samples of %v are left", span)
	}
	checkBytes(t, h)
}

// TestDeleteGivesBack deletes and rewrites many times: open samples must not
// accumulate.
func TestDeleteGivesBack(t *testing.T) {
	h := New(0)
	write(h, 1, sample{MS: 1})
	before := h.Bytes()
	for range 1000 {
		if err := h.Delete(1, model.AllTime); err != nil {
			t.Fatal(err)
		}
		write(h, 1, sample{MS: 1})
	}
	if h.Bytes() != before {
		t.Errorf("%d bytes, %d before", h.Bytes(), before)
	}
	checkBytes(t, h)
}

func TestSeriesAscend(t *testing.T) {
	h := New(0)
	want := []model.SeriesNumber{0, 1, 63, 64, 127, 4095, 4096, 8191, 100_000, 1_000_000, 1 << 20, 1<<20 + 1}
	for _, id := range []int{3, 9, 0, 8, 11, 5, 1, 7, 10, 2, 6, 4} {
		h.Append(&store.Batch{Samples: []store.Sample{{Ref: store.Ref(want[id])}}}, []model.Kind{model.Long})
	}
	if got := slices.Collect(h.Series()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for id := range h.Series() {
		if id == 64 {
			break
		}
	}
}

// TestRunIsReused reads series of different kinds and sizes into one Run.
func TestRunIsReused(t *testing.T) {
	h := New(0)
	want := map[model.SeriesNumber][]sample{}
	for id := model.SeriesNumber(1); id <= 12; id++ {
		for i := range int64(id * 30) {
			s := sample{MS: i * 7 % 100, TTL: uint32(id % 3)}
			if kindOf(id).Fixed() {
				s.Value = uint64(i)
			}
			if kindOf(id).Variable() {
				s.Text = fmt.Sprint(i)
			}
			write(h, id, s)
		}
		got, _, err := read(h, &Run{}, id, model.AllTime)
		if err != nil {
			t.Fatal(err)
		}
		want[id] = got
	}
	var run Run
	for range 2 {
		for id, w := range want {
			got, _, err := read(h, &run, id, model.AllTime)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(w, got); d != "" {
				t.Fatalf("series %d: %s", id, d)
			}
		}
	}
	for id := range model.SeriesNumber(14) { // two of them have nothing
		var fresh Run
		h.Arrivals(id, &fresh)
		h.Arrivals(id, &run)
		if len(run.Fragments) != len(fresh.Fragments) || run.Kind != fresh.Kind || !slices.Equal(run.Open.Times, fresh.Open.Times) {
			t.Errorf("series %d as it arrived: kind %v, %d fragments, open %d; want %v, %d, %d", id,
				run.Kind, len(run.Fragments), run.Open.Times, fresh.Kind, len(fresh.Fragments), fresh.Open.Times)
		}
	}
}

// TestConcurrent reads while one goroutine appends: a snapshot has a prefix of
// what was appended.
func TestConcurrent(t *testing.T) {
	const rounds = 600
	const deleted model.SeriesNumber = 9000
	h := New(0)
	ids := []model.SeriesNumber{1, 2, 3, 5, 70, 4100}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			var run Run
			seen := map[model.SeriesNumber]int{}
			for last := false; !last; {
				select {
				case <-done:
					last = true
				default:
				}
				for id := range h.Series() {
					if id == deleted {
						continue // between Series and read its samples may be gone
					}
					got, ok, err := read(h, &run, id, model.AllTime)
					if err != nil || !ok || len(got) < seen[id] {
						t.Errorf("series %d: %d samples after %d, %v, %v", id, len(got), seen[id], ok, err)
						return
					}
					seen[id] = len(got)
					for i, s := range got {
						if s.MS != int64(i) || kindOf(id).Variable() && s.Text != fmt.Sprint(i) {
							t.Errorf("series %d: sample %d is %v", id, i, s)
							return
						}
					}
					if span, ok := h.Span(id); !ok || span.EndMS < int64(len(got)-1) || h.Count(id) < int64(len(got)) {
						t.Errorf("series %d: span %v after %d samples", id, span, len(got))
					}
				}
			}
			for _, id := range ids {
				if seen[id] != rounds {
					t.Errorf("series %d: %d samples seen", id, seen[id])
				}
			}
		})
	}
	for i := range int64(rounds) {
		var b store.Batch
		var kinds []model.Kind
		for _, id := range ids {
			kinds = append(kinds, addTo(&b, id, sample{MS: i, Value: uint64(i), Text: fmt.Sprint(i)}))
		}
		h.Append(&b, kinds)
		if i == rounds/2 {
			write(h, deleted, sample{MS: 0})
			if err := h.Delete(deleted, model.AllTime); err != nil {
				t.Error(err)
			}
		}
	}
	close(done)
	wg.Wait()
}

// TestModel compares a head with maps over random appends and deletes.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newReference(rapid.SampledFrom([]int64{0, 300 << 10, 48 << 20}).Draw(t, "expected"))
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append,
			"delete": m.delete,
			"":       m.check,
		})
	})
}

// reference is a head and what it should hold.
type reference struct {
	head    *Head
	samples map[model.SeriesNumber]map[int64]sample
	counts  map[model.SeriesNumber]int64
	deleted map[model.SeriesNumber]bool // some samples: the count is an upper bound
	total   int64
	clock   map[model.SeriesNumber]int64
	run     Run
	serial  uint64
}

func newReference(expected int64) *reference {
	return &reference{
		head: New(expected), samples: map[model.SeriesNumber]map[int64]sample{}, counts: map[model.SeriesNumber]int64{}, deleted: map[model.SeriesNumber]bool{}, clock: map[model.SeriesNumber]int64{},
	}
}

var modelIDs = rapid.SampledFrom([]model.SeriesNumber{1, 2, 3, 4, 5, 6, 63, 64, 65, 4095, 4096, 4099, 20_000, 4_000_000_000, math.MaxUint32})

var modelTimes = rapid.OneOf(
	rapid.Int64Range(-50, 50),
	rapid.Int64Range(-1<<33, 1<<33),
	rapid.Int64(),
	rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}),
)

var modelRanges = rapid.Custom(func(t *rapid.T) model.TimeRange {
	if rapid.IntRange(0, 4).Draw(t, "all") == 0 {
		return model.AllTime
	}
	r := model.TimeRange{StartMS: modelTimes.Draw(t, "start"), EndMS: modelTimes.Draw(t, "end")}
	if r.StartMS > r.EndMS && rapid.IntRange(0, 9).Draw(t, "keep") > 0 {
		r.StartMS, r.EndMS = r.EndMS, r.StartMS
	}
	return r
})

// append writes a batch: bursts of samples of some series, in order or not.
func (m *reference) append(t *rapid.T) {
	var b store.Batch
	var kinds []model.Kind
	for range rapid.IntRange(1, 4).Draw(t, "bursts") {
		id := modelIDs.Draw(t, "id")
		n := rapid.SampledFrom([]int{1, 2, 9, 40, 300}).Draw(t, "n")
		order := rapid.SampledFrom([]string{"ascending", "window", "any"}).Draw(t, "order")
		ttl := rapid.SampledFrom([]uint32{0, 0, 0, 1, 3600, model.MaxTTL}).Draw(t, "ttl")
		size := rapid.SampledFrom([]int{0, 1, 16, 700}).Draw(t, "size")
		if order == "any" {
			n = min(n, 9)
		}
		for i := range n {
			m.serial++
			s := sample{TTL: ttl}
			switch order {
			case "ascending":
				m.clock[id]++
				s.MS = m.clock[id]
			case "window":
				s.MS = m.clock[id] - int64(m.serial*7%40)
			case "any":
				s.MS = modelTimes.Draw(t, "ms")
			}
			if i == n/2 && n > 2 && order == "window" {
				s.TTL = 7
			}
			if kindOf(id).Fixed() {
				s.Value = m.serial * 0x9e3779b97f4a7c15 >> (m.serial % 60)
			}
			if kindOf(id).Variable() {
				s.Text = string(bytes.Repeat([]byte{byte(m.serial), byte(m.serial >> 8)}, size))
			}
			kinds = append(kinds, addTo(&b, id, s))
			m.apply(id, s)
		}
	}
	m.head.Append(&b, kinds)
}

func (m *reference) apply(id model.SeriesNumber, s sample) {
	if m.samples[id] == nil {
		m.samples[id] = map[int64]sample{}
	}
	m.samples[id][s.MS] = s
	m.counts[id]++
	m.total++
}

func (m *reference) delete(t *rapid.T) {
	id, r := modelIDs.Draw(t, "id"), modelRanges.Draw(t, "range")
	before := len(m.samples[id])
	for ms := range m.samples[id] {
		if r.Contains(ms) {
			delete(m.samples[id], ms)
		}
	}
	left := len(m.samples[id])
	m.deleted[id] = m.deleted[id] || left < before
	if left == 0 {
		delete(m.samples, id)
		delete(m.counts, id)
		delete(m.deleted, id)
	}
	if err := m.head.Delete(id, r); err != nil {
		t.Fatalf("%v", err)
	}
}

func (m *reference) check(t *rapid.T) {
	r := modelRanges.Draw(t, "read")
	var ids []model.SeriesNumber
	for id := range m.samples {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if got := slices.Collect(m.head.Series()); !slices.Equal(got, ids) {
		t.Fatalf("series %v, want %v", got, ids)
	}
	from := rapid.IntRange(0, len(ids)).Draw(t, "from")
	for _, id := range ids[from:min(from+3, len(ids))] { // all would take long
		got, ok, err := read(m.head, &m.run, id, r)
		if err != nil || !ok {
			t.Fatalf("series %d: %v, %v", id, ok, err)
		}
		span := model.TimeRange{StartMS: math.MaxInt64, EndMS: math.MinInt64}
		var want []sample
		for ms, s := range m.samples[id] {
			span.StartMS, span.EndMS = min(span.StartMS, ms), max(span.EndMS, ms)
			if r.Contains(ms) {
				want = append(want, s)
			}
		}
		slices.SortFunc(want, func(a, b sample) int {
			if a.MS < b.MS {
				return -1
			}
			return 1
		})
		if !slices.Equal(got, want) {
			t.Fatalf("series %d in %v: %s", id, r, cmp.Diff(want, got))
		}
		if s, ok := m.head.Span(id); !ok || s != span {
			t.Fatalf("series %d: span %v, want %v", id, s, span)
		}
		n, least := m.head.Count(id), m.counts[id]
		if m.deleted[id] {
			least = int64(len(m.samples[id]))
		}
		if n < least || n > m.counts[id] {
			t.Fatalf("series %d: count %d, want %d to %d", id, n, least, m.counts[id])
		}
	}
	if m.head.Samples() != m.total {
		t.Fatalf("%d samples, want %d", m.head.Samples(), m.total)
	}
	checkBytes(t, m.head)
}

// TestSamplesFarApart: samples of one batch keep their times and times-to-live, even if
// these differ by more than a block of open samples can hold.
func TestSamplesFarApart(t *testing.T) {
	const far = 1 << 40
	want := []sample{{MS: 0}, {MS: 1, Value: 1}, {MS: 1 << 31, Value: 2}, {MS: 1<<31 + 1, Value: 3}, {MS: far, Value: 4}, {MS: far + 1, Value: 5, TTL: 60}, {MS: far + 2, Value: 6, TTL: 60}, {MS: far + 3, Value: 7}}
	h := New(0)
	write(h, 1, want...)
	var run Run
	if ok, err := h.Snapshot(1, model.AllTime, &run); !ok || err != nil {
		t.Fatal(ok, err)
	}
	var all model.Columns
	if err := run.DecodeAll(&all); err != nil {
		t.Fatal(err)
	}
	if got := samplesOf(model.Long, &all); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRecords: series that are neighbours by id share the memory of their records.
func TestRecords(t *testing.T) {
	h := New(0)
	for _, c := range []struct {
		id   model.SeriesNumber
		want int64
	}{{3, 64}, {63, 64}, {64, 128}, {1 << 30, 192}, {1, 192}} {
		write(h, c.id, sample{MS: 1})
		if got := h.Records(); got != c.want {
			t.Errorf("with series %d: %d records, want %d", c.id, got, c.want)
		}
	}
}

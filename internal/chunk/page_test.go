package chunk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"varve/internal/model"
)

// mantissaBits returns m/10^exponent as the bits of a double.
func mantissaBits(m int64, exponent int) uint64 {
	return math.Float64bits(scaled(m, exponent))
}

// added is a chunk as it was given to a PageBuilder.
type added struct {
	series model.SeriesNumber
	kind   model.Kind
	c      *model.Columns
}

// randomPage adds random chunks, some with times of earlier ones.
func randomPage(rng *rand.Rand, b *PageBuilder, entries int) []added {
	var all []added
	series := model.SeriesNumber(rng.Uint32N(1 << rng.IntN(31)))
	for len(all) < entries {
		kind := kinds[rng.IntN(len(kinds))]
		c := randomColumns(rng, kind, 1+rng.IntN(1+1<<rng.IntN(9)))
		if len(all) > 0 && rng.IntN(2) == 0 {
			n := c.Len()
			c.Times = all[max(0, len(all)-1-rng.IntN(12))].c.Times
			if c.Len() > n {
				c.Times = c.Times[:n]
			}
			cut := samplesOf(kind, c, 0, c.Len())
			if len(c.TTLs) == 0 {
				cut.TTLs = nil
			}
			c = cut
		}
		series += model.SeriesNumber(rng.Uint32N(5))
		if n := len(all); n > 0 && all[n-1].series == series && all[n-1].c.Times[all[n-1].c.Len()-1] >= c.Times[0] {
			series++
		}
		b.Add(series, kind, c, 0, c.Len())
		all = append(all, added{series, kind, c})
	}
	return all
}

func TestPageRoundTrip(t *testing.T) {
	var b PageBuilder
	var d Decoder
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 7))
		b.Reset(Level(seed % 2))
		all := randomPage(rng, &b, 1+rng.IntN(40))
		if b.Entries() != len(all) {
			t.Fatalf("%d entries, want %d", b.Entries(), len(all))
		}
		size := b.Size()
		page := b.Finish([]byte("before"))[len("before"):]
		if len(page) != size {
			t.Fatalf("page of %d bytes, Size said %d", len(page), size)
		}
		p, err := OpenPage(page)
		if err != nil {
			t.Fatal(err)
		}
		var e Entry
		var entries []Entry
		it := p.Iter()
		for i := 0; it.Next(&e); i++ {
			checkEntry(t, &d, &e, all[i])
			entries = append(entries, e)
		}
		if it.Err() != nil || len(entries) != len(all) {
			t.Fatalf("seed %d: %d entries of %d, %v", seed, len(entries), len(all), it.Err())
		}
		// In any order, and onto whatever is there.
		rng.Shuffle(len(entries), func(i, j int) {
			entries[i], entries[j] = entries[j], entries[i]
			all[i], all[j] = all[j], all[i]
		})
		for i := range entries {
			checkEntry(t, &d, &entries[i], all[i])
		}
	}
}

// plainStats computes statistics as the documentation of the format words them, by
// nothing of the code under test.
func plainStats(a added) (s model.Stats, ok bool) {
	n := a.c.Len()
	floats := make([]float64, n)
	for i, v := range a.c.Values[:n] {
		floats[i] = math.Float64frombits(v)
		if a.kind == model.Long {
			floats[i] = float64(int64(v))
		}
		if math.IsNaN(floats[i]) {
			return model.Stats{}, false
		}
		s.Sum += floats[i]
	}
	s.Count, s.FirstMS, s.LastMS = n, a.c.Times[0], a.c.Times[n-1]
	s.First, s.Last = a.c.Values[0], a.c.Values[n-1]
	s.Min, s.Max = floats[0], floats[0] // of 0 and -0, which are equal, the first
	for _, f := range floats {
		if f < s.Min {
			s.Min = f
		}
		if f > s.Max {
			s.Max = f
		}
	}
	return s, true
}

func checkEntry(t *testing.T, d *Decoder, e *Entry, a added) {
	t.Helper()
	n := a.c.Len()
	expiry := int64(math.MinInt64)
	for i, ms := range a.c.Times {
		expiry = max(expiry, model.ExpiryMS(ms, a.c.TTL(i)))
	}
	want := Entry{
		Series: a.series, Kind: a.kind, Count: n, FirstMS: a.c.Times[0], LastMS: a.c.Times[n-1],
		HasTTL:      slices.ContainsFunc(a.c.TTLs, func(ttl uint32) bool { return ttl > 0 }),
		MaxExpiryMS: expiry,
	}
	if a.kind.Fixed() && n >= 32 {
		want.Stats, want.HasStats = plainStats(a)
	}
	opts := []cmp.Option{cmpopts.IgnoreUnexported(Entry{}), cmpopts.IgnoreFields(Entry{}, "SizeBytes"),
		cmp.Transformer("bits", math.Float64bits)}
	if diff := cmp.Diff(want, *e, opts...); diff != "" {
		t.Fatalf("entry %s (-want +got):\n%s", e.CodecName(), diff)
	}
	got := samplesOf(a.kind, a.c, 0, 1) // with and without times-to-live
	if n%2 == 0 {
		got.TTLs = nil
	}
	if err := d.DecodeEntry(e, got); err != nil {
		t.Fatalf("%s: %v", e.CodecName(), err)
	}
	all := samplesOf(a.kind, a.c, 0, 1)
	if n%2 == 0 {
		all.TTLs = nil
	}
	for i := range n {
		all.AppendFrom(a.kind, a.c, i)
	}
	requireSame(t, a.kind, got, all)
}

func TestPageErrors(t *testing.T) {
	var b PageBuilder
	b.Reset(Fast)
	randomPage(rand.New(rand.NewPCG(1, 1)), &b, 5)
	page := b.Finish(nil)
	for at := range page {
		bad := slices.Clone(page)
		bad[at] ^= 0x10
		var sum *ChecksumError
		if _, err := OpenPage(bad); !errors.As(err, &sum) || sum.Expected == sum.Got {
			t.Fatalf("byte %d changed: %v", at, err)
		}
	}
	for n := range 5 {
		var format *FormatError
		if _, err := OpenPage(page[:n]); !errors.As(err, &format) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	const want = "chunk: at offset 0: page format version 9, this build reads version 1"
	if _, err := OpenPage(sealed([]byte{9, 1, 2})); err == nil || err.Error() != want {
		t.Fatalf("unknown version: %v", err)
	}
}

// sealed appends the checksum that makes b a page.
func sealed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clip(b), crc32.Checksum(b, castagnoli))
}

func TestEmptyPage(t *testing.T) {
	var b PageBuilder
	b.Reset(Fast)
	p, err := OpenPage(b.Finish(nil))
	if err != nil {
		t.Fatal(err)
	}
	it := p.Iter()
	if it.Next(new(Entry)) || it.Err() != nil {
		t.Fatal(it.Err())
	}
}

func TestAddPanics(t *testing.T) {
	c := &model.Columns{Times: []int64{1, 2}, Values: []uint64{1, 2}}
	for name, add := range map[string]func(b *PageBuilder){
		"empty":  func(b *PageBuilder) { b.Add(7, model.Long, c, 1, 1) },
		"beyond": func(b *PageBuilder) { b.Add(7, model.Long, c, 0, 3) },
		"series": func(b *PageBuilder) { b.Add(4, model.Long, c, 0, 2) },
		"times":  func(b *PageBuilder) { b.Add(5, model.Long, c, 0, 2) },
		"order": func(b *PageBuilder) {
			b.Add(7, model.Null, &model.Columns{Times: []int64{3, 3}}, 0, 2)
		},
		"kind": func(b *PageBuilder) { b.Add(7, 0, c, 0, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			var b PageBuilder
			b.Reset(Fast)
			b.Add(5, model.Long, c, 0, 2)
			add(&b)
		})
	}
}

// requireAggregates compares aggregates, and sketches if there are any, with the values as
// byte strings.
func requireAggregates(t *testing.T, got *model.Aggregates, sketches *model.Columns, values *model.Columns, needs model.StatSet) {
	t.Helper()
	if !slices.Equal(got.StartMS, values.Times) {
		t.Fatalf("times %v, want %v", got.StartMS, values.Times)
	}
	same := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }
	for i := range values.Times {
		want, err := model.ParsePlain(values.Bytes(i))
		if err != nil {
			t.Fatal(err)
		}
		a := got.At(i)
		if needs&model.StatSum != 0 && !same(a.Sum, want.Sum) || needs&model.StatMin != 0 && !same(a.Min, want.Min) ||
			needs&model.StatMax != 0 && !same(a.Max, want.Max) || needs&model.StatLast != 0 && !same(a.Last, want.Last) ||
			a.Count != want.Count || a.LastMS != want.LastMS {
			t.Fatalf("aggregate %d is %+v, want %+v of it and %06b", i, a, want, needs)
		}
		if sketches != nil && !bytes.Equal(sketches.Bytes(i), values.Bytes(i)[model.AggregateSize:]) {
			t.Fatalf("sketch %d: %x, want %x", i, sketches.Bytes(i), values.Bytes(i)[model.AggregateSize:])
		}
	}
}

// TestDecodeAggregates decodes columns of random aggregates, whatever is needed of them, as
// the byte strings say that they are. Those that are no aggregates are an error.
func TestDecodeAggregates(t *testing.T) {
	var d Decoder
	var got model.Aggregates
	var sketches model.Columns
	whole, odd := 0, 0
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 12))
		c := randomColumns(rng, model.AggregateKind, 1+rng.IntN(1<<rng.IntN(11)))
		valid := true
		for i := range c.Len() {
			a, err := model.ParsePlain(c.Bytes(i))
			valid = valid && err == nil && a.Count >= 0
		}
		var b PageBuilder
		b.Reset(Level(seed % 2))
		b.Add(3, model.AggregateKind, c, 0, c.Len())
		p, err := OpenPage(b.Finish(nil))
		if err != nil {
			t.Fatal(err)
		}
		var e Entry
		for it := p.Iter(); it.Next(&e); {
			needs := model.StatSet(rng.IntN(int(model.AllStats) + 1))
			into := &sketches
			if seed%3 == 0 {
				into = nil
			}
			if err := d.DecodeAggregates(&e, needs, &got, into); (err == nil) != valid {
				t.Fatalf("seed %d: %v, want an error: %v", seed, err, !valid)
			}
			if !valid {
				odd++
				continue
			}
			whole++
			requireAggregates(t, &got, into, c, needs)
		}
	}
	if whole < 100 || odd < 10 {
		t.Errorf("%d columns of aggregates, %d of others", whole, odd)
	}
}

// FuzzOpenPage seals arbitrary bytes with a valid checksum.
func FuzzOpenPage(f *testing.F) {
	var b PageBuilder
	for seed := range uint64(12) {
		b.Reset(Best)
		randomPage(rand.New(rand.NewPCG(seed, 8)), &b, 1+int(seed))
		page := b.Finish(nil)
		f.Add(page[:len(page)-checksumSize])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := OpenPage(sealed(body))
		if err != nil {
			return
		}
		var d Decoder
		var e Entry
		var dst model.Columns
		total := 0
		for it := p.Iter(); it.Next(&e) && total < 1<<18; total += e.Count {
			dst.Reset()
			broken := d.DecodeEntry(&e, &dst) != nil
			if e.Kind.Fixed() {
				cut := Cut{Range: model.AllTime, Final: spans(1000), Needs: model.AllStats}
				if runs, err := d.ReduceEntry(&e, &cut, nil); (err != nil) != broken || err != nil && len(runs) > 0 {
					t.Fatalf("reduced to %d runs, %v; decoding failed: %v", len(runs), err, broken)
				}
			}
			for _, needs := range []model.StatSet{model.AllStats, model.StatSum, 0} {
				var some model.Aggregates
				err := d.DecodeAggregates(&e, needs, &some, nil)
				if err == nil && e.Kind != model.AggregateKind || err != nil && some.Len() > 0 {
					t.Fatalf("%d aggregates of kind %d, %v", some.Len(), e.Kind, err)
				}
				if err == nil && !broken {
					requireAggregates(t, &some, nil, &dst, needs)
				}
			}
			if broken {
				continue
			}
			checkShape(t, e.Kind, &dst)
			if dst.Len() != e.Count || dst.Times[0] != e.FirstMS || dst.Times[e.Count-1] != e.LastMS {
				t.Fatalf("entry says %d samples %d..%d, decoded %d", e.Count, e.FirstMS, e.LastMS, dst.Len())
			}
			e.CodecName()
		}
	})
}

// An iterator that wants later series goes past the statistics of others, and reads
// the same entries from there on.
func TestIterWant(t *testing.T) {
	var b PageBuilder
	for seed := range uint64(200) {
		b.Reset(Level(seed % 2))
		randomPage(rand.New(rand.NewPCG(seed, 9)), &b, 1+int(seed%20))
		p, err := OpenPage(b.Finish(nil))
		if err != nil {
			t.Fatal(err)
		}
		var want, got Entry
		all, some := p.Iter(), p.Iter()
		for all.Next(&want) {
			wanted := want.Series + model.SeriesNumber(seed%3)
			some.Want(wanted)
			if !some.Next(&got) {
				t.Fatal("an entry is missing:", some.Err())
			}
			if want.Series < wanted {
				want.HasStats, want.Stats = false, model.Stats{}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) { // which tells NaN as the same
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
		if some.Next(&got) || some.Err() != nil {
			t.Fatal("an entry too many, or", some.Err())
		}
	}
}

// An iterator that an index moves ahead finds all entries of the series that it is
// moved to, and reads the same from there on as one that walks.
func TestIndex(t *testing.T) {
	var b PageBuilder
	moves := 0
	for seed := range uint64(100) {
		b.Reset(Level(seed % 2))
		all := randomPage(rand.New(rand.NewPCG(seed, 11)), &b, 1+int(seed))
		p, err := OpenPage(b.Finish(nil))
		if err != nil {
			t.Fatal(err)
		}
		x := p.Index()
		var walked []Entry
		var e Entry
		for it := p.Iter(); it.Next(&e); {
			walked = append(walked, e)
		}
		last := all[len(all)-1].series
		for series := all[0].series; series <= last+1; series++ {
			for ahead := range min(len(walked), 12) {
				it, at := p.Iter(), ahead
				for range ahead {
					it.Next(&e)
				}
				if it.Seek(x, series) {
					moves++
					for at = ahead; at < len(walked) && walked[at].end <= it.r.pos; {
						at++
					}
					if at == ahead || walked[at-1].Series >= series {
						t.Fatalf("seed %d: moved from entry %d to %d for series %d", seed, ahead, at, series)
					}
				}
				for ; it.Next(&e); at++ {
					if e.body != walked[at].body || e.times != walked[at].times || e.Series != walked[at].Series ||
						e.Kind != walked[at].Kind || e.ttl != walked[at].ttl || e.MaxExpiryMS != walked[at].MaxExpiryMS {
						t.Fatalf("seed %d: entry %d differs: series %d, want %d", seed, at, e.Series, walked[at].Series)
					}
					if e.Series > series+1 {
						break
					}
				}
				if it.Err() != nil {
					t.Fatal(it.Err())
				}
			}
		}
	}
	if moves == 0 {
		t.Error("no iterator was moved")
	}
}

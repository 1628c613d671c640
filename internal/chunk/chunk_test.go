package chunk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"varve/internal/model"
)

// samplesOf returns the samples [from,to) of c in a form that compares well:
// absent times-to-live are zeros.
func samplesOf(kind model.Kind, c *model.Columns, from, to int) *model.Columns {
	out := &model.Columns{}
	ttls := make([]uint32, 0, to-from)
	for i := from; i < to; i++ {
		out.AppendFrom(kind, c, i)
		ttls = append(ttls, c.TTL(i))
	}
	out.TTLs = ttls
	return out
}

func requireSame(t interface{ Fatalf(string, ...any) }, kind model.Kind, got, want *model.Columns) {
	if got.Len() != want.Len() {
		t.Fatalf("%d samples, want %d", got.Len(), want.Len())
	}
	if len(got.TTLs) != 0 && len(got.TTLs) != got.Len() {
		t.Fatalf("%d times-to-live for %d samples", len(got.TTLs), got.Len())
	}
	g, w := samplesOf(kind, got, 0, got.Len()), samplesOf(kind, want, 0, want.Len())
	if slices.Equal(g.Times, w.Times) && slices.Equal(g.Values, w.Values) && slices.Equal(g.TTLs, w.TTLs) &&
		slices.Equal(g.Offsets, w.Offsets) && bytes.Equal(g.Data, w.Data) {
		return
	}
	t.Fatalf("samples differ (-want +got):\n%s", cmp.Diff(w, g))
}

// TestRoundTrip encodes random columns of every kind, in a row into one
// buffer, and decodes them into one destination.
func TestRoundTrip(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	var d Decoder
	for _, kind := range kinds {
		for _, level := range []Level{Fast, Best} {
			t.Run(fmt.Sprintf("%s/level=%d", kind, level), func(t *testing.T) {
				for seed := range uint64(rounds) {
					rng := rand.New(rand.NewPCG(seed, uint64(kind)))
					roundTrip(t, rng, &d, kind, level)
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
				}
			})
		}
	}
}

func roundTrip(t *testing.T, rng *rand.Rand, d *Decoder, kind model.Kind, level Level) {
	var want, got model.Columns
	var enc []byte
	chunks := 1 + rng.IntN(4)
	for range chunks {
		n := 1 + rng.IntN(1+rng.IntN(1+1<<rng.IntN(12)))
		c := randomColumns(rng, kind, n)
		from := rng.IntN(n)
		to := from + 1 + rng.IntN(n-from)
		enc = Append(enc, kind, c, from, to, level)
		for i := from; i < to; i++ {
			want.AppendFrom(kind, c, i)
		}
	}
	rest := enc[:len(enc):len(enc)]
	for range chunks {
		var err error
		if rest, err = d.Decode(rest, kind, &got); err != nil {
			t.Fatal(err)
		}
	}
	if len(rest) != 0 {
		t.Fatalf("%d bytes left", len(rest))
	}
	requireSame(t, kind, &got, &want)
}

// TestRoundTripRapid is TestRoundTrip with values that shrink.
func TestRoundTripRapid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]model.Kind{model.Long, model.Double}).Draw(t, "kind")
		level := rapid.SampledFrom([]Level{Fast, Best}).Draw(t, "level")
		gaps := rapid.SliceOfN(rapid.Int64Range(1, 1<<40), 1, 200).Draw(t, "gaps")
		c := &model.Columns{}
		at := rapid.Int64Range(-1<<40, 1<<40).Draw(t, "start")
		word := rapid.OneOf(
			rapid.Uint64(),
			rapid.Uint64Range(0, 200),
			rapid.SampledFrom(oddDoubles),
			rapid.Map(rapid.Int64Range(-1000, 1000), func(v int64) uint64 { return mantissaBits(v, 2) }),
		)
		for _, gap := range gaps {
			at += gap
			c.AppendFixed(at, word.Draw(t, "value"), rapid.SampledFrom([]uint32{0, 0, 0, 60}).Draw(t, "ttl"))
		}
		var d Decoder
		var got model.Columns
		if _, err := d.Decode(Append(nil, kind, c, 0, c.Len(), level), kind, &got); err != nil {
			t.Fatalf("decode: %v", err)
		}
		requireSame(t, kind, &got, c)
	})
}

func TestLargestChunk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, kind := range kinds {
		c := randomColumns(rng, kind, MaxSamples)
		for _, level := range []Level{Fast, Best} {
			var d Decoder
			var got model.Columns
			if _, err := d.Decode(Append(nil, kind, c, 0, MaxSamples, level), kind, &got); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			requireSame(t, kind, &got, c)
		}
	}
}

// TestLargeValues goes up to and over the bound for values that grow.
func TestLargeValues(t *testing.T) {
	for _, size := range []int{MaxExpandedBytes, MaxExpandedBytes + 2} {
		for _, distinct := range []bool{false, true} {
			c := &model.Columns{}
			value := bytes.Repeat([]byte("0123456789abcdef"), size/2/16+1)[:size/2]
			c.AppendBytes(1, value, 0)
			if distinct {
				value[0] = 'x'
			}
			c.AppendBytes(2, value, 0)
			enc := Append(nil, model.String, c, 0, 2, Best)
			if (len(enc) < size/100) != (size <= MaxExpandedBytes) {
				t.Errorf("%d bytes of values in %d", size, len(enc))
			}
			var d Decoder
			var got model.Columns
			if _, err := d.Decode(enc, model.String, &got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Data, c.Data) {
				t.Error("values differ")
			}
		}
	}
}

// TestDecodeTruncated cuts chunks at every length: an error, and the
// destination as it was.
func TestDecodeTruncated(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var d Decoder
	for _, kind := range kinds {
		for range 30 {
			c := randomColumns(rng, kind, 1+rng.IntN(150))
			enc := Append(nil, kind, c, 0, c.Len(), Best)
			dst := randomColumns(rng, kind, 3)
			want := samplesOf(kind, dst, 0, 3)
			for n := range enc {
				_, err := d.Decode(enc[:n:n], kind, dst)
				var format *FormatError
				if !errors.As(err, &format) || format.Offset > n {
					t.Fatalf("%s cut to %d of %d bytes: %v", kind, n, len(enc), err)
				}
				requireSame(t, kind, dst, want)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, kind := range kinds {
		for _, n := range []int{1, 2, 3, 20, 300} {
			c := randomColumns(rng, kind, n)
			f.Add(Append(nil, kind, c, 0, n, Best), uint8(kind))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, k uint8) {
		kind := model.Kind(k)
		var d Decoder
		var dst model.Columns
		for len(b) > 0 {
			before := dst.Len()
			rest, err := d.Decode(b, kind, &dst)
			if err != nil {
				if dst.Len() != before {
					t.Fatal("samples appended despite an error")
				}
				return
			}
			if dst.Len() == before || len(rest) >= len(b) {
				t.Fatal("an empty chunk")
			}
			checkShape(t, kind, &dst)
			if b = rest; dst.Len() > 1<<18 || len(dst.Data) > 1<<25 {
				return
			}
		}
	})
}

// checkShape verifies that columns are as long as they must be.
func checkShape(t *testing.T, kind model.Kind, c *model.Columns) {
	n := c.Len()
	fixed, offsets := 0, 0
	if kind.Fixed() {
		fixed = n
	} else if kind.Variable() {
		offsets = n + 1
		if int(c.Offsets[n]) != len(c.Data) {
			t.Fatalf("offsets end at %d of %d bytes", c.Offsets[n], len(c.Data))
		}
	}
	if len(c.Values) != fixed || len(c.Offsets) != offsets || len(c.TTLs) != 0 && len(c.TTLs) != n {
		t.Fatalf("%d times, %d values, %d offsets, %d times-to-live", n, len(c.Values), len(c.Offsets), len(c.TTLs))
	}
}

// FuzzRoundTrip lets the fuzzer choose what random columns are made of.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(0))
	f.Fuzz(func(t *testing.T, a, b uint64, level uint8) {
		rng := rand.New(rand.NewPCG(a, b))
		var d Decoder
		roundTrip(t, rng, &d, kinds[rng.IntN(len(kinds))], Level(level%2))
	})
}

package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"varve/internal/model"
	"varve/internal/store"
)

var update = flag.Bool("update", false, "write the golden records again; only with a new record type")

// kindOf gives each series of the tests its kind: 1 long, 2 double, 3 string,
// 4 complex, 5 null, 6 custom, 7 long ... Series 0 is unknown.
func kindOf(id model.SeriesNumber) model.Kind {
	if id == 0 {
		return 0
	}
	return model.Kind((id-1)%6 + 1)
}

func kindsOf(b *store.Batch) (kinds []model.Kind) {
	for _, s := range b.Samples {
		kinds = append(kinds, kindOf(model.SeriesNumber(s.Ref)))
	}
	return kinds
}

// text renders the samples of a batch, each with all of its bits.
func text(b *store.Batch) string {
	var out strings.Builder
	for _, s := range b.Samples {
		kind := kindOf(model.SeriesNumber(s.Ref))
		fmt.Fprintf(&out, "series %d %s at %d ttl %d:", s.Ref, kind, s.TimeMS, s.TTL)
		switch {
		case kind == model.Long:
			fmt.Fprintf(&out, " %d", int64(s.Value))
		case kind == model.Double:
			fmt.Fprintf(&out, " %v (%016x)", math.Float64frombits(s.Value), s.Value)
		case kind.Variable():
			fmt.Fprintf(&out, " %q", b.Bytes(s))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func add(b *store.Batch, id model.SeriesNumber, ms int64, value any, ttl uint32) {
	r := store.Ref(id)
	switch v := value.(type) {
	case int64:
		b.AddLong(r, ms, v, ttl)
	case float64:
		b.AddDouble(r, ms, v, ttl)
	case string:
		b.AddBytes(r, ms, []byte(v), ttl)
	case nil:
		b.AddNull(r, ms, ttl)
	}
}

var doubles = rapid.OneOf(
	rapid.Custom(func(t *rapid.T) float64 {
		places := rapid.IntRange(0, 7).Draw(t, "places")
		return float64(rapid.Int64Range(-1<<54, 1<<54).Draw(t, "digits")) / math.Pow10(places)
	}),
	rapid.Custom(func(t *rapid.T) float64 { return math.Float64frombits(rapid.Uint64().Draw(t, "bits")) }),
	rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Float64frombits(0x7ff0000000000001),
		math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 53, 1<<53 - 1, 0.1, 1.05, 4e15 + 0.5}),
)

var longs = rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, 1, -1, 63, -64, 127, -128, math.MinInt64, math.MaxInt64}))

var times = rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64(), rapid.SampledFrom([]int64{0, math.MinInt64, math.MaxInt64}))

var batches = rapid.Custom(func(t *rapid.T) *store.Batch {
	b := &store.Batch{}
	ms := int64(0)
	for range rapid.IntRange(0, 60).Draw(t, "samples") {
		id := model.SeriesNumber(rapid.OneOf(rapid.Uint32Range(1, 12), rapid.Uint32Range(1, math.MaxUint32)).Draw(t, "id"))
		if rapid.Bool().Draw(t, "move") {
			ms = times.Draw(t, "ms")
		}
		ttl := rapid.SampledFrom([]uint32{0, 0, 0, 1, model.MaxTTL, math.MaxUint32}).Draw(t, "ttl")
		var value any
		switch kind := kindOf(id); {
		case kind == model.Long:
			value = longs.Draw(t, "long")
		case kind == model.Double:
			value = doubles.Draw(t, "double")
		case kind.Variable():
			value = string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"))
		}
		add(b, id, ms, value, ttl)
	}
	return b
})

var definitions = rapid.SliceOf(rapid.Custom(func(t *rapid.T) Definition {
	return Definition{model.SeriesNumber(rapid.Uint32().Draw(t, "id")), rapid.String().Draw(t, "key")}
}))

// TestRoundTrip reads back what was written, behind bytes that were there.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		defs, b := definitions.Draw(t, "definitions"), batches.Draw(t, "batch")
		front := []byte("front")
		enc := AppendSamples(AppendDefinitions(front, defs), b, kindsOf(b))
		if !bytes.HasPrefix(enc, front) {
			t.Fatalf("front is gone: %q", enc)
		}
		var gotDefs []Definition
		rest, err := Definitions(enc[len(front):], func(d Definition) error {
			gotDefs = append(gotDefs, d)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(append([]Definition(nil), defs...), gotDefs); d != "" {
			t.Fatal(d)
		}
		got := &store.Batch{}
		add(got, 3, 5, "was there", 0)
		if err := Samples(rest, kindOf, got); err != nil {
			t.Fatal(err)
		}
		got.Samples = got.Samples[1:]
		if d := cmp.Diff(text(b), text(got)); d != "" {
			t.Fatalf("%x: %s", rest, d)
		}
	})
}

// TestCutOff cuts a record at every length, and prolongs it.
func TestCutOff(t *testing.T) {
	b := goldenBatch()
	enc := AppendSamples(nil, b, kindsOf(b))
	for n := range enc {
		if err := Samples(enc[:n], kindOf, &store.Batch{}); !errors.Is(err, errCutOff) {
			t.Errorf("%d of %d bytes: %v", n, len(enc), err)
		}
	}
	if err := Samples(append(enc, 0), kindOf, &store.Batch{}); err == nil {
		t.Error("a byte after the end is taken")
	}
	enc = AppendDefinitions(nil, goldenDefinitions)
	for n := range enc {
		_, err := Definitions(enc[:n], func(Definition) error { return nil })
		if !errors.Is(err, errCutOff) {
			t.Errorf("%d of %d bytes of definitions: %v", n, len(enc), err)
		}
	}
	enc = goldenDeletion(t)
	for n := range enc {
		if d, err := ParseDeletion(enc[:n]); err == nil {
			t.Errorf("%d of %d bytes of a deletion: %v", n, len(enc), d)
		}
	}
	if _, err := ParseDeletion(append(enc, 0)); err == nil {
		t.Error("a byte after the end of a deletion is taken")
	}
}

// TestControlBytes tries every control byte with every kind: what no encoder
// writes is refused with the byte and the kind in the message.
func TestControlBytes(t *testing.T) {
	for control := range 256 {
		for id := model.SeriesNumber(1); id <= 6; id++ {
			exponent, length := control>>4&7, control&15
			var ok bool
			switch kind := kindOf(id); {
			case kind == model.Long:
				ok = length <= 8 && exponent == 0
			case kind == model.Double:
				ok = length <= 8 && exponent <= 6 || length == 8 && exponent == 7
			case kind.Variable():
				ok = length == lengthBytes && exponent == 0
			default:
				ok = length == lengthNull && exponent == 0
			}
			rec := []byte{1, byte(control), byte(id * 2)}
			if control&sameTime == 0 {
				rec = append(rec, 0)
			}
			switch {
			case length <= 8:
				rec = append(rec, make([]byte, length)...)
			case length == lengthBytes:
				rec = append(rec, 1, 'x')
			}
			err := Samples(rec, kindOf, &store.Batch{})
			if control == lengthTTL {
				continue
			}
			if ok != (err == nil) {
				t.Errorf("control %#02x, %s: %v", control, kindOf(id), err)
			}
			if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("control byte %#02x", control)) {
				t.Errorf("control %#02x, %s: unclear: %v", control, kindOf(id), err)
			}
		}
	}
}

func TestHostileSamples(t *testing.T) {
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	tooLong := bytes.Repeat([]byte{0xff}, 11)
	for _, c := range []struct {
		name string
		rec  []byte
		want string
	}{
		{"empty", nil, "cut off"},
		{"more samples than bytes", huge, "cut off"},
		{"a count of more than 64 bits", tooLong, "64 bits"},
		{"a value longer than the record", append([]byte{1, lengthBytes, 6, 0}, huge...), "cut off"},
		{"unknown series", []byte{1, 0, 0, 0}, "sample of unknown series 0"},
		{"negative series", []byte{1, 0, 1, 0}, "series id -1"},
		{"series beyond 32 bits", append(append([]byte{1, 0}, binary.AppendVarint(nil, 1<<32)...), 0), "series id 4294967296"},
		{"time-to-live beyond 32 bits", append([]byte{1, lengthTTL}, binary.AppendUvarint(nil, 1<<32)...), "time-to-live of 4294967296 s"},
		{"only times-to-live", bytes.Repeat([]byte{lengthTTL, 1}, 100)[1:], "cut off"},
	} {
		b := &store.Batch{}
		err := Samples(c.rec, kindOf, b)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "record: ") || len(b.Samples) > 0 {
			t.Errorf("%s: %v, %d samples", c.name, err, len(b.Samples))
		}
	}
}

func TestHostileDefinitions(t *testing.T) {
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	for _, c := range []struct {
		name string
		rec  []byte
		want string
	}{
		{"empty", nil, "cut off"},
		{"more series than bytes", huge, "cut off"},
		{"a key longer than the record", append([]byte{1, 1}, huge...), "cut off"},
		{"an id beyond 32 bits", append(append([]byte{1}, huge...), 0), "series id 18446744073709551615"},
	} {
		rest, err := Definitions(c.rec, func(d Definition) error { return fmt.Errorf("called with %v", d) })
		if err == nil || !strings.Contains(err.Error(), c.want) || rest != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	stop := errors.New("stop")
	calls := 0
	_, err := Definitions(AppendDefinitions(nil, goldenDefinitions), func(Definition) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestDeletionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := roaring.New()
		for range rapid.IntRange(0, 5).Draw(t, "parts") {
			from := rapid.Uint64Range(0, 1<<32).Draw(t, "from")
			ids.AddRange(from, min(1<<32, from+rapid.Uint64Range(0, 100_000).Draw(t, "n")))
			ids.AddMany(rapid.SliceOf(rapid.Uint32()).Draw(t, "ids"))
		}
		if rapid.Bool().Draw(t, "optimize") {
			ids.RunOptimize()
		}
		d := Deletion{rapid.Uint64().Draw(t, "sequence"), model.TimeRange{StartMS: times.Draw(t, "start"), EndMS: times.Draw(t, "end")}, ids}
		enc, err := AppendDeletion(nil, d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseDeletion(enc)
		if err != nil {
			t.Fatal(err)
		}
		if got.Sequence != d.Sequence || got.Range != d.Range || !got.IDs.Equals(ids) {
			t.Fatalf("got %v, want %v", got, d)
		}
		clear(enc)
		if !got.IDs.Equals(ids) {
			t.Fatal("the deletion shares memory with the record")
		}
	})
}

// TestScalerRests holds the encoder to a bounded effort for doubles that have
// no short decimal, and to a short form soon after they end.
func TestScalerRests(t *testing.T) {
	var s scaler
	for i := range 100 {
		if _, e := s.scale(math.Float64bits(math.Pi * float64(i+1))); e != exponentRaw {
			t.Fatalf("pi * %d scaled by %d", i+1, e)
		}
	}
	for i := range restBetween + 1 {
		if m, e := s.scale(math.Float64bits(1.25)); e != exponentRaw {
			if m != 125 || e != 2 {
				t.Fatalf("1.25 became %d / 10^%d", m, e)
			}
			return
		}
		if i == restBetween {
			t.Error("1.25 was never tried")
		}
	}
}

var goldenDefinitions = []Definition{{1, "\x01\x04load\x04host\x01a"}, {math.MaxUint32, "key"}, {300, ""}}

func goldenBatch() *store.Batch {
	b := &store.Batch{}
	const ms = 1_700_000_000_000
	for i, v := range []any{int64(0), 12.34, "text", "0123456789abcdef", nil, "\x00\xff"} {
		add(b, model.SeriesNumber(i+1), ms, v, 0)
	}
	for _, v := range []int64{1, -1, 127, 128, -32768, 1 << 40, math.MinInt64, math.MaxInt64} {
		add(b, 7, ms+10_000, v, 0)
	}
	for _, v := range []float64{0, math.Copysign(0, -1), 1, -1.5, 0.000001, 1e15, 1e300, math.Pi, math.NaN(), math.Inf(-1)} {
		add(b, 8, ms+20_000, v, 60)
	}
	add(b, 9, math.MinInt64, "", model.MaxTTL)
	add(b, 5, math.MaxInt64, nil, 0)
	add(b, math.MaxUint32-1, 0, 5e-324, 0)
	return b
}

func goldenDeletion(t testing.TB) []byte {
	ids := roaring.BitmapOf(1, 2, 300, 70_000, math.MaxUint32)
	ids.AddRange(200_000, 270_000)
	ids.RunOptimize()
	enc, err := AppendDeletion(nil, Deletion{7, model.TimeRange{StartMS: -5, EndMS: math.MaxInt64}, ids})
	if err != nil {
		t.Fatal(err)
	}
	return enc
}

// TestDocumentedExample holds docs/formats/log-records.md to its example.
func TestDocumentedExample(t *testing.T) {
	series := model.Series{Metric: "load", Tags: model.MustTags("host", "a"), Type: model.TypeDouble}
	b := &store.Batch{}
	b.AddDouble(1, 1_700_000_000_000, 12.34, 0)
	b.AddDouble(1, 1_700_000_010_000, 12.5, 0)
	enc := AppendDefinitions(nil, []Definition{{1, string(series.AppendKey(nil))}})
	enc = AppendSamples(enc, b, []model.Kind{model.Double, model.Double})
	const want = "01" + "010d" + "02046c6f616404686f73740161" + "02" + "220280a0abfef962a409" + "2200a09c01c409"
	if got := hex.EncodeToString(enc); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestGolden reads records that earlier builds wrote, and writes them the same.
func TestGolden(t *testing.T) {
	b := goldenBatch()
	batch := AppendSamples(AppendDefinitions(nil, goldenDefinitions), b, kindsOf(b))
	deletion := goldenDeletion(t)
	golden(t, "batch", batch, func(rec []byte) string {
		var out strings.Builder
		rest, err := Definitions(rec, func(d Definition) error {
			fmt.Fprintf(&out, "define %d as %q\n", d.ID, d.Key)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b := &store.Batch{}
		if err := Samples(rest, kindOf, b); err != nil {
			t.Fatal(err)
		}
		return out.String() + text(b)
	})
	golden(t, "deletion", deletion, func(rec []byte) string {
		d, err := ParseDeletion(rec)
		if err != nil {
			t.Fatal(err)
		}
		out := fmt.Sprintf("sequence %d, %d to %d\n%d series:", d.Sequence, d.Range.StartMS, d.Range.EndMS, d.IDs.GetCardinality())
		for first, last := range d.IDs.Ranges() {
			out += fmt.Sprintf(" %d-%d", first, last-1)
		}
		return out + "\n"
	})
}

func golden(t *testing.T, name string, enc []byte, dump func([]byte) string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path+".hex", []byte(hex.Dump(enc)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".txt", []byte(dump(enc)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), hex.Dump(enc)); d != "" {
		t.Errorf("bytes of %s: %s", name, d)
	}
	wantText, err := os.ReadFile(path + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(wantText), dump(undump(t, string(want)))); d != "" {
		t.Errorf("meaning of %s: %s", name, d)
	}
}

// undump is the inverse of hex.Dump.
func undump(t *testing.T, s string) (out []byte) {
	for line := range strings.Lines(s) {
		if len(line) < 60 {
			t.Fatalf("line %q of a dump", line)
		}
		b, err := hex.DecodeString(strings.ReplaceAll(line[8:58], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// A record takes at least one definition, and no more than make it large.
func TestFit(t *testing.T) {
	keys := func(sizes ...int) (defs []Definition) {
		for i, n := range sizes {
			defs = append(defs, Definition{model.SeriesNumber(i), strings.Repeat("k", n)})
		}
		return defs
	}
	for _, test := range []struct {
		defs []Definition
		want int
	}{
		{nil, 0}, {keys(5), 1}, {keys(2 << 20), 1}, {keys(2<<20, 5), 1}, {keys(5, 2<<20, 5), 1},
		{keys(500_000, 500_000, 5), 3}, {keys(500_000, 500_000, 500_000, 5), 2},
	} {
		n := Fit(test.defs)
		if n != test.want {
			t.Errorf("%d of %d definitions fit, want %d", n, len(test.defs), test.want)
		}
	}
}

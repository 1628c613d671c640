package model

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// sampleText is one sample of c, with all that it has.
func sampleText(kind Kind, c *Columns, i int) string {
	text := fmt.Sprintf("%d ttl %d", c.Times[i], c.TTL(i))
	switch {
	case kind.Fixed():
		text += fmt.Sprintf(" value %d", c.Values[i])
	case kind.Variable():
		text += fmt.Sprintf(" value %q", c.Bytes(i))
	}
	if len(c.Stamps) > 0 {
		text += fmt.Sprintf(" stamp %d", c.Stamps[i])
	}
	return text
}

func samplesText(kind Kind, c *Columns) (all []string) {
	for i := range c.Times {
		all = append(all, sampleText(kind, c, i))
	}
	return all
}

// randomColumns has up to 20 ascending samples, some with a time-to-live.
func randomColumns(rng *rand.Rand, kind Kind, stamped bool) *Columns {
	c := &Columns{}
	ttls := rng.IntN(2) == 0
	for ms := range int64(rng.IntN(20)) {
		ttl := uint32(0)
		if ttls {
			ttl = uint32(rng.IntN(3))
		}
		switch {
		case kind.Fixed():
			c.AppendFixed(ms*10, rng.Uint64(), ttl)
		case kind.Variable():
			c.AppendBytes(ms*10, []byte("value"[:rng.IntN(6)]), ttl)
		default:
			c.AppendNull(ms*10, ttl)
		}
		if stamped {
			c.Stamps = append(c.Stamps, rng.Int64())
		}
	}
	return c
}

// TestColumnOperations compares operations on whole columns with the same ones sample by
// sample, for all kinds, with and without times-to-live and stamps.
func TestColumnOperations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 4000 {
		kind := Kind(1 + round%7)
		stamped := rng.IntN(2) == 0
		c, other, spare := randomColumns(rng, kind, stamped), randomColumns(rng, kind, stamped), *randomColumns(rng, kind, stamped)
		all := samplesText(kind, c)
		same := func(what string, got *Columns, want []string) {
			t.Helper()
			if text := samplesText(kind, got); !slices.Equal(text, want) {
				t.Fatalf("round %d, %s, %s: got %q, want %q", round, kind, what, text, want)
			}
		}
		from := rng.IntN(c.Len() + 1)
		to := from + rng.IntN(c.Len()-from+1)
		part := c.Slice(from, to)
		same("slice", &part, all[from:to])

		r := TimeRange{StartMS: rng.Int64N(220) - 10, EndMS: rng.Int64N(220) - 10}
		within := c.Slice(c.Within(r))
		var in []string
		for i, ms := range c.Times {
			if r.Contains(ms) {
				in = append(in, all[i])
			}
		}
		same("within", &within, in)

		appended := &Columns{}
		appended.Append(other, 0, other.Len())
		appended.Append(&part, 0, part.Len())
		same("append", appended, append(samplesText(kind, other), all[from:to]...))
		if stamped && appended.Len() != len(appended.Stamps) {
			t.Fatalf("round %d: %d samples, %d stamps", round, appended.Len(), len(appended.Stamps))
		}

		bits := rng.Uint64()
		drop := func(i int) bool { return bits>>i&1 == 1 }
		var kept []string
		for i := range all {
			if !drop(i) {
				kept = append(kept, all[i])
			}
		}
		dropped := &Columns{}
		dropped.Append(c, 0, c.Len())
		dropped.Drop(&spare, drop)
		same("drop", dropped, kept)

		nowMS := rng.Int64N(3000)
		kept = nil
		for i, ms := range c.Times {
			if ExpiryMS(ms, c.TTL(i)) > nowMS {
				kept = append(kept, all[i])
			}
		}
		alive := &Columns{}
		alive.Append(c, 0, c.Len())
		alive.DropExpired(&spare, nowMS)
		same("drop expired", alive, kept)

		slices.Reverse(all)
		c.Reverse(&spare)
		same("reverse", c, all)
		if kind == Null && (len(c.Values) > 0 || len(c.Offsets) > 0) {
			t.Fatalf("a null has values: %+v", c)
		}
	}
}

// TestSorter: samples come into order, and of those at one time the last one stays.
func TestSorter(t *testing.T) {
	var s Sorter
	var c Columns
	for _, x := range []struct{ ms, value int64 }{{20, 1}, {10, 2}, {20, 3}, {30, 4}, {10, 5}} {
		c.AppendFixed(x.ms, uint64(x.value), 0)
	}
	s.Sort(Long, &c)
	if want := (Columns{Times: []int64{10, 20, 30}, Values: []uint64{5, 3, 4}}); !reflect.DeepEqual(c.Times, want.Times) || !reflect.DeepEqual(c.Values, want.Values) {
		t.Errorf("%v %v", c.Times, c.Values)
	}
}

package cassandra

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"varve/internal/model"
	"varve/internal/store"
)

// blocks is a source of blocks that are there.
type blocks struct {
	left   []store.Block
	err    error // at the end
	closed bool
	out    store.Block // overwritten by each call, as a source may
}

func (b *blocks) Next() (*store.Block, error) {
	b.out.Reset()
	if len(b.left) == 0 {
		return nil, b.err
	}
	for i := range b.left[0].Times {
		b.out.AppendFrom(model.Long, &b.left[0].Columns, i)
	}
	b.left = b.left[1:]
	return &b.out, nil
}

func (b *blocks) Close() { b.closed = true }

// blocksOf cuts samples into blocks, some of them empty.
func blocksOf(t *rapid.T, samples map[int64]int64, descending bool) *blocks {
	times := slices.Sorted(maps.Keys(samples))
	if descending {
		slices.Reverse(times)
	}
	b := &blocks{}
	for len(times) > 0 {
		n := rapid.IntRange(0, min(40, len(times))).Draw(t, "block")
		var block store.Block
		for _, ms := range times[:n] {
			block.AppendFixed(ms, uint64(samples[ms]), 0)
		}
		b.left, times = append(b.left, block), times[n:]
	}
	return b
}

func TestMergedSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		descending := rapid.Bool().Draw(t, "descending")
		m := &mergedSource{kind: model.Long, descending: descending}
		var sources []*blocks
		want := map[int64]int64{}
		for i := range rapid.IntRange(0, 4).Draw(t, "sources") {
			first := rapid.Int64Range(-50, 200).Draw(t, "first")
			samples := rapid.MapOfN(rapid.Int64Range(first, first+rapid.Int64Range(1, 300).Draw(t, "span")), rapid.Just(int64(i)), 0, 60).Draw(t, "samples")
			for ms := range samples {
				if _, hidden := want[ms]; !hidden {
					want[ms] = int64(i)
				}
			}
			b := blocksOf(t, samples, descending)
			sources = append(sources, b)
			m.inputs = append(m.inputs, &input{source: b})
		}
		broken := len(sources) > 0 && rapid.IntRange(0, 9).Draw(t, "broken") == 0
		if broken {
			sources[len(sources)-1].err = errors.New("broken")
		}
		var got, wanted []string
		var err error
		for {
			var b *store.Block
			if b, err = m.Next(); err != nil || b == nil {
				break
			}
			if b.Len() == 0 || b.Len() > blockSamples {
				t.Fatalf("a block of %d samples", b.Len())
			}
			for i, ms := range b.Times {
				got = append(got, fmt.Sprintf("%d=%d", ms, b.Values[i]))
			}
		}
		times := slices.Sorted(maps.Keys(want))
		if descending {
			slices.Reverse(times)
		}
		for _, ms := range times {
			wanted = append(wanted, fmt.Sprintf("%d=%d", ms, want[ms]))
		}
		if (err != nil) != broken {
			t.Fatalf("%v", err)
		}
		if broken { // what came before is right
			wanted = wanted[:min(len(wanted), len(got))]
		}
		if !slices.Equal(got, wanted) {
			t.Fatalf("got %v\nwant %v", got, wanted)
		}
		m.Close()
		for i, b := range sources {
			if !b.closed {
				t.Fatalf("source %d is open", i)
			}
		}
	})
}

// All samples of a series in the spool are one block. They are returned in blocks of the usual size, so
// that a reader that counts samples against a limit, or that is cancelled, ends soon.
func TestMergedSourceCutsLargeBlocks(t *testing.T) {
	const n = 10*blockSamples + 1
	var held model.Columns
	for i := range int64(n) {
		held.AppendFixed(i, uint64(i), 0)
	}
	m := &mergedSource{kind: model.Long, inputs: []*input{{source: failed{}, block: &store.Block{Columns: held}}, {source: failed{}}}}
	at := int64(0)
	for {
		b, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			break
		}
		if b.Len() > blockSamples {
			t.Errorf("a block of %d samples", b.Len())
		}
		for i, ms := range b.Times {
			if ms != at || b.Values[i] != uint64(at) {
				t.Fatalf("sample %d is %d at %d", at, b.Values[i], ms)
			}
			at++
		}
	}
	if at != n {
		t.Errorf("%d samples, want %d", at, n)
	}
}

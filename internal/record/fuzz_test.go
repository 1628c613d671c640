package record

import (
	"math"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/store"
)

// bounded fails when f allocates more than some multiple of the input: a record
// names counts and lengths, which are not to be believed.
func bounded(t *testing.T, input []byte, f func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+200*len(input)); got > most {
		t.Fatalf("%d bytes allocated for a record of %d", got, len(input))
	}
}

// FuzzBatch reads arbitrary bytes as a batch. What can be read is written and
// read again with the same result.
func FuzzBatch(f *testing.F) {
	b := goldenBatch()
	f.Add(AppendSamples(AppendDefinitions(nil, goldenDefinitions), b, kindsOf(b)))
	f.Add(AppendSamples(AppendDefinitions(nil, nil), &store.Batch{}, nil))
	f.Add([]byte{0, 1, lengthTTL, 5, sameTime | 2<<4 | 1, 4, 99})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, rec []byte) {
		var b store.Batch
		var defs []Definition
		var err error
		bounded(t, rec, func() {
			var rest []byte
			rest, err = Definitions(rec, func(d Definition) error {
				defs = append(defs, d)
				return nil
			})
			if err == nil {
				err = Samples(rest, kindOf, &b)
			}
		})
		if err != nil {
			return
		}
		again := AppendSamples(AppendDefinitions(nil, defs), &b, kindsOf(&b))
		var b2 store.Batch
		rest, err := Definitions(again, func(d Definition) error { defs = append(defs, d); return nil })
		if err == nil {
			err = Samples(rest, kindOf, &b2)
		}
		if err != nil || len(defs)%2 != 0 {
			t.Fatalf("written again as %x: %v", again, err)
		}
		if d := cmp.Diff(text(&b), text(&b2)); d != "" {
			t.Fatal(d)
		}
	})
}

// FuzzDeletion reads arbitrary bytes as a deletion.
func FuzzDeletion(f *testing.F) {
	f.Add(goldenDeletion(f))
	f.Add(make([]byte, deletionHead))
	f.Add(append(make([]byte, deletionHead), 0x3a, 0x30, 0, 0, 0xff, 0xff, 0, 0))
	f.Add(append(make([]byte, deletionHead), 0x3b, 0x30, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, rec []byte) {
		var d Deletion
		var err error
		bounded(t, rec, func() { d, err = ParseDeletion(rec) })
		if err != nil {
			return
		}
		d.IDs.Contains(math.MaxUint32)
		enc, err := AppendDeletion(nil, d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseDeletion(enc)
		if err != nil || got.Sequence != d.Sequence || got.Range != d.Range || !got.IDs.Equals(d.IDs) {
			t.Fatalf("%v after %v, %v", got, d, err)
		}
	})
}

package index

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"varve/internal/model"
)

// texts draws names that share long beginnings, hold zero bytes and lie around
// the places where the orders of UTF-8 and UTF-16 differ.
var texts = rapid.Custom(func(t *rapid.T) string {
	head := rapid.SampledFrom([]string{"", "a", "servers.dc1.host-", "\U0001f600\U0001f600", "\xf0"}).Draw(t, "head")
	return head + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "\x00", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "9", "é"}), 0, 12).Draw(t, "tail"), "")
})

func TestKeyOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		if c := model.CompareNames(a, b); c < 0 && keyOf(a) > keyOf(b) || c > 0 && keyOf(a) < keyOf(b) {
			t.Fatalf("CompareNames(%+q, %+q) = %d, keys %016x and %016x", a, b, c, keyOf(a), keyOf(b))
		}
	})
}

// TestKeyOfAnyBytes: queries may ask for texts that are not UTF-8.
func TestKeyOfAnyBytes(t *testing.T) {
	texts := []string{"\x00", "a", "\x7f"}
	for lead := 0x80; lead <= 0xff; lead++ {
		for _, next := range []byte{0x00, 'a', 0x80, 0xbf, 0xee, 0xff} {
			texts = append(texts, string([]byte{byte(lead), next}))
		}
	}
	for _, a := range texts {
		for _, b := range texts {
			if c := model.CompareNames(a, b); c < 0 && keyOf(a) > keyOf(b) || c > 0 && keyOf(a) < keyOf(b) {
				t.Fatalf("CompareNames(%+q, %+q) = %d, keys %016x and %016x", a, b, c, keyOf(a), keyOf(b))
			}
		}
	}
}

// TestDictionary compares a dictionary with a sorted slice. Each step adds or
// removes many names, so that leaves split and vanish.
func TestDictionary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d dictionary
		var want []string
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			head := texts.Draw(t, "head")
			first, step := rapid.IntRange(0, 2000).Draw(t, "first"), rapid.SampledFrom([]int{1, -1, 7, 1001}).Draw(t, "step")
			for i := range rapid.IntRange(0, 1500).Draw(t, "count") {
				name := head + decimal(first+i*step)
				place, known := slices.BinarySearchFunc(want, name, model.CompareNames)
				if !known {
					want = slices.Insert(want, place, name)
					d.add(name)
				}
			}
			for i := rapid.IntRange(0, 20).Draw(t, "first removed"); i < len(want); i += rapid.SampledFrom([]int{0, 1, 50}).Draw(t, "kept") {
				id, ok := d.find(want[i])
				if !ok {
					t.Fatalf("%q is not found", want[i])
				}
				d.remove(id)
				want = slices.Delete(want, i, i+1)
			}
			checkDictionary(t, &d, want)
		}
	})
}

func checkDictionary(t *rapid.T, d *dictionary, want []string) {
	var got []string
	for id := range d.ascend("", "") {
		got = append(got, d.texts[id])
	}
	if !slices.Equal(got, want) || d.len() != len(want) {
		t.Fatalf("%d names in order, %d in all, want %d", len(got), d.len(), len(want))
	}
	for _, l := range d.order {
		if len(l.ids) == 0 || len(l.ids) > leafSize || len(l.keys) != len(l.ids) {
			t.Fatalf("leaf of %d ids and %d keys", len(l.ids), len(l.keys))
		}
	}
	prefix := texts.Draw(t, "prefix")
	count := 0
	for _, name := range want {
		if strings.HasPrefix(name, prefix) {
			count++
		}
	}
	if got := d.count(prefix, len(want)); got != count {
		t.Fatalf("count(%+q) = %d, want %d", prefix, got, count)
	}
}

// TestCountAll: a count is exact unless it is above what is enough, also if the names of the first
// prefixes are just as many as are enough.
func TestCountAll(t *testing.T) {
	var d dictionary
	for _, name := range []string{"a1", "a2", "b1", "b2", "c1", "d"} {
		d.add(name)
	}
	for enough := range 8 {
		got := d.countAll([]string{"a", "b", "c"}, enough)
		if got != 5 && (got <= enough || got > 5) {
			t.Errorf("counted %d where %d is enough, want 5 or some number between them", got, enough)
		}
	}
}

// TestChanges: readers get the changes since they last asked, and no more are kept than
// changesMax.
func TestChanges(t *testing.T) {
	var d dictionary
	d.watched.Store(true)
	for id := range uint32(3 * changesMax) {
		at := d.changed()
		d.note(id)
		if got, ok := d.since(at); !ok || !slices.Equal(got, []uint32{id}) {
			t.Fatalf("%d changes since change %d (%v), want only %d", len(got), at, ok, id)
		}
		if len(d.changes) > changesMax {
			t.Fatalf("%d changes are kept", len(d.changes))
		}
	}
	if _, ok := d.since(0); ok {
		t.Error("the first change is still known")
	}
}

func decimal(n int) string {
	var b strings.Builder
	for n = max(n, -n); n > 0; n /= 10 {
		b.WriteByte(byte('0' + n%10))
	}
	return b.String()
}

// TestSplitAtEachPlace inserts one name into a full leaf, at each place.
func TestSplitAtEachPlace(t *testing.T) {
	for place := range leafSize + 1 {
		var d dictionary
		want := []string{}
		for i := range leafSize {
			want = append(want, fmt.Sprintf("host-%04d", 2*i+1))
			d.add(want[i])
		}
		name := fmt.Sprintf("host-%04d", 2*place)
		want = slices.Insert(want, place, name)
		d.add(name)
		var got []string
		for id := range d.ascend("", "") {
			got = append(got, d.texts[id])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s is at the wrong place", name)
		}
	}
}

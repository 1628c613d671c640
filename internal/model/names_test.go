package model

import (
	"cmp"
	"slices"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// javaCompare is String.compareTo, as its documentation says.
func javaCompare(a, b string) int {
	x, y := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return int(x[i]) - int(y[i])
		}
	}
	return len(x) - len(y)
}

var borderRunes = []rune{0, 'a', 'b', 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xe001, 0xfffd, 0xffff, 0x10000, 0x10001, 0x1f600, 0x10ffff}

func TestCompareNames(t *testing.T) {
	names := []string{""}
	for _, a := range borderRunes {
		names = append(names, string(a))
		for _, b := range borderRunes {
			names = append(names, string([]rune{a, b}))
		}
	}
	for _, a := range names {
		for _, b := range names {
			if got, want := CompareNames(a, b), javaCompare(a, b); cmp.Compare(got, 0) != cmp.Compare(want, 0) {
				t.Fatalf("CompareNames(%+q, %+q) = %d, Java %d", a, b, got, want)
			}
		}
	}
}

func TestCompareNamesRandom(t *testing.T) {
	texts := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom(borderRunes)))
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		if got, want := CompareNames(a, b), javaCompare(a, b); cmp.Compare(got, 0) != cmp.Compare(want, 0) {
			t.Fatalf("CompareNames(%+q, %+q) = %d, Java %d", a, b, got, want)
		}
	})
}

func FuzzCompareNames(f *testing.F) {
	f.Add("a", "b", "c")
	f.Add("\uffff", "\U00010000", "\ue000")
	f.Add("\xef", "\xf0", "\xee")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		ab, ba, bc, ac := CompareNames(a, b), CompareNames(b, a), CompareNames(b, c), CompareNames(a, c)
		if cmp.Compare(ab, 0) != -cmp.Compare(ba, 0) || (ab == 0) != (a == b) || ab < 0 && bc < 0 && ac >= 0 {
			t.Fatalf("no order: %q %q %q: %d %d %d %d", a, b, c, ab, ba, bc, ac)
		}
		if utf8.ValidString(a) && utf8.ValidString(b) && cmp.Compare(ab, 0) != cmp.Compare(javaCompare(a, b), 0) {
			t.Fatalf("CompareNames(%+q, %+q) = %d, Java %d", a, b, ab, javaCompare(a, b))
		}
	})
}

func TestTags(t *testing.T) {
	tags := MustTags("host", "a", "Host", "b", "_z", "c", "dc", "")
	if got, want := tags.String(), "{Host=b,_z=c,dc=,host=a}"; got != want {
		t.Errorf("String = %s, want %s", got, want)
	}
	if tags != MustTags("dc", "", "_z", "c", "host", "a", "Host", "b") {
		t.Error("the order of the arguments matters")
	}
	if tags.Len() != 4 || (Tags{}).Len() != 0 || (Tags{}).String() != "{}" || len((Tags{}).Slice()) != 0 {
		t.Error("Len, String or Slice of tags or of none is wrong")
	}
	for name, want := range map[string]string{"host": "a", "Host": "b", "_z": "c", "dc": ""} {
		if got, ok := tags.Get(name); !ok || got != want {
			t.Errorf("Get(%s) = %q, %v, want %q", name, got, ok, want)
		}
	}
	if v, ok := tags.Get("hos"); ok {
		t.Errorf("Get(hos) = %q, want nothing", v)
	}
	if _, err := NewTags(Tag{"a", "1"}, Tag{"b", "2"}, Tag{"a", "1"}); err == nil {
		t.Error("a name twice: no error")
	}
	given := []Tag{{"b", "2"}, {"a", "1"}}
	if _, err := NewTags(given...); err != nil || given[0].Name != "b" {
		t.Errorf("NewTags: %v, or it changed its argument: %v", err, given)
	}
	for range tags.All() {
		break // leaving early is allowed
	}
}

func TestTagsRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawTags(t), drawTags(t)
		if !slices.IsSortedFunc(a.Slice(), func(x, y Tag) int { return javaCompare(x.Name, y.Name) }) {
			t.Fatalf("%v is not in Java's order", a)
		}
		again, err := NewTags(a.Slice()...)
		if err != nil || again != a || a.Len() != len(a.Slice()) {
			t.Fatalf("NewTags(%v.Slice()) = %v, %v", a, again, err)
		}
		got := cmp.Compare(a.Compare(b), 0)
		want := slices.CompareFunc(flat(a), flat(b), javaCompare)
		if got != cmp.Compare(want, 0) || got != -cmp.Compare(b.Compare(a), 0) {
			t.Fatalf("%v.Compare(%v) = %d, want %d", a, b, got, want)
		}
	})
}

// flat lists names and values one after the other.
func flat(t Tags) []string {
	var texts []string
	for name, value := range t.All() {
		texts = append(texts, name, value)
	}
	return texts
}

func TestSeriesCompare(t *testing.T) {
	ascending := []Series{
		{Metric: "a", Type: TypeLong},
		{Metric: "a", Tags: MustTags("k", "v"), Type: TypeDouble},
		{Metric: "a", Tags: MustTags("k", "v"), Type: TypeLong},
		{Metric: "a", Tags: MustTags("k", "v", "l", "a"), Type: TypeDouble},
		{Metric: "a", Tags: MustTags("k", "w"), Type: TypeDouble},
		{Metric: "a", Tags: MustTags("l", "a"), Type: TypeDouble},
		{Metric: "\U0001f600", Type: TypeDouble},
		{Metric: "\uffff", Type: TypeDouble},
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := cmp.Compare(a.Compare(b), 0), cmp.Compare(i, j); got != want {
				t.Errorf("%v.Compare(%v) = %d, want %d", a, b, got, want)
			}
		}
	}
}

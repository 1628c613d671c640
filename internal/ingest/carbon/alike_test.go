package carbon

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// checkAlike holds parseAlike against parse, which looks at every word. l has parsed the
// line before. It reports what parseAlike says.
func checkAlike(t *testing.T, l *line, b []byte, head, tail string) bool {
	t.Helper()
	if !l.parseAlike(b, head, tail) {
		return false
	}
	var want line
	if empty, f := want.parse(b, nowMS); empty || f != nil {
		t.Fatalf("%q is like %q %q, but it is empty (%v) or refused: %v", b, head, tail, empty, f)
	}
	if string(want.path) != head+tail || want.ms != l.ms || math.Float64bits(want.value) != math.Float64bits(l.value) {
		t.Fatalf("%q: path %q, value %v at %d, want %q, %v at %d", b, head+tail, l.value, l.ms, want.path, want.value, want.ms)
	}
	return true
}

// spelt parses a line, and returns how its series is spelt.
func (l *line) spelt(b []byte) (head, tail string, ok bool) {
	if empty, f := l.parse(b, nowMS); empty || f != nil || l.path[0] == '"' {
		return "", "", false
	}
	path := string(l.path)
	if i := bytes.IndexByte(l.path, ';'); i > 0 {
		return path[:i], path[i:], true
	}
	return path, "", true
}

func TestParseAlike(t *testing.T) {
	for _, test := range []struct {
		first, next string
		want        bool
	}{
		{"a.b 1 1700000000", "a.b -2.5 1700000000", true},
		{"a.b;c=d 1 1700000000", "a.b;c=d 1e5 1700000000\r", true},
		{"a.b 1 1700000000", "a.b 1 1700000001", false}, // another time
		{"a.b 1 -1", "a.b 1 -1", false},                 // now is not remembered
		{"a.b 1 1700000000", "a.b  1 1700000000", false},
		{"a.b 1 1700000000", "a.b 1  1700000000", false},
		{"a.b 1 1700000000", "a.b 1 1700000000 ", false},
		{"a.b 1 1700000000", "a.b 1 2 1700000000", false},
		{"a.b 1 1700000000", "a.b 1700000000", false},
		{"a.b 1 1700000000", "a.b  1700000000", false},
		{"a.b 1 1700000000", "a.bc 1 1700000000", false},
		{"a.b 1 1700000000", "a.c 1 1700000000", false},
		{"a.b;c=d 1 1700000000", "a.b;c=e 1 1700000000", false},
		{"a.b 1 1700000000", "a.b;c=d 1 1700000000", false},
		{"a.b 1 1700000000", "a.b 1e999 1700000000", false},
		{"a.b 1 1700000000", "a.b nan 1700000000", false},
		{"a.b 1 1700000000", "a.b 1_0 1700000000", false}, // a number, but not for parseAlike
		{"a.b 1 1700000000", "a.b", false},
		{"a.b 1 1700000000", "", false},
	} {
		var l line
		head, tail, ok := l.spelt([]byte(test.first))
		if !ok {
			t.Fatalf("%s: refused", test.first)
		}
		if got := checkAlike(t, &l, []byte(test.next), head, tail); got != test.want {
			t.Errorf("%s behind %s: %v, want %v", test.next, test.first, got, test.want)
		}
	}
}

// TestParseAlikeRandom compares with lines that differ a little.
func TestParseAlikeRandom(t *testing.T) {
	lines := []string{"a.b 1 1700000000", "a.b -2.5 1700000000\r", "a.b;c=d 1e5 1700000000", "a.b 1 1700000001", "a.b 1 -1", "\ta.b 1 1"}
	r := rand.New(rand.NewPCG(3, 3))
	alike := 0
	for range 300_000 {
		var l line
		head, tail, ok := l.spelt([]byte(lines[r.IntN(len(lines))]))
		if !ok {
			t.Fatal("refused")
		}
		b := []byte(lines[r.IntN(len(lines))])
		for range r.IntN(3) {
			at := r.IntN(len(b))
			switch r.IntN(3) {
			case 0:
				const telling = "ab.;=c 01-e+\t\r"
				b[at] = telling[r.IntN(len(telling))]
			case 1:
				b = slices.Delete(b, at, at+1)
			case 2:
				b = slices.Insert(b, at, b[r.IntN(len(b))])
			}
		}
		if checkAlike(t, &l, b, head, tail) {
			alike++
		}
	}
	if alike < 10_000 {
		t.Errorf("only %d lines were alike", alike)
	}
}

func FuzzParseAlike(f *testing.F) {
	f.Add([]byte("a.b;c=d 1.5 1700000000"), []byte("a.b;c=d -2 1700000000\r"))
	f.Add([]byte("a 1 5"), []byte("a 1e5 5"))
	f.Fuzz(func(t *testing.T, first, next []byte) {
		var l line
		if head, tail, ok := l.spelt(first); ok {
			checkAlike(t, &l, first, head, tail)
			checkAlike(t, &l, next, head, tail)
		}
	})
}

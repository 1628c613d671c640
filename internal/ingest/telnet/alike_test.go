package telnet

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
)

// spelling returns how a put line spells its series. ok is false where ParseAlike is not
// asked for the next line.
func spelling(line []byte) (head, tail string, ok bool) {
	var c Command
	if c.Parse(line) != nil || c.Verb != Put {
		return "", "", false
	}
	head, tail = string(c.Metric), string(c.Tags)
	word, _ := ingest.CutWord(c.Metric)
	return head, tail, len(word) == len(head) && head[0] != '"'
}

// checkAlike holds ParseAlike against Parse, which looks at every word, with the times
// that c remembers. It reports what ParseAlike says.
func checkAlike(t *testing.T, c *Command, line []byte, head, tail string) bool {
	t.Helper()
	if !c.ParseAlike(line, head, tail) {
		return false
	}
	var want Command
	if f := want.Parse(line); f != nil {
		t.Fatalf("%q is like %q %q, but it is refused: %v", line, head, tail, f)
	}
	if string(want.Metric) != head || string(want.Tags) != tail {
		t.Fatalf("%q is like %q %q, but it is of %q %q", line, head, tail, want.Metric, want.Tags)
	}
	if c.Verb != want.Verb || c.Kind != want.Kind || c.TimeMS != want.TimeMS || !bytes.Equal(c.Metric, want.Metric) || !bytes.Equal(c.Tags, want.Tags) ||
		c.Kind == model.Long && c.Long != want.Long || c.Kind == model.Double && math.Float64bits(c.Double) != math.Float64bits(want.Double) {
		t.Fatalf("%q: %+v, want %+v", line, *c, want)
	}
	return true
}

func TestParseAlike(t *testing.T) {
	for _, test := range []struct {
		first, next string
		want        bool
	}{
		{"put m 1700000000 1 h=a i=b", "put m 1700000010 -2.5 h=a i=b", true},
		{"put m 1700000000 1 h=a", "put m 1700000000000 1 h=a\r", true},
		{"put m 1700000000 1", "put m 1700000000 1", true},
		{"put m 1700000000 1  h=a", "put m 1700000000 1  h=a", true},
		{"put m 1700000000 1 h=a", "put m  1700000000 1 h=a", false},
		{"put m 1700000000 1 h=a", "put m 1700000000  1 h=a", false},
		{"put m 1700000000 1 h=a", "put m 1700000000 1  h=a", false},
		{"put m 1700000000 1 h=a", "put m 1700000000 1 2 h=a", false},
		{"put m 1700000000 1 h=a", "put m 1700000000 1 h=b", false},
		{"put m 1700000000 1 h=a", "put mm 1700000000 1 h=a", false},
		{"put m 1700000000 1 h=a", "put n 1700000000 1 h=a", false},
		{"put m 1700000000 1 h=a", "putm m 1700000000 1 h=a", false},
		{"put m 1700000000 1 h=a", `put m 1700000000 "1" h=a`, false},
		{"put m 1700000000 1 h=a", "put m 1700000000 1e5 h=a", false}, // refused
		{"put m 1700000000 1 h=a", "put m 1700000000 1e999 h=a", false},
		{"put m 1700000000 1 h=a", "put m 1700000000 h=a", false},
		{"put m 1700000000 1 h=a", "put m h=a", false},
		{"put m 1700000000 1 h=a", "m 1700000000 1 h=a", false},
		{"put m 1700000000 1 h=a", "put m", false},
		{"put m 1700000000 1 h=a", "put m 9223372036854775808 1 h=a", false},
		{"put m 1700000000 1 h=a", "put m 1700000000 1xh=a", false},
	} {
		head, tail, ok := spelling([]byte(test.first))
		if !ok {
			t.Fatalf("%s: refused", test.first)
		}
		var c Command
		for range 2 { // the second time, c remembers the time
			if got := checkAlike(t, &c, []byte(test.next), head, tail); got != test.want {
				t.Errorf("%s behind %s: %v, want %v", test.next, test.first, got, test.want)
			}
		}
	}
}

// TestParseAlikeRandom compares with lines that differ a little.
func TestParseAlikeRandom(t *testing.T) {
	lines := []string{
		"put m 1700000000 1 h=a i=b", "put m.n 1700000010 -2.5 h=a", "put m 1700000000000 1e-05 h=a\r", "put m 5 123456789012345678901", "put \"m n\" 1 1 h=a",
		"puts m 1 text h=a", "put m 1 \"1\" h=a", "putm m 1 1.0 h=a",
	}
	r := rand.New(rand.NewPCG(3, 3))
	var c Command
	alike := 0
	for range 300_000 {
		first := lines[r.IntN(len(lines))]
		head, tail, ok := spelling([]byte(first))
		if !ok {
			continue
		}
		line := []byte(lines[r.IntN(len(lines))])
		for range r.IntN(3) {
			at := r.IntN(len(line))
			switch r.IntN(3) {
			case 0:
				const telling = "mh=a 01.-e+\"\t\r"
				line[at] = telling[r.IntN(len(telling))]
			case 1:
				line = slices.Delete(line, at, at+1)
			case 2:
				line = slices.Insert(line, at, line[r.IntN(len(line))])
			}
		}
		if checkAlike(t, &c, line, head, tail) {
			alike++
		}
	}
	if alike < 10_000 {
		t.Errorf("only %d lines were alike", alike)
	}
}

func FuzzParseAlike(f *testing.F) {
	f.Add([]byte("put m 1700000000 1 h=a"), []byte("put m 1700000010 2.5 h=a\r"))
	f.Add([]byte("put \"m\" 1 1"), []byte("put m 1 1e5"))
	f.Fuzz(func(t *testing.T, first, next []byte) {
		if head, tail, ok := spelling(first); ok {
			var c Command
			checkAlike(t, &c, first, head, tail)
			checkAlike(t, &c, next, head, tail)
		}
	})
}

// TestLinesAlike stores lines in rounds, as senders do, and some that only resemble the
// line that is due. The other parsers have seen no line before.
func TestLinesAlike(t *testing.T) {
	lines := []string{
		"put a 1700000000 1 h=a", "put b 1700000000 1.5 h=a", "put \"c d\" 1700000000 2 h=a", "put c d 1700000000 h=a", "put b 1700000000 3 h=a",
		"put b 1700000001 2.5 h=a kairos_opt.ttl=5", "puts b 1700000001 2.5 h=a", "putm b 1700000001 2.5 h=a", "put b 1700000001 2.5 h=a\r", "put b 1700000001 1e5 h=a",
	}
	r := rand.New(rand.NewPCG(4, 4))
	var round bytes.Buffer
	for range 5 {
		for _, line := range lines {
			if r.IntN(4) > 0 {
				round.WriteString(line + "\n")
			}
		}
	}
	alike, each := &ingesttest.Recorder{}, &ingesttest.Recorder{}
	now := time.Now() // for both: the TTL of an old sample grows with each second
	store := func(to *ingesttest.Recorder, apart bool) {
		p, reg := ingesttest.NewPipelineAt(to, nil, func() time.Time { return now })
		l := newParser(protocol(p, DefaultConfig(), Options{Registerer: reg}), "test")
		for range 3 {
			for line := range bytes.Lines(round.Bytes()) {
				if apart { // a new parser knows no line before
					l = newParser(l.proto, "test")
				}
				if _, err := l.Store(t.Context(), line); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	store(alike, false)
	store(each, true)
	if got, want := alike.Text(), each.Text(); got != want || got == "" {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
}

package downsample

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Spans are a set of ms: they contain everything that was added and not removed, and
// more only beyond the most spans.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const width = 60
		var s Spans
		var want [width]bool
		most := rapid.IntRange(1, 12).Draw(rt, "most")
		exact := most == 12
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			from := rapid.Int64Range(0, width-1).Draw(rt, "from")
			x := Span{from, rapid.Int64Range(from, width).Draw(rt, "until")}
			room := width
			add := rapid.IntRange(0, 2).Draw(rt, "add") > 0
			if add {
				was := append(Spans(nil), s...)
				room = max(most, len(s))
				var changed bool
				if s, changed = s.Add(x, most); changed == slices.Equal(was, s) {
					rt.Fatalf("%v became %v, changed: %v", was, s, changed)
				}
			} else {
				s = s.without(x)
			}
			for i := x.FromMS; i < x.UntilMS; i++ {
				want[i] = add
			}
			var got [width]bool
			for i, o := range s {
				if o.FromMS >= o.UntilMS || i > 0 && s[i-1].UntilMS >= o.FromMS {
					rt.Fatalf("%v", s)
				}
				for k := o.FromMS; k < o.UntilMS; k++ {
					got[k] = true
				}
			}
			if len(s) > room {
				rt.Fatalf("%d spans, at most %d", len(s), room)
			}
			for i := range want {
				if want[i] && !got[i] || exact && len(s) < most && got[i] && !want[i] {
					rt.Fatalf("%d: %v, want %v, in %v", i, got[i], want[i], s)
				}
				want[i] = got[i] // what was joined stays
			}
		}
	})
}

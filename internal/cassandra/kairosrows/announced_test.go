package kairosrows

import "testing"

// TestMayHide: which announcements matter to what was written under a timestamp.
func TestMayHide(t *testing.T) {
	p := partKey{"m", 100}
	full := make([]announcement, announceSlots)
	for i := range full {
		full[i] = announcement{int64(i + 10), int64(i + 1), span{"other", 0, 1}}
	}
	for name, test := range map[string]struct {
		all  []announcement
		want bool
	}{
		"before":     {[]announcement{{9, 1, span{"m", 0, 200}}}, false},
		"at once":    {[]announcement{{10, 1, span{"m", 0, 200}}}, true},
		"elsewhere":  {[]announcement{{11, 1, span{"m", 101, 200}}, {12, 2, span{"n", 0, 200}}}, false},
		"everything": {[]announcement{{11, 1, everything}}, true},
		"unreadable": {[]announcement{{}}, true},
		"lost":       {full, true},
		"one before": {append([]announcement{{9, 65, span{"m", 0, 200}}}, full[1:]...), false},
	} {
		if got := (announced{"process": test.all}).mayHide(p, 10); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

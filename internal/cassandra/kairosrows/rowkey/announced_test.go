package rowkey

import "testing"

// TestMayHide: which announcements matter to what was written under a timestamp.
func TestMayHide(t *testing.T) {
	p := Partition{"m", 100}
	full := make([]Announcement, AnnouncementSlots)
	for i := range full {
		full[i] = Announcement{int64(i + 10), int64(i + 1), Span{"other", 0, 1}}
	}
	for name, test := range map[string]struct {
		all  []Announcement
		want bool
	}{
		"before":     {[]Announcement{{9, 1, Span{"m", 0, 200}}}, false},
		"at once":    {[]Announcement{{10, 1, Span{"m", 0, 200}}}, true},
		"elsewhere":  {[]Announcement{{11, 1, Span{"m", 101, 200}}, {12, 2, Span{"n", 0, 200}}}, false},
		"everything": {[]Announcement{{11, 1, Everything}}, true},
		"unreadable": {[]Announcement{{}}, true},
		"lost":       {full, true},
		"one before": {append([]Announcement{{9, 65, Span{"m", 0, 200}}}, full[1:]...), false},
	} {
		if got := (Announced{"process": test.all}).MayHide(p, 10); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

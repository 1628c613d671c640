package suggest

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "sum", 3}, {"sum", "", 3}, {"sum", "sum", 0},
		{"summ", "sum", 1}, {"sm", "sum", 1}, {"sun", "sum", 1}, {"smu", "sum", 1},
		{"avrage", "average", 1}, {"cuont", "count", 1}, {"type", "time", 2}, {"abcdef", "badcfe", 3},
	} {
		if got := Distance(tc.a, tc.b); got != tc.want {
			t.Errorf("%s to %s: %d, want %d", tc.a, tc.b, got, tc.want)
		}
		if got := Distance(tc.b, tc.a); got != tc.want {
			t.Errorf("%s to %s: %d, want %d", tc.b, tc.a, got, tc.want)
		}
	}
}

func TestName(t *testing.T) {
	known := []string{"sum", "sma", "time", "count", "align_sampling", strings.Repeat("x", maxName+1)}
	for name, want := range map[string]string{
		"summ": "sum", "smu": "sum", "type": "", "nope": "", "x": "", "": "", "my_count": "", "cuont": "count",
		"alignsampling": "align_sampling", strings.Repeat("x", maxName+1): "",
		strings.Repeat("x", maxName): strings.Repeat("x", maxName+1),
	} {
		if got := Name(name, known); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := Hint("summ", known); got != "; did you mean sum?" {
		t.Error(got)
	}
}

package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{7}, 0.99, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{4, 1, 3, 2}, 0.99, 4},
		{[]float64{4, 1, 3, 2}, 0.75, 3},
		{[]float64{4, 1, 3, 2}, 0, 1},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile %v of %v is %v, want %v", c.q, c.values, got, c.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %v", got)
	}
}

// A ratio is of one round: a round that was bad for both does not count, and
// one that only one was in does not either.
func TestRatioIsPaired(t *testing.T) {
	ours := map[int]float64{0: 1, 1: 10, 2: 1, 3: 99}
	theirs := map[int]float64{0: 2, 1: 20, 2: 4}
	if got, ok := pairedRatio(ours, theirs); !ok || got != 0.5 {
		t.Errorf("ratio %v, %v, want 0.5", got, ok)
	}
	for _, theirs := range []map[int]float64{nil, {4: 1}, {0: 0}} {
		if got, ok := pairedRatio(ours, theirs); ok {
			t.Errorf("ratio to %v is %v", theirs, got)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		goal     goal
		v, ratio float64
		want     string
	}{
		{goal{Most: 1.3}, 1.3, 2, "1.3 reached"},
		{goal{Most: 1.3}, 1.4, 2, "1.3 missed"},
		{goal{Most: 0.25, Ratio: 0.4}, 0.3, 0.3, "0.25 missed, ratio 0.40 reached"},
		{goal{Most: 0.25, Ratio: 0.4}, 0.2, 0.5, "0.25 reached, ratio 0.40 missed"},
		{goal{Most: 0.25, Ratio: 0.4}, 0.2, 0, "0.25 reached"},
	} {
		if got := c.goal.judge(c.v, c.ratio); got != c.want {
			t.Errorf("%v at %v, ratio %v: %q, want %q", c.goal, c.v, c.ratio, got, c.want)
		}
	}
}

func TestBookPrints(t *testing.T) {
	b := &book{targets: []string{varveName, "victoria", "influx"}}
	b.title("W1", "two series")
	for round, v := range []float64{0.2, 0.4, 0.3} {
		b.add("W1", figureCPU, varveName, round, v)
		b.add("W1", figureCPU, "victoria", round, 2*v)
	}
	b.add("W1", figureCPU, "influx", 0, 4)
	b.add("W1", figureLost, varveName, 0, 0)
	b.fail("W1", "influx", errors.New("first line\nsecond line"))
	var out strings.Builder
	if err := b.print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `
W1: two series
                                         varve  victoria  ratio  influx  ratio  goal
  server CPU, until visible  s/M points  0.300  0.600     0.500  4.00    0.050  ratio 0.34 missed
  points lost                            0      -         -      -       -
FAILED W1, influx: first line
`
	if got := trimLines(out.String()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	path := filepath.Join(t.TempDir(), "book.json")
	if err := b.save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"figure": "points lost"`) {
		t.Errorf("%s, %v", text, err)
	}
}

func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

package growth

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	start := time.Unix(1_700_000_040, 0)
	var g Counts
	g.Begin(start)
	add := func(at time.Duration, metric string, n int) {
		for range n {
			g.Add(start.Add(at), metric)
		}
	}
	report := func(at time.Duration, metric string) Report {
		return g.Report(start.Add(at), metric, 2)
	}
	add(0, "a", 5)
	add(5*time.Minute, "b", 7)
	add(6*time.Minute, "c", 1)
	c := report(6*time.Minute, "")
	if c.CreatedStart != 13 || c.CreatedRecent != 13 || !slices.Equal(c.GrowthRecent, []Metric{{"b", 7}, {"a", 5}}) {
		t.Errorf("after 6 minutes: %+v", c)
	}
	c = report(12*time.Minute, "")
	if c.CreatedStart != 13 || c.CreatedRecent != 8 || !slices.Equal(c.GrowthRecent, []Metric{{"b", 7}, {"c", 1}}) {
		t.Errorf("after 12 minutes: %+v", c)
	}
	if c = report(12*time.Minute, "c"); c.CreatedStart != 1 || c.CreatedRecent != 1 || len(c.GrowthStart) != 1 {
		t.Errorf("of one metric: %+v", c)
	}
	if c = report(1000*time.Hour, ""); c.CreatedRecent != 0 || c.GrowthRecent != nil || !slices.Equal(c.GrowthStart, []Metric{{"b", 7}, {"a", 5}}) {
		t.Errorf("after a long time: %+v", c)
	}
	add(-time.Hour, "late", 3) // the clock went back
	if c = report(1000*time.Hour, ""); c.CreatedRecent != 3 {
		t.Errorf("after a clock that went back: %+v", c)
	}
}

func TestLargest(t *testing.T) {
	if got := Largest(slices.Values([]string{"b", "a", "c", "b", "c", "d", "b"}), 3); !slices.Equal(got, []Metric{{"b", 3}, {"c", 2}, {"a", 1}}) {
		t.Error(got)
	}
	if got := Largest(slices.Values([]string(nil)), 3); len(got) != 0 {
		t.Error(got)
	}
}

// TestSketch: a metric with a good share is there, whatever else comes.
func TestSketch(t *testing.T) {
	var k sketch
	for i := range 100_000 {
		k.add(fmt.Sprint("once.", i))
		if i >= 50_000 && i%10 == 0 {
			k.add("culprit")
		}
	}
	const came = 5000
	if n := k.metrics["culprit"]; n > came || n < came-k.series/maxMetrics || len(k.metrics) > maxMetrics {
		t.Errorf("%d series of the culprit, %d metrics", n, len(k.metrics))
	}
}

// TestRecentMinutes: the minutes that have passed since the newest count no longer, however many pass at once.
func TestRecentMinutes(t *testing.T) {
	start := time.Unix(1_700_000_040, 0)
	for passed := range 2 * recentMinutes {
		var g Counts
		g.Begin(start)
		for i := range recentMinutes {
			g.Add(start.Add(time.Duration(i)*time.Minute), "m")
		}
		now := start.Add(time.Duration(recentMinutes-1+passed) * time.Minute)
		want := int64(max(0, recentMinutes-passed))
		if c := g.Report(now, "", 1); c.CreatedRecent != want || c.CreatedStart != recentMinutes {
			t.Errorf("%d minutes later: %d new series are recent, want %d", passed, c.CreatedRecent, want)
		}
		g.Add(now, "m")
		if c := g.Report(now, "m", 1); c.CreatedRecent != want+1 {
			t.Errorf("%d minutes later, with one more: %d, want %d", passed, c.CreatedRecent, want+1)
		}
	}
}

// TestFullSketch: a metric that has lost its last series gives its place to others.
func TestFullSketch(t *testing.T) {
	var k sketch
	for i := range maxMetrics {
		k.add(fmt.Sprint("once.", i))
	}
	k.add("once.0")
	k.add("one more")
	if len(k.metrics) != 1 || k.metrics["once.0"] != 1 || k.series != maxMetrics+2 {
		t.Errorf("%d series, %d metrics, %d of the first", k.series, len(k.metrics), k.metrics["once.0"])
	}
}

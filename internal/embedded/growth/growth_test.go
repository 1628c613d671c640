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

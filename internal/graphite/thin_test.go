package graphite

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/graphite/graphitetest"
	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
)

// ones is a bucket of so many samples of 1.
func ones(startMS, stepMS, n int64) store.Bucket {
	return store.Bucket{StartMS: startMS, StepMS: stepMS, Aggregate: model.Aggregate{Sum: float64(n), Count: n, Min: 1, Max: 1, Last: 1, LastMS: startMS + stepMS - 1}}
}

func newThin(t *testing.T, method retention.Method, factor float64) thin {
	rules, _, err := retention.ParseSchemas("[a]\npattern = .\nretentions = 10s:6h,60s:30d,1h:5y\n")
	if err != nil {
		t.Fatal(err)
	}
	policy := retention.Policy{Rule: &rules[0], Aggregation: &retention.Aggregation{Method: method, XFilesFactor: factor}}
	return thin{policy: policy, stage: 2, stepMS: 10_000}
}

// TestThinPoints: buckets of several files that are in one point, and samples that came
// late, make that point together.
func TestThinPoints(t *testing.T) {
	values := make([]float64, 720)
	fill(values)
	values[7] = 5 // in the first hour
	buckets := []store.Bucket{ones(0, 3_600_000, 180), ones(1_800_000, 60_000, 6), ones(1_860_000, 60_000, 6), ones(3_600_000, 60_000, 6), ones(3_660_000, 60_000, 3)}
	got := newThin(t, retention.Sum, 0).points(nil, values, buckets)
	want := []thinPoint{{2, 0, 197}, {1, 60, 6}, {1, 61, 3}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(thinPoint{})); d != "" {
		t.Error(d)
	}
}

// TestThinFactor: more samples in a bucket never make its point vanish, but for a single
// one at its very beginning.
func TestThinFactor(t *testing.T) {
	th := newThin(t, retention.Average, 0.5)
	for n := int64(1); n <= 360; n++ {
		if v := th.value(ones(0, 3_600_000, n)); (v == v) != (n >= 180) {
			t.Errorf("%d samples of 360: %v", n, v)
		}
	}
	imported := ones(0, 3_600_000, 1)
	imported.LastMS = 0
	if v := th.value(imported); v != 1 {
		t.Errorf("a point of a coarser archive: %v", v)
	}
}

// TestPercentilesOfArchives renders paths whose policy's method is a percentile, on each
// archive, before and after folding, and compares points with the samples.
func TestPercentilesOfArchives(t *testing.T) {
	dir := t.TempDir()
	config := DefaultConfig()
	config.StorageSchemas, config.StorageAggregation = filepath.Join(dir, "schemas"), filepath.Join(dir, "aggregation")
	for path, text := range map[string]string{
		config.StorageSchemas:     "[a]\npattern = ^a\nretentions = 10s:1h,60s:6h,1h:1y\n",
		config.StorageAggregation: "[p]\npattern = .\naggregationMethod = p90\nxFilesFactor = 0.1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openSite(t, config, query.DefaultConfig(), true)
	now := graphitetest.Clock.Unix() / 3600 * 3600
	r := rand.New(rand.NewPCG(1, 1))
	samples := map[int64]float64{}
	send := func(from, until, step int64) {
		var lines strings.Builder
		for at := from; at < until; at += step {
			samples[at] = math.Round(1e4*math.Exp(r.NormFloat64())) / 1e4
			fmt.Fprintf(&lines, "a.x %v %d\n", samples[at], at)
		}
		s.send(lines.String())
	}
	fold := func() {
		if err := s.store.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// check looks at the archive that reaches back for so many seconds.
	check := func(when string, back, step int64, exact bool) {
		t.Helper()
		form := url.Values{"target": {"a.x"}, "format": {"json"}, "from": {fmt.Sprint(now - back)}, "until": {fmt.Sprint(now - 1)}}
		w := s.ask("GET", "/render", form)
		var got []struct{ Datapoints [][2]*float64 }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 1 || int64(len(got[0].Datapoints)) < (back-step)/step {
			t.Fatalf("%s: %v, %d %.300s", when, err, w.Code, w.Body)
		}
		for _, point := range got[0].Datapoints {
			at := int64(*point[1])
			if at >= now {
				continue
			}
			var all []float64
			for ms := at; ms < at+step; ms++ {
				if v, there := samples[ms]; there {
					all = append(all, v)
				}
			}
			slices.Sort(all)
			want, within := all[model.Rank(90, int64(len(all)))-1], quantile.RelativeError
			if exact {
				within = 0
			}
			if point[0] == nil || math.Abs(*point[0]-want) > within*want {
				t.Fatalf("%s: %v of %d samples from %d on, want %v", when, point[0], len(all), at, want)
			}
		}
	}
	send(now-86400, now, 10)
	check("samples", 3600, 10, true)
	check("minutes of samples", 6*3600, 60, true)
	check("hours of samples", 86400, 3600, true)
	fold()
	check("samples", 3600, 10, true)
	check("minutes", 6*3600, 60, false)
	check("hours, of buckets of an hour, of a minute, and of samples", 86400, 3600, false)
	send(now-2*3600+5, now-3600-1000, 60)
	send(now-20*3600+5, now-19*3600, 60)
	check("minutes with late samples", 6*3600, 60, false)
	check("hours with late samples", 86400, 3600, false)
	fold()
	check("minutes with late samples, folded", 6*3600, 60, false)
	check("hours with late samples, folded", 86400, 3600, false)
}

// TestPercentileWithoutSketch: a bucket that was made before its policy asked for
// percentiles shows its average, and a point that has one does.
func TestPercentileWithoutSketch(t *testing.T) {
	sketched := func(startMS, stepMS int64, values ...float64) store.Bucket {
		b := store.Bucket{StartMS: startMS, StepMS: stepMS}
		for i, v := range values {
			b.Add(startMS+int64(i), v)
		}
		b.Sketch = quantile.Of(values...)
		return b
	}
	values := make([]float64, 3*360)
	fill(values)
	values[365] = 1000 // in the second hour
	buckets := []store.Bucket{
		ones(0, 3_600_000, 180), sketched(3_600_000, 60_000, 1, 2, 3), sketched(3_660_000, 60_000, 500), sketched(7_200_000, 60_000, 3, 5), ones(7_260_000, 60_000, 6),
	}
	points := make([]float64, 3)
	newThin(t, "p100", 0).percentiles(points, values, buckets, 1e9)
	if want := []float64{1, 1000, 14.0 / 8}; !slices.Equal(points, want) {
		t.Errorf("%v, want %v", points, want)
	}
}

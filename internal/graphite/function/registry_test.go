package function

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// names are the functions by group: those of graphite-web 1.1.10.
var names = map[string]string{
	"Alias":         "alias aliasByMetric aliasByNode aliasByTags aliasQuery aliasSub legendValue lower upper",
	"Calculate":     "aggregateLine exponentialMovingAverage holtWintersAberration holtWintersConfidenceArea holtWintersConfidenceBands holtWintersForecast identity linearRegression movingAverage movingMax movingMedian movingMin movingSum movingWindow nPercentile stdev",
	"Combine":       "aggregate aggregateSeriesLists aggregateWithWildcards applyByNode asPercent averageSeries averageSeriesWithWildcards avg countSeries diffSeries diffSeriesLists divideSeries divideSeriesLists group groupByNode groupByNodes groupByTags map mapSeries maxSeries minSeries multiplySeries multiplySeriesLists multiplySeriesWithWildcards pct percentileOfSeries powSeries rangeOfSeries reduce reduceSeries stddevSeries sum sumSeries sumSeriesLists sumSeriesWithWildcards weightedAverage",
	"Filter Data":   "removeAbovePercentile removeAboveValue removeBelowPercentile removeBelowValue",
	"Filter Series": "averageAbove averageBelow averageOutsidePercentile currentAbove currentBelow exclude filterSeries grep highest highestAverage highestCurrent highestMax limit lowest lowestAverage lowestCurrent maximumAbove maximumBelow minimumAbove minimumBelow mostDeviant removeBetweenPercentile removeEmptySeries unique useSeriesAbove",
	"Graph":         "alpha areaBetween color dashed drawAsInfinite lineWidth secondYAxis stacked threshold verticalLine",
	"Sorting":       "sortBy sortByMaxima sortByMinima sortByName sortByTotal",
	"Special":       "cactiStyle changed consolidateBy constantLine cumulative events fallbackSeries randomWalk randomWalkFunction seriesByTag setXFilesFactor substr xFilesFactor",
	"Transform":     "absolute add compressPeriodicGaps delay derivative exp hitcount integral integralByInterval interpolate invert isNonNull keepLastValue log logit minMax nonNegativeDerivative offset offsetToZero perSecond pow round scale scaleToSeconds sigmoid sin sinFunction smartSummarize squareRoot summarize time timeFunction timeShift timeSlice timeStack transformNull",
}

func TestAllFunctionsAreThere(t *testing.T) {
	got := map[string][]string{}
	for _, f := range All() {
		got[f.Group] = append(got[f.Group], f.Name)
		if f.Description == "" || !strings.HasSuffix(f.Description, ".") {
			t.Errorf("%s: description %q", f.Name, f.Description)
		}
		for i, p := range f.Params {
			if p.Multiple && i != len(f.Params)-1 {
				t.Errorf("%s: %s takes all further arguments, but is not the last", f.Name, p.Name)
			}
		}
	}
	n := 0
	for group, list := range names {
		want := strings.Fields(list)
		n += len(want)
		if !slices.Equal(got[group], want) {
			t.Errorf("%s: got %v\nwant %v", group, got[group], want)
		}
	}
	if len(All()) != n {
		t.Errorf("%d functions, and %d in the list", len(All()), n)
	}
	for _, page := range []string{"README.md", "docs/graphite.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(page)))
		if want := fmt.Sprintf("%d functions", n); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: want %q (%v)", page, want, err)
		}
	}
}

func TestSignatures(t *testing.T) {
	for name, want := range map[string]string{
		"movingAverage": "movingAverage(seriesList, windowSize, xFilesFactor=None)",
		"sumSeries":     "sumSeries(*seriesLists)",
		"interpolate":   "interpolate(seriesList, limit=inf)",
		"timeStack":     "timeStack(seriesList, timeShiftUnit='1d', timeShiftStart=0, timeShiftEnd=7)",
		"stdev":         "stdev(seriesList, points, windowTolerance=0.1)",
	} {
		if f, _ := Lookup(name); f == nil || f.Signature() != want {
			t.Errorf("%s: %v; want %s", name, f, want)
		}
	}
}

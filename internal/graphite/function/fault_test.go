package function

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/graphite/target"
)

// A failing source and budget fails at one call, counted over both.
type failing struct {
	ramp
	calls atomic.Int64
	at    int64 // 0: never
}

var errFailing = errors.New("the call failed")

func (f *failing) Reserve(int64) error { return f.Yield() }

func (f *failing) Yield() error {
	if f.calls.Add(1) == f.at {
		return errFailing
	}
	return nil
}

// TestFaultsEndRequests: whichever look or reservation fails, the request ends with that error,
// and without an answer that lacks something.
func TestFaultsEndRequests(t *testing.T) {
	texts := []string{
		"aliasQuery(a,'^.*$','a','%d')", "applyByNode(a,0,'a','%')", "asPercent(a,a,0)", "groupByNode(a,0,'scale')", "groupByNodes(a,'sum',0,1)", "groupByTags(a,'sum','name')",
		"hitcount(a,'5min',true)", "linearRegression(a,'-10min','now')", "movingWindow(a,'5min','multiply')", "reduceSeries(mapSeries(a,0),'asPercent',1,'0','1')",
		"smartSummarize(a,'5min','sum','hours')", "sumSeries(a,time('x',120))", "template(scale($x,2),x='a')", "timeStack(a,'1h',0,2)", "transformNull(a,0,a)",
		"useSeriesAbove(a,1,'^.*$','a')", "weightedAverage(a,a,0)", "aggregateLine(a,'sum',true)", "seriesByTag('a=b')",
	}
	for _, fn := range All() {
		var all []string
		for _, p := range fn.Params {
			all = append(all, strings.ReplaceAll(plausible(p), "a.*", "a"))
		}
		texts = append(texts, fn.Name+"("+strings.Join(all, ",")+")")
	}
	for _, text := range texts {
		e, err := target.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		until := time.Unix(1710072000, 0).UTC()
		request := &Request{From: until.Add(-20 * time.Minute), Until: until, Now: until}
		run := func(f *failing) error {
			_, err := Evaluate(t.Context(), f, f, request, []target.Expr{e})
			return err
		}
		sound := run(&failing{ramp: ramp{n: 2}})
		for at := int64(1); ; at++ {
			f := &failing{ramp: ramp{n: 2}, at: at}
			err := run(f)
			if f.calls.Load() < at {
				break
			}
			if !errors.Is(err, errFailing) && (sound == nil || fmt.Sprint(err) != sound.Error()) {
				t.Errorf("%s: got error %v when call %d failed", text, err, at)
			}
		}
	}
}

// TestFaultsOfArguments: an error in an argument ends the request, even if the function does not
// need that argument.
func TestFaultsOfArguments(t *testing.T) {
	for text, want := range map[string]string{
		"transformNull(a,0,nosuch(a))":                       "unknown function: nosuch",
		"group(a,sumSeries(nosuch(a)))":                      "unknown function: nosuch",
		"useSeriesAbove(a,-1,'^.*$','nosuch(a)')":            "unknown function: nosuch",
		"hitcount(nosuch(a),'5min',true)":                    "unknown function: nosuch",
		`aliasQuery(a,'a','\9','%d')`:                        "does not have",
		"sumSeries(consolidateBy(a,'nosuch'),time('x',120))": "consolidateBy: unknown function",
		"asPercent(consolidateBy(a,'nosuch'),time('x',120))": "consolidateBy: unknown function",
		"summarize(a,'5min','nosuch')":                       "unsupported aggregation function: nosuch",
		"template(scale(a,2),a)":                             "invalid template() syntax",
		"removeAbovePercentile(a,0)":                         "greater than 0",
		"integralByInterval(a,'0min')":                       `"0min" is not an interval`,
		"integralByInterval(a,'nosuch')":                     `"nosuch" is not an interval`,
		"holtWintersForecast(a,'-1h')":                       "must be positive",
		"holtWintersAberration(a,3,'1h','-2min')":            "must be positive",
		"holtWintersForecast(a,'1h','0min')":                 "must be positive",
		"holtWintersForecast(a,'1h','1min')":                 "two steps of 60 seconds at least",
		"stdev(a,0)":                                         "must be positive",
		"averageOutsidePercentile(a,200)":                    "there is no percentile 200 of 2 series",
		`useSeriesAbove(a,-1,'a','\9')`:                      "does not have",
		"verticalLine('nosuch')":                             "nosuch",
		"movingWindow(a,5,'nosuch')":                         "unsupported aggregation function: nosuch",
		"movingAverage(a,-1000000000000)":                    "points",
		"timeStack(a,'1s',3000000000,3000000001)":            "more than 2147483647 units",
		"timeStack(a,'1s',-3000000000,-2999999999)":          "more than 2147483647 units",
	} {
		if _, err := evaluate(t.Context(), &ramp{n: 2}, 1<<20, time.Hour, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", text, err, want)
		}
	}
}

// A refusing source finds no series.
type refusing struct{ ramp }

func (*refusing) Fetch(context.Context, []Query, Range) ([][]Fetched, error) { return nil, errFailing }

// TestFaultsOfTheSource: what keeps a source from finding series is the error of the request.
func TestFaultsOfTheSource(t *testing.T) {
	until := time.Unix(1710072000, 0).UTC()
	for _, text := range []string{"a", "seriesByTag('a=b')", "template(scale(a.$x,2),x='b')", "sumSeries(time('x'),a)"} {
		e, err := target.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Evaluate(t.Context(), &refusing{}, &failing{}, &Request{From: until.Add(-time.Hour), Until: until, Now: until}, []target.Expr{e})
		if !errors.Is(err, errFailing) {
			t.Errorf("%s: got error %v", text, err)
		}
	}
}

// TestNumbersInQuotes: texts are the numbers that they are in Python.
func TestNumbersInQuotes(t *testing.T) {
	for text, want := range map[string]string{
		"scale(a,' 2e0 ')": "scale(a.0,2)", "scale(a,'1e400')": "scale(a.0,inf)", "scale(a,'-1e400')": "scale(a.0,-inf)", "scale(a,'1e-400')": "scale(a.0,0)", "scale(a,'1_0')": "scale(a.0,10)",
		"keepLastValue(a,'infinity')": "keepLastValue(a.0)", "keepLastValue(a,' INF')": "keepLastValue(a.0)", "keepLastValue(a,'1e999')": "keepLastValue(a.0)", "keepLastValue(a,'2')": "keepLastValue(a.0)",
		"keepLastValue(a,'-inf')": "", "keepLastValue(a,'2.5')": "", "scale(a,'')": "", "scale(a,'0x10')": "",
	} {
		list, err := evaluate(t.Context(), &ramp{n: 1}, 1<<20, time.Hour, text)
		if want == "" {
			if param := (*ParamError)(nil); !errors.As(err, &param) {
				t.Errorf("%s: got error %v", text, err)
			}
		} else if err != nil || len(list) != 1 || list[0].Name != want {
			t.Errorf("%s: got %v, %v; want %s", text, list, err, want)
		}
	}
}

// TestFractionsOfUnits: timeStack drops the fractions of its numbers.
func TestFractionsOfUnits(t *testing.T) {
	list, err := evaluate(t.Context(), &ramp{n: 1}, 1<<20, time.Hour, "timeStack(a,'1h',0.9,2.9)")
	if err != nil || len(list) != 2 || list[0].Name != "timeShift(a.0, -1h, 0)" || list[1].Name != "timeShift(a.0, -1h, 1)" {
		t.Errorf("got %v, %v", list, err)
	}
}

// TestListsAsBooleans: a list of series is true if it has one, as lists are in Python.
func TestListsAsBooleans(t *testing.T) {
	for text, want := range map[string]int{"summarize(a,'1h','sum',b)": 2, "summarize(a,'1h','sum',a)": 1} { // of buckets that begin on the hour, the last one is empty
		list, err := evaluate(t.Context(), &ramp{n: 1}, 1<<20, time.Hour, text)
		if err != nil || len(list) != 1 || len(list[0].Values) != want {
			t.Errorf("%s: got %v, %v; want %d values", text, list, err, want)
		}
	}
}

// TestSeriesOfOneValue: useSeriesAbove leaves out series without values only.
func TestSeriesOfOneValue(t *testing.T) {
	list, err := evaluate(t.Context(), &ramp{n: 1}, 1<<20, 10*time.Second, "useSeriesAbove(a,-1,'^.*$','a')")
	if err != nil || len(list) != 1 || len(list[0].Values) != 1 {
		t.Errorf("got %v, %v; want a series of one value", list, err)
	}
}

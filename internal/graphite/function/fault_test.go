package function

import (
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
	} {
		if _, err := evaluate(t.Context(), &ramp{n: 2}, 1<<20, time.Hour, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", text, err, want)
		}
	}
}

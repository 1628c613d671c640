package function

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNodes: which arguments select a node of a path. The names are graphite-web's answers.
func TestNodes(t *testing.T) {
	for text, want := range map[string][]string{
		"groupByNodes(a,'sum',true)":                      {"0", "1"},
		"groupByNodes(a,'sum',false)":                     {"a"},
		"averageSeriesWithWildcards(a,0.0)":               {"0", "1"},
		"aggregateWithWildcards(a,'sum',1.0)":             {"a"},
		"sumSeriesWithWildcards(a,1.5)":                   {"a.0", "a.1"},
		"groupByNode(a,7,'sum')":                          {""},
		"groupByNode(a,'name','sum')":                     {"a.0", "a.1"},
		"groupByNode(b,name,'sum')":                       nil,
		"reduceSeries(mapSeries(a,0),'sumSeries',0,'a')":  {".reduce.sumSeries"},
		"reduceSeries(mapSeries(a,0),'sumSeries',-2,'a')": {".reduce.sumSeries"},
		"reduceSeries(b,'sumSeries',1,'0')":               nil,
		"aliasByNode(multiplySeriesLists(a,a),1,0)":       {"0.a", "1.a"},
	} {
		list, err := evaluate(t.Context(), &ramp{n: 2}, 1<<20, time.Hour, text)
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: %q, %v; want %q", text, names, err, want)
		}
	}
}

// TestWithoutQuotes: a text whose quotes were forgotten is a path, and an error.
// Taken for a tag that no series has, it would put all series into one group.
func TestWithoutQuotes(t *testing.T) {
	for _, text := range []string{
		"aliasByNode(a,host)", "aliasByTags(a,host)", "aliasByNode(a,None)", "groupByNode(a,host,'sum')", "groupByNodes(a,'sum',0,host)",
		"asPercent(a,None,host)", "mapSeries(a,host)", "weightedAverage(a,a,host)", "legendValue(a,avg)",
		"alias(a,a)", "alias(a,newName=a)", "aliasSub(a,'x',a)", "highest(a,1,a)",
	} {
		_, err := evaluate(t.Context(), &ramp{n: 2}, 1<<20, time.Hour, text)
		var param *ParamError
		if !errors.As(err, &param) {
			t.Errorf("%s: got error %v", text, err)
		}
	}
}

// TestNamesOfStacks: which arguments are accepted as the name of a stack. The names are graphite-web's
// answers.
func TestNamesOfStacks(t *testing.T) {
	for text, want := range map[string]string{
		"stacked(a)": "stacked(a.0)", "stacked(a,'x')": "a.0", "stacked(a,1)": "a.0", "stacked(a,1.5)": "a.0", "stacked(a,None)": "a.0", "stacked(a,true)": "a.0",
	} {
		if list, err := evaluate(t.Context(), &ramp{n: 1}, 1<<20, time.Hour, text); err != nil || len(list) != 1 || list[0].Name != want {
			t.Errorf("%s: %v, %v; want %s", text, list, err, want)
		}
	}
	if _, err := evaluate(t.Context(), &ramp{n: 1}, 1<<20, time.Hour, "stacked(a,b)"); err == nil {
		t.Error("a list of series names a stack")
	}
}

// TestNamesOfUnlabelledLines: a line without a label has no name until a function makes
// one of it. The names are graphite-web's answers; functions that read the name fail there.
func TestNamesOfUnlabelledLines(t *testing.T) {
	const nameless = ""
	for text, want := range map[string]string{
		"verticalLine('FROM')":                         nameless,
		"secondYAxis(verticalLine('FROM'))":            "secondYAxis(None)",
		"cumulative(verticalLine('FROM'))":             `consolidateBy(None,"sum")`,
		"scale(verticalLine('FROM'),2)":                "scale(None,2)",
		"dashed(verticalLine('FROM'))":                 "dashed(None, 5)",
		"alias(verticalLine('FROM'),'x')":              "x",
		"alias(verticalLine('FROM'),None)":             "None",
		"lineWidth(verticalLine('FROM'),2)":            nameless,
		"verticalLine('FROM','None')":                  "None",
		"secondYAxis(verticalLine('FROM','deployed'))": "secondYAxis(deployed)",
	} {
		text = strings.ReplaceAll(text, "FROM", "-1h")
		list, err := evaluate(t.Context(), &ramp{n: 1}, 1<<20, 48*time.Hour, text)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: %v, %v", text, list, err)
			continue
		}
		got := list[0].Name
		if list[0].Nameless() {
			got = nameless
		}
		if got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}

// TestReduceSeries: the series of a group are the arguments in the order of the matchers; a group that lacks one is
// left out.
func TestReduceSeries(t *testing.T) {
	for arguments, want := range map[string]float64{
		"1,'0','1'": 50, "1,'1','0'": 200, "-1,'0','1'": 50, "1,'0','7'": 0, "1,'7'": 0, "1,'0','0'": 0, "1": 0,
	} {
		list, err := evaluate(t.Context(), &ramp{n: 3}, 1<<20, time.Hour, "reduceSeries(mapSeries(a,0),'asPercent',"+arguments+")")
		switch {
		case err != nil:
			t.Errorf("%s: %v", arguments, err)
		case want == 0 && len(list) > 0, want > 0 && (len(list) != 1 || list[0].Name != "a.reduce.asPercent" || list[0].Values[1] != want):
			t.Errorf("%s: %v, want %v", arguments, list, want)
		}
	}
	for _, arguments := range []string{"mapSeries(a,0),'asPercent',2,'0'", "mapSeries(a,0),'asPercent',-3,'0'", "a,'asPercent',1,'0'"} {
		_, err := evaluate(t.Context(), &ramp{n: 3}, 1<<20, time.Hour, "reduceSeries("+arguments+")")
		var param *ParamError
		if !errors.As(err, &param) {
			t.Errorf("%s: got error %v", arguments, err)
		}
	}
}

package render

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"varve/internal/graphite/function"
	"varve/internal/graphite/graphitetest"
)

// different are the cases in which Varve's answer differs on purpose.
var different = map[string]string{
	"render-errors-041": "the call does not end; Graphite fetches a series called scale",
}

func TestRecordedCases(t *testing.T) {
	m := openMemory(t)
	only := os.Getenv("VARVE_GRAPHITE_CASE")
	for _, file := range graphitetest.Topics(t, "render-") {
		graphitetest.Each(t, file, func(c *graphitetest.Case) {
			if c.Request.Path != "/render" || only != "" && c.ID != only {
				return
			}
			t.Run(c.ID, func(t *testing.T) {
				if why := different[c.ID]; why != "" {
					t.Skip(why)
				}
				body, contentType, err := answer(m, c.Form())
				status := 200
				if err != nil {
					status, body = 400, []byte(err.Error())
				}
				if fault := c.Fault(status, contentType, body); fault != "" {
					t.Errorf("%v: %s", c.Request.Params, fault)
				}
			})
		})
	}
}

// TestRecordedFunctions compares names and groups, to which the recorded answers
// are reduced. Functions that Graphite does not have are not compared.
func TestRecordedFunctions(t *testing.T) {
	graphitetest.Each(t, "functions.jsonl.gz", func(c *graphitetest.Case) {
		form := c.Form()
		name, one := strings.CutPrefix(c.Request.Path, "/functions/")
		body, found, err := Function(name, form)
		if !one {
			found = true
			body, err = Functions(form)
		}
		if err != nil || found != (c.Status == 200) {
			t.Fatalf("%s: %v, %v; want status %d", c.ID, found, err, c.Status)
		}
		if !found {
			return
		}
		var got any
		if err := json.Unmarshal(bytes.ReplaceAll(body, []byte("1e9999"), []byte("0")), &got); err != nil {
			t.Fatal(err)
		}
		for k, want := range c.Response.(map[string]any) {
			v := got.(map[string]any)[k]
			entry, _ := v.(map[string]any)
			switch {
			case one:
				if v != want {
					t.Errorf("%s: %s is %v; want %v", c.ID, k, v, want)
				}
			case form.Get("grouped") == "":
				if entry["group"] != want {
					t.Errorf("%s: the group of %s is %v; want %v", c.ID, k, entry["group"], want)
				}
			default:
				for _, name := range want.([]any) {
					if entry[name.(string)] == nil {
						t.Errorf("%s: %s is not in %s", c.ID, name, k)
					}
				}
			}
		}
	})
}

// TestConstantSeries: functions without a recorded case. graphite-web takes 0 where it would divide by 0, and a bool for
// a number of points.
func TestConstantSeries(t *testing.T) {
	for target, want := range map[string]string{
		"minMax(constantLine(5))":             "0.0",
		"movingAverage(constantLine(5),true)": "5.0",
	} {
		body, _, err := answer(&memory{}, url.Values{"target": {target}, "format": {"raw"}, "from": {"-2min"}})
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		_, values, _ := strings.Cut(strings.TrimSpace(string(body)), "|")
		for value := range strings.SplitSeq(values, ",") {
			if value != want {
				t.Errorf("%s: %s, want %s", target, body, want)
				break
			}
		}
	}
}

func answer(m *memory, form url.Values) (body []byte, contentType string, err error) {
	r, err := Parse(form, graphitetest.Clock, time.UTC)
	if err != nil {
		return nil, "", err
	}
	series, err := function.Evaluate(context.Background(), m, free{}, &r.Function, r.Targets)
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	err = Write(&out, r.Options, series)
	return out.Bytes(), r.Options.ContentType(), err
}

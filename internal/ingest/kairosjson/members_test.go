package kairosjson

import (
	"fmt"
	"strings"
	"testing"
)

// TestNullMembers: null is an absent member, and an object or array in place of a scalar is one
// fault.
func TestNullMembers(t *testing.T) {
	for member, fault := range map[string]string{
		`"ttl":null`: "", `"type":null`: "", `"skip_validate":null`: "",
		`"ttl":{}`: "Expected an int but was ", `"ttl":[]`: "Expected an int but was ", `"type":{}`: "Expected a string but was ", `"type":[1]`: "Expected a string but was ",
	} {
		h := newHarness(t, nil)
		res := h.post(`{"name":"m","tags":{"h":"a"},` + member + `,"datapoints":[[1,5]]}`)
		stored := h.recorder.Text()
		if fault == "" && stored != "m{h=a} long 1 5" {
			t.Errorf("%s: stored %q", member, stored)
		}
		if fault == "" {
			continue
		}
		if told := errorsOf(t, res); len(told) != 1 || !strings.Contains(told[0], fault) || stored != "" {
			t.Errorf("%s: told %q, stored %q", member, told, stored)
		}
	}
}

// TestPointsOfOtherForms: an element of datapoints that is not an array is refused alone.
func TestPointsOfOtherForms(t *testing.T) {
	for _, element := range []string{`{"a":[1,{}]}`, `{}`, `5`, `"x"`, `null`} {
		h := newHarness(t, nil)
		told := errorsOf(t, h.post(`{"name":"m","tags":{"h":"a"},"datapoints":[[1,5],`+element+`,[2,6]]}`))
		if len(told) != 1 || !strings.Contains(told[0], "point must be an array of timestamp and value, not ") || h.recorder.Text() != "m{h=a} long 1 5\nm{h=a} long 2 6" {
			t.Errorf("%s: told %q, stored %q", element, told, h.recorder.Text())
		}
	}
}

// TestQuotedNumbers: a text of digits is a number, whichever digits they are.
func TestQuotedNumbers(t *testing.T) {
	for n := range 100 {
		h := newHarness(t, nil)
		h.post(fmt.Sprintf(`{"name":"m","tags":{"h":"a"},"datapoints":[[1,"%d"]]}`, n))
		if got := h.recorder.Text(); got != fmt.Sprintf("m{h=a} long 1 %d", n) {
			t.Errorf("%d: stored %q", n, got)
		}
	}
}

// TestCutOffPointsOfAKnownSeries: a body that ends within or between points of a series that is
// known is refused, wherever it ends.
func TestCutOffPointsOfAKnownSeries(t *testing.T) {
	h := newHarness(t, nil)
	one := `{"name":"m","tags":{"h":"a"},"datapoints":[[1500000000001,5],[1500000000002,6], [1500000000003,7]]}`
	body := "[" + strings.Repeat(one+",", 3) + one + "]" // of one shape
	h.post(body)
	for n := 1; n < len(body); n++ {
		if w := h.post(body[:n]); w.Code != 400 || len(errorsOf(t, w)) == 0 {
			t.Errorf("%s: answer %d %s", body[:n], w.Code, w.Body)
		}
	}
}

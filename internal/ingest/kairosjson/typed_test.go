package kairosjson

import (
	"errors"
	"strings"
	"testing"

	"varve/internal/datatype"
)

// A type that is registered needs nothing else to go in.
func TestAddedDataType(t *testing.T) {
	h := newHarness(t, nil)
	h.handler.types = append(datatype.All(), datatype.Type{
		Name: "point", Stored: "acme_point",
		Parse: func(dst, text []byte) ([]byte, error) {
			if len(text) == 0 || text[0] != '{' {
				return dst, errors.New("must be an object")
			}
			return append(dst, text...), nil
		},
	})
	w := h.post(`[{"name":"m","tags":{"a":"b"},"datapoints":[[1,{"x":1},"point"],[2,5,"point"],[3,4]]},
		{"name":"m","tags":{"a":"c"},"type":"point","timestamp":4,"value":{"x": [2, "}"]}}]`)
	if got := strings.Join(errorsOf(t, w), "; "); got != "metric[0](name=m).datapoints[1].value must be an object." {
		t.Error(got)
	}
	const want = "m{a=b} custom 1 \"{\\\"x\\\":1}\"\nm{a=b} long 3 4\nm{a=c} custom 4 \"{\\\"x\\\": [2, \\\"}\\\"]}\""
	if got := h.recorder.Text(); got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
}

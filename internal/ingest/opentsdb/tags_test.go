package opentsdb

import (
	"strings"
	"testing"

	"varve/internal/ingest/ingesttest"
)

// Tags that are no object of texts cost their point, and the points behind it are stored.
func TestTagsWithFaults(t *testing.T) {
	const good = `{"metric":"m","timestamp":1700000000,"value":1,"tags":{"h":"a"}}`
	for tags, want := range map[string]string{
		`{"h" "a"}`:          "tags: Expected ':'",
		`{"h":"a" "i":"b"}`:  "tags: ",
		`{"h":"a","i"}`:      "tags: Expected ':'",
		`{"h":"a",,"i":"b"}`: "tags: Expected name",
		`{"h":}`:             "tags: Expected value",
		`{"h":"a","i":}`:     "tags: Expected value",
		`{"h":null}`:         "the value of tag h must be a text",
		`{"h":{}}`:           "the value of tag h must be a text",
		`{"h":["a"]}`:        "the value of tag h must be a text",
		`{}`:                 "Missing tags",
		`[]`:                 "Missing tags",
		`"h=a"`:              "Missing tags",
		`null`:               "Missing tags",
	} {
		h := newHarness(nil)
		w := h.post("/api/put?details", "application/json", "["+strings.Replace(good, `{"h":"a"}`, tags, 1)+","+good+"]")
		if w.Code != 400 || !strings.Contains(w.Body.String(), `"error":"`+want) || !strings.HasSuffix(strings.TrimSpace(w.Body.String()), `"failed":1,"success":1}`) {
			t.Errorf("%s: %d %s, want %s", tags, w.Code, w.Body, want)
		}
		if got := h.recorder.Text(); got != "m{h=a} long 1700000000000 1" {
			t.Errorf("%s: stored %q", tags, got)
		}
		if got := ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total"); len(got) != 1 {
			t.Errorf("%s: refused %v", tags, got)
		}
	}
}

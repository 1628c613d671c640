package kairos

import (
	"testing"

	"varve/internal/kairos/agg"
)

// The group of a tag that is named twice has one member.
func TestLabelOfOneTagTwice(t *testing.T) {
	by := &agg.TagGroupBy{Tags: []string{"h", "dc", "h"}}
	got := string(appendTagLabel(nil, by, []string{"a", "b", "a"}))
	if want := `{"name":"tag","tags":["h","dc","h"],"group":{"h":"a","dc":"b"}}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

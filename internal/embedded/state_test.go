package embedded

import (
	"slices"
	"testing"

	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/retention"
)

// TestUnsavedDeletions: a deletion that the frozen head has not applied has to be saved although no file
// has samples that it hides.
func TestUnsavedDeletions(t *testing.T) {
	var all []*record.Deletion
	for sequence := range uint64(5) {
		all = append(all, &record.Deletion{Sequence: sequence + 1})
	}
	for _, c := range []struct {
		name string
		st   *state
		want []uint64
	}{
		{"no frozen head", &state{}, nil},
		{"a frozen head", &state{frozen: head.New(0), frozenDeletions: 3}, []uint64{4}},
	} {
		var got []uint64
		for _, d := range c.st.unsaved(2, 4, all) {
			got = append(got, d.Sequence)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v of the deletions 3 and 4 are unsaved, want %v", c.name, got, c.want)
		}
	}
}

// TestKnownPolicies: a series behind the end of the list, or in another book, has no known policy.
func TestKnownPolicies(t *testing.T) {
	book, policy := &retention.Book{}, retention.Policy{Rule: &retention.Rule{}}
	p := &policies{book: book, byID: []retention.Policy{policy, policy}}
	for id, want := range []bool{true, true, false, false} {
		if got := p.known(book, model.SeriesNumber(id)); (got.Rule != nil) != want {
			t.Errorf("series %d is known: %v", id, got.Rule != nil)
		}
	}
	if got := p.known(&retention.Book{}, 0); got.Rule != nil {
		t.Error("a series is known in another book")
	}
}

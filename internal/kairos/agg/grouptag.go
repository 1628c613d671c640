package agg

import (
	"fmt"
	"slices"
)

// maxGroupTags bounds the lookups per series.
const maxGroupTags = 1000

// tagSpec groups series by the values of tags.
func tagSpec() GroupBySpec {
	return GroupBySpec{
		Name: "tag", Doc: "Series with the same values of the tags.",
		Properties: []Property{{Name: "tags", Kind: TextsProperty, Doc: "names of the tags"}},
		New: func(a Args) (GroupBy, error) {
			tags := a.Texts("tags")
			switch {
			case tags == nil:
				return nil, &ArgumentError{[]string{"tags may not be null"}}
			case len(tags) == 0:
				return nil, &ArgumentError{[]string{"tags may not be empty"}}
			case len(tags) > maxGroupTags:
				return nil, &ArgumentError{[]string{fmt.Sprintf("tags may not be more than %d, not %d", maxGroupTags, len(tags))}}
			}
			return &TagGroupBy{Tags: tags}, nil
		},
	}
}

// A TagGroupBy groups series with equal values of all Tags.
type TagGroupBy struct{ Tags []string }

func (*TagGroupBy) groupBy() {}

// Distinct lists the indexes in Tags at which a name occurs first.
func (g *TagGroupBy) Distinct() []int {
	places := make([]int, 0, len(g.Tags))
	if len(g.Tags) <= 8 {
		for i, name := range g.Tags {
			if !slices.Contains(g.Tags[:i], name) {
				places = append(places, i)
			}
		}
		return places
	}
	seen := make(map[string]struct{}, len(g.Tags))
	for i, name := range g.Tags {
		if _, ok := seen[name]; !ok {
			seen[name] = struct{}{}
			places = append(places, i)
		}
	}
	return places
}

package query

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
			}
			return &TagGroupBy{Tags: tags}, nil
		},
	}
}

// A TagGroupBy makes one group of the series that agree in all Tags.
type TagGroupBy struct{ Tags []string }

func (*TagGroupBy) groupBy() {}

package query

// A GroupBy splits the samples of a metric. It is a *TagGroupBy, which splits
// series.
type GroupBy interface{ groupBy() }

// A Label says which group of a group-by a result is.
type Label struct {
	By   GroupBy
	Tags []string // TagGroupBy: values of its tags, "" where a series has none
}

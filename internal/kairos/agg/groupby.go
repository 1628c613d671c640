package agg

// A GroupBy splits the samples of a metric: a *TagGroupBy by series, a Splitter
// point by point.
type GroupBy interface{ groupBy() }

// A Splitter is a group-by of single points. Splitters combine: each combination of
// their numbers that occurs is a group.
type Splitter interface {
	GroupBy

	// number returns the number of the group that a point belongs to.
	number(env *Env, p *Point) (int64, error)
}

// A Label identifies a result's group in a group-by.
type Label struct {
	By     GroupBy
	Tags   []string // TagGroupBy: values of its tags, "" where a series has none
	Number int64    // Splitter: the group's number
}

package function

import "context"

// A Source provides series.
type Source interface {
	// Fetch returns for each query, in the same order, the series that match,
	// each on its own step. A series is left out if its step has no point in the
	// range, but not because it has no values there. The Source still owns the
	// values: they must be copied before they are changed. Memory of the values
	// is charged by the caller of Fetch again when it copies them.
	Fetch(ctx context.Context, queries []Query, within Range) ([][]Fetched, error)

	// Events returns the times of events, in seconds since 1970, that lie in
	// [from, until]. With tags, only events that have all of them.
	Events(ctx context.Context, tags []string, from, until int64) ([]int64, error)

	// Yield lets other requests have their turn, if this one has computed for long
	// enough. Functions call it between two steps of their work, from any goroutine.
	Yield() error
}

// A Range is what a request asks for, in seconds since 1970. Graphite leaves
// out a point at From and takes one at Until; the Source decides.
type Range struct {
	From, Until int64
	Now         int64 // may decide which retention a Source reads
}

// A Query selects series by the glob of a path, or by tag expressions.
type Query struct {
	// Text is the query as it was written: a path, or the call of seriesByTag.
	// Names of functions that combine series repeat it.
	Text string
	// ByTag tells the two apart. Expressions are the arguments of seriesByTag,
	// such as "name=disk.used" and "server=~web.*".
	ByTag       bool
	Expressions []string
}

// Fetched is one series of a Source. Value i is that of Start + i*Step. Null
// is NaN.
type Fetched struct {
	Name        string
	Start, Step int64
	Values      []float64
}

// A Budget is the memory that a request may take. Reserve is called before
// values are made and may be called from several goroutines. There is no
// release: what a request made counts until it ends.
type Budget interface {
	Reserve(bytes int64) error
}

// Package lookup lets tests read a keyspace as readers do.
package lookup

import (
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/model"
	"varve/internal/store"
)

// Reader returns a reader with cold caches, which assumes that the clocks of all servers are
// equal.
func Reader(b *keyspacetest.Bench) *read.Reader {
	b.T.Helper()
	c := read.DefaultConfig()
	c.Settle = 0
	r, err := read.New(b.KS, c, read.Options{})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(r.Close)
	return r
}

// Series returns the series of a metric that a reader with cold caches finds.
func Series(b *keyspacetest.Bench, metric string, matchers ...model.Matcher) []read.SeriesRows {
	b.T.Helper()
	series, err := Reader(b).Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime, Matchers: matchers})
	if err != nil {
		b.T.Fatal(err)
	}
	return series
}

package remove

import (
	"context"
	"math"
	"slices"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/store"
)

// deletePortion is how many row keys of a partition a delete has in memory at once.
const deletePortion = 20_000

var countTagRows = &cql.Statement{Name: "count_tag_rows", Level: cql.Everywhere, Text: rowkey.SelectTagRows + " LIMIT ?"}

const (
	// rareTag is up to how many row keys a matcher is chosen without counting those of the
	// other matchers.
	rareTag = 500

	// maxTagPlaces is the maximum number of partitions of the inverted index that are read for
	// one matcher.
	maxTagPlaces = 1000
)

// eachMatch calls f with the rows of one row time that deletions of one metric delete: i is the
// deletion, with at most most rows per call and each row at least once. It reads at a quorum,
// either row_keys or, for a single deletion, the inverted index of one of its tags.
func (d *Deleter) eachMatch(ctx context.Context, rowTimeMS int64, deletions []store.Deletion, most int, f func(i int, rows []rowDelete) error) error {
	part := rowkey.Partition{Metric: deletions[0].Metric, TimeMS: rowTimeMS}
	var places []rowkey.TagPlace
	if len(deletions) == 1 {
		var err error
		if places, err = d.rarestTag(ctx, part, deletions[0].Matchers); err != nil {
			return err
		}
	}
	matches := make([]matching, len(deletions))
	for i, del := range deletions {
		m := &matches[i]
		m.part, m.means, m.most, m.f = part, del.Meaning(), most, func(rows []rowDelete) error { return f(i, rows) }
		m.row, m.some = deletedColumns(d.ks.Spec, rowTimeMS, del.Range)
	}
	take := func(k rowkey.Key) error {
		if err := ctx.Err(); err != nil { // a page of row keys, compared with very many deletions, takes minutes
			return err
		}
		for i := range matches {
			if err := matches[i].take(k); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if places == nil {
		err = rowkey.Each(ctx, d.ks.Session, rowkey.ListRowKeys, part.Args(), take)
	}
	for _, at := range places {
		if err == nil {
			err = rowkey.Each(ctx, d.ks.Session, tagRowRuns.list, at.Args(part), take)
		}
	}
	for i := range matches {
		if m := &matches[i]; err == nil && (len(m.rows) > 0 || !m.told) {
			err = m.f(m.rows)
		}
	}
	return err
}

// A matching collects the rows that one deletion selects.
type matching struct {
	part  rowkey.Partition
	means func(model.Series) bool
	row   rowDelete // what is deleted from each row
	some  bool      // something is deleted from this row time
	most  int
	f     func([]rowDelete) error

	rows []rowDelete
	told bool
}

func (m *matching) take(k rowkey.Key) error {
	r := m.row
	r.key = k
	if !m.some || !m.means(m.part.Series(k)) {
		return nil
	}
	if m.rows = append(m.rows, r); len(m.rows) < m.most {
		return nil
	}
	rows := m.rows
	m.rows, m.told = nil, true
	return m.f(rows)
}

// rarestTag returns the partitions of the inverted index with the row keys of the matcher that
// has the fewest, as far as its counts tell. It returns nil if the index may lack row keys, or
// if no matcher has a small set of values.
func (d *Deleter) rarestTag(ctx context.Context, part rowkey.Partition, matchers []model.Matcher) (places []rowkey.TagPlace, err error) {
	literals := rowkey.Literals(matchers)
	if len(literals) == 0 || !d.ks.Tables.Own {
		return nil, nil
	}
	if covered, err := d.isCovered(ctx, part); err != nil || !covered {
		return nil, err
	}
	fewest := math.MaxInt
	for _, m := range literals {
		of := rowkey.PlacesOf(m, d.ks.IndexShards)
		if len(of) > maxTagPlaces {
			continue
		}
		n := 0
		for _, at := range of {
			err := rowkey.Each(ctx, d.ks.Session, countTagRows, append(at.Args(part), rareTag+1), func(rowkey.Key) error { n++; return nil })
			if err != nil {
				return nil, err
			}
			if n > rareTag {
				break
			}
		}
		if n < fewest {
			places, fewest = of, n
		}
		if n <= rareTag {
			return places, nil
		}
	}
	return places, nil
}

// isCovered reports whether the inverted index holds all row keys of a partition: see
// rowkey.State.
func (d *Deleter) isCovered(ctx context.Context, part rowkey.Partition) (bool, error) {
	state, err := rowkey.ReadState(ctx, d.ks, part)
	if err != nil || state.KairosMtime == (cql.UUID{}) {
		return false, err
	}
	s, err := rowkey.ReadStamp(ctx, d.ks.Session, part, cql.Everywhere)
	return err == nil && state.Covers(s), err
}

// bounds returns the first and the last row key in Cassandra's order.
func bounds(rows []rowDelete) (first, last rowkey.Key) {
	compare := func(a, b rowDelete) int { return a.key.Compare(b.key) }
	return slices.MinFunc(rows, compare).key, slices.MaxFunc(rows, compare).key
}

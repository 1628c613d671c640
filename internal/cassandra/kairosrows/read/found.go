package read

import (
	"math"
	"sync"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/store"
)

// Found contains the series that a Look has found, each with its rows. It implements
// layout.Found.
//
// All series are found before the first is returned. The row keys of a series are in one
// partition for each row time, and each partition has an order of its own; a cursor needs all
// of them, so the series are collected in a set. To keep that set small, row keys are shared
// with the lists that the Look keeps anyway, without a copy if a single partition has all of
// them, and series with the same rows share one set of rows.
type Found struct {
	look   *Look
	metric string
	keys   []rowkey.Key // may be shared with a keyList: never changed in place
	sets   []rowSet     // for each key, its rows
	rows   []rowLink
}

// A rowSet identifies a set of rows: the row at rows[rowSet-1], and those of the set that it
// links to. 0 is the empty set.
type rowSet int32

type rowLink struct {
	rest rowSet
	row  Row
}

// Len implements layout.Found.
func (f *Found) Len() int { return len(f.keys) }

// Series implements layout.Found.
func (f *Found) Series(place int) model.Series {
	return rowkey.Partition{Metric: f.metric}.Series(f.keys[place])
}

// rowsOf returns the rows of a series, ascending.
func (f *Found) rowsOf(place int) []Row {
	var rows []Row
	for set := f.sets[place]; set != 0; {
		link := f.rows[set-1]
		rows = append(rows, link.row)
		set = link.rest
	}
	return sortRows(rows)
}

// A gathering combines the rows of each series from all partitions.
type gathering struct {
	sel store.Selection

	mu     sync.Mutex
	found  *Found
	places map[rowkey.Key]int32 // position of each key; nil until there are keys of a second partition
}

// limit is up to how many keys of one partition are wanted, math.MaxInt if there is no limit.
func (g *gathering) limit() int {
	if g.sel.Limit > 0 {
		return g.sel.Limit
	}
	return math.MaxInt
}

// add adds a row to the series of keys. The caller must not change keys afterwards.
func (g *gathering) add(row Row, keys []rowkey.Key) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.found
	if f.keys == nil && f.look.reader.ordered { // in that case a partition has each key only once
		if err := g.sel.LimitCheck(int64(len(keys))); err != nil {
			return err
		}
		f.keys, f.sets = keys[:len(keys):len(keys)], make([]rowSet, len(keys))
		f.rows = append(f.rows, rowLink{row: row})
		for i := range f.sets {
			f.sets[i] = 1
		}
		return nil
	}
	return g.addKnown(row, keys)
}

// addKnown is add for keys that may already be present. g.mu must be held.
func (g *gathering) addKnown(row Row, keys []rowkey.Key) error {
	f := g.found
	if g.places == nil {
		g.places = make(map[rowkey.Key]int32, min(max(len(f.keys), len(keys)), g.limit()))
		for i, k := range f.keys {
			g.places[k] = int32(i)
		}
	}
	longer := map[rowSet]rowSet{} // from sets without the row to sets with it
	for _, k := range keys {
		at, ok := g.places[k]
		if !ok {
			at = int32(len(f.keys))
			g.places[k] = at
			f.keys, f.sets = append(f.keys, k), append(f.sets, 0)
		}
		with, ok := longer[f.sets[at]]
		if !ok {
			f.rows = append(f.rows, rowLink{f.sets[at], row})
			with = rowSet(len(f.rows))
			longer[f.sets[at]] = with
		}
		f.sets[at] = with
		if err := g.sel.LimitCheck(int64(len(f.keys))); err != nil {
			return err
		}
	}
	return nil
}

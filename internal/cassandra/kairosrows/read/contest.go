package read

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
)

// A contest finds out which of several matchers has the fewest row keys in the inverted index of
// one partition, and reads these:
//
//	round 1  a page of each value and shard, of all matchers. If some matchers are complete
//	         with that, the one with the fewest row keys wins
//	round 2  otherwise some further pages of each, by the same rule
//	round 3  otherwise the rest of the matcher with the fewest so far
//
// So a rare value combined with a common one costs about as much as the rare value alone. A
// single matcher is read completely in round 1.
type contest struct {
	look      *Look
	partition *partition
	want      wish // its limit applies to each value and shard

	ctx    context.Context // of the statements, which may last for all rounds
	cancel context.CancelFunc

	mu      sync.Mutex
	decided bool       // the rest of the round is of no use
	enough  *contender // has more row keys than are wanted, but is not complete
}

// A contender is a matcher, with its row keys as far as they are read.
type contender struct {
	matcher model.Matcher
	places  []contestPlace // by value, then by shard
	open    int            // places that are not read to their end
	keys    int
	kept    atomic.Int64 // bytes of row keys of all places
}

// A contestPlace is one partition of the inverted index.
type contestPlace struct {
	rowkey.TagPlace
	rows  *cql.Rows // nil before its first page is read
	in    *intake
	whole bool
}

// readIndex returns the lists of the matcher that won, one per value. If more row keys match than
// are wanted, the lists may be incomplete, but have more than wanted. If the lists would be too
// large, they contain only matching row keys.
func (l *Look) readIndex(ctx context.Context, p *partition, s rowkey.Stamp, literals []model.Matcher, want wish) ([]*keyList, error) {
	loading := l.reader.postings.begin(p.key)
	c := &contest{look: l, partition: p, want: want.among(literals[:1])}
	c.ctx, c.cancel = context.WithCancel(ctx)
	defer c.cancel()
	var all []*contender
	for _, m := range literals {
		of := &contender{matcher: m}
		for _, at := range rowkey.PlacesOf(m, l.reader.ks.IndexShards) {
			of.places = append(of.places, contestPlace{TagPlace: at})
		}
		of.open = len(of.places)
		defer of.close()
		all = append(all, of)
	}
	slices.SortStableFunc(all, func(a, b *contender) int { return cmp.Compare(len(a.places), len(b.places)) })
	rounds := []int{racedFirst, racedNext}
	if len(all) == 1 {
		rounds = []int{math.MaxInt}
	}
	var winner *contender
	var err error
	for _, most := range rounds {
		if winner, err = c.round(ctx, all, most); err != nil || c.enough != nil || winner.open == 0 {
			break
		}
	}
	if err == nil && c.enough == nil && winner.open > 0 {
		winner, err = c.round(ctx, []*contender{winner}, math.MaxInt)
	}
	if err != nil {
		return nil, err
	}
	for _, of := range all {
		if of != winner {
			if err := of.drop(); err != nil {
				return nil, err
			}
		}
	}
	lists := c.lists(winner)
	if c.enough != nil {
		return lists, nil
	}
	if err := l.verify(ctx, p, lists); err != nil {
		return nil, err
	}
	for i, list := range lists {
		if !list.some {
			l.keepPostings(p, tagPair{winner.matcher.Tag, winner.places[i*l.reader.ks.IndexShards].Value}, list, s, loading)
			l.trace[countIndexBytes].Add(list.bytes)
		}
	}
	return lists, nil
}

// round reads up to most row keys of each open place. It returns the best contender: a complete
// one with the fewest row keys or, if none is complete, the one with the fewest so far.
func (c *contest) round(ctx context.Context, contenders []*contender, most int) (*contender, error) {
	type task struct {
		of *contender
		at int
	}
	var tasks []task
	for _, of := range contenders {
		for at := range of.places {
			if !of.places[at].whole {
				tasks = append(tasks, task{of, at})
			}
		}
	}
	err := c.look.parallel(ctx, len(tasks), func(ctx context.Context, i int) error {
		defer context.AfterFunc(ctx, c.cancel)() // an error of one place ends the statements of all
		return c.readPlace(tasks[i].of, tasks[i].at, most)
	})
	if err != nil && !c.decided {
		return nil, err
	}
	if c.enough != nil {
		return c.enough, nil
	}
	return slices.MinFunc(contenders, func(a, b *contender) int {
		return cmp.Or(cmp.Compare(min(a.open, 1), min(b.open, 1)), cmp.Compare(a.keys, b.keys))
	}), nil
}

// readPlace reads up to most further row keys of a place. It returns errEnough if that decides
// the round.
func (c *contest) readPlace(of *contender, at, most int) error {
	l, place := c.look, &of.places[at]
	if place.rows == nil {
		st := readPostings
		if most < math.MaxInt {
			st = readPostingsRaced
		}
		place.in = l.newIntake(&of.kept, newHarvest(c.want))
		place.rows = l.query(c.ctx, st, place.Args(c.partition.key)...)
	}
	var name, tags cql.Raw
	dest := []any{&name, &tags}
	read := 0
	var k rowkey.Key
	var ended error
	for ended == nil && read < most && place.rows.Scan(dest...) {
		read++
		if ended = k.Decode(name, tags); ended == nil {
			ended = place.in.add(k, len(tags))
		}
	}
	l.trace[countIndexRows].Add(int64(read))
	whole := read < most
	if whole && ended == nil {
		ended = place.rows.Close()
	}
	return c.ended(of, place, read, whole, ended)
}

// ended records how a place was read.
func (c *contest) ended(of *contender, place *contestPlace, read int, whole bool, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	of.keys += read
	if err == nil && whole {
		place.whole = true
		of.open--
	}
	switch {
	case errors.Is(err, errEnough):
		c.enough, c.decided = of, true
	case err == nil && of.open == 0 && of.keys <= verifyBatch:
		c.decided, err = true, errEnough
	}
	return err
}

// close ends the statements.
func (of *contender) close() {
	for _, place := range of.places {
		if place.rows != nil {
			_ = place.rows.Close() // the error of a place that counts is known already
		}
	}
}

// drop gives back the memory of the row keys of a matcher that lost.
func (of *contender) drop() error {
	for _, place := range of.places {
		if place.in == nil {
			continue
		}
		if err := place.in.drop(); err != nil {
			return err
		}
	}
	return nil
}

// lists returns the row keys of each value.
func (c *contest) lists(of *contender) []*keyList {
	shards := c.look.reader.ks.IndexShards
	lists := make([]*keyList, len(of.places)/shards)
	for i := range lists {
		lists[i] = c.look.newList()
		for _, place := range of.places[i*shards : (i+1)*shards] {
			if place.in != nil {
				lists[i].take(place.in)
			}
		}
	}
	return lists
}

// verify removes keys that are not in row_keys from short lists.
func (l *Look) verify(ctx context.Context, p *partition, lists []*keyList) error {
	var keys []rowkey.Key
	for _, list := range lists {
		if len(list.keys) <= verifyBatch {
			keys = append(keys, list.keys...)
		}
	}
	found, err := l.existing(ctx, p, keys)
	if err != nil {
		return err
	}
	there := make(map[rowkey.Key]bool, len(found))
	for _, k := range found {
		there[k] = true
	}
	for _, list := range lists {
		if len(list.keys) <= verifyBatch {
			list.keys = slices.DeleteFunc(list.keys, func(k rowkey.Key) bool { return !there[k] })
			list.verified = true
		}
	}
	return nil
}

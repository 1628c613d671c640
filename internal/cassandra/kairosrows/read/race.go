package read

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/work"
)

// A race reads the inverted index of one partition for several matchers concurrently, and stops
// as soon as one of them has all of its row keys. Each matcher first reads one page per shard
// and value. If some are complete with that, the one with the fewest row keys wins. Otherwise
// only the one with the fewest so far continues. So a rare value combined with a common one
// costs about as much as the rare value alone.
type race struct {
	look      *Look
	partition *partition
	stamp     rowkey.Stamp
	want      wish // its limit applies to each value and shard

	turn *notify.Notifier // announces changes of the state of runners

	mu      sync.Mutex
	runners []*runner
	enough  *runner // the runner that has more row keys than are wanted; its lists are not complete
	err     error
}

// A runner reads the row keys of one matcher.
type runner struct {
	matcher model.Matcher
	values  []string
	lists   []*keyList // by value; complete when open is 0
	open    int        // number of streams that have not ended
	waiting int        // number of these that wait after their first page
	chosen  bool
	keys    int
	kept    atomic.Int64 // bytes of row keys in all lists
}

// race returns the lists of the matcher that won, one per value. If more row keys match than
// are wanted, the lists may be incomplete, but have more than wanted. If the lists would be too
// large, they contain only matching row keys.
func (l *Look) race(ctx context.Context, p *partition, s rowkey.Stamp, literals []model.Matcher, want wish) ([]*keyList, error) {
	raceCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &race{look: l, partition: p, stamp: s, want: want.among(literals[:1]), turn: notify.New()}
	loading := l.reader.postings.begin(p.key)
	var tasks sync.WaitGroup
	for _, m := range literals {
		run := &runner{matcher: m, values: rowkey.Distinct(m.Values)}
		run.open = len(run.values) * l.reader.ks.IndexShards
		for range run.values {
			run.lists = append(run.lists, l.newList())
		}
		r.runners = append(r.runners, run)
	}
	for _, run := range r.runners {
		for i := range run.values {
			for shard := range l.reader.ks.IndexShards {
				tasks.Go(func() { r.stream(raceCtx, run, i, shard) })
			}
		}
	}
	winner, err := r.wait(raceCtx)
	cancel()
	tasks.Wait()
	if err != nil {
		return nil, err
	}
	if winner == r.enough {
		return winner.lists, nil
	}
	if err := l.verify(ctx, p, winner.lists); err != nil {
		return nil, err
	}
	r.keep(winner, loading)
	return winner.lists, nil
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

// keep caches the winner's lists.
func (r *race) keep(winner *runner, since loading) {
	reader := r.look.reader
	until := reader.keptUntil(r.partition, r.stamp)
	for i, v := range winner.values {
		if winner.lists[i].some {
			continue
		}
		k := postingKey{r.partition.key, winner.matcher.Tag, v}
		r.partition.posting(k).set(winner.lists[i])
		reader.postings.put(k, winner.lists[i], r.partition.version(r.stamp), until, since)
		r.look.trace.indexBytes.Add(winner.lists[i].bytes)
	}
}

// wait returns the first runner that has ended. When all of them wait, it lets the best one
// continue.
func (r *race) wait(ctx context.Context) (winner *runner, err error) {
	ended := r.turn.Wait(ctx, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		winner, err = r.stateLocked(), r.err
		return err != nil || winner != nil
	})
	return winner, cmp.Or(ended, err)
}

// stateLocked returns a runner that has ended or, if all others wait, chooses one to continue.
func (r *race) stateLocked() *runner {
	var ended, best *runner
	begun := true // all have ended or read their first pages
	for _, run := range r.runners {
		switch {
		case run.open == 0 && (ended == nil || run.keys < ended.keys):
			ended = run
		case run.open == 0:
		case run.waiting < run.open:
			begun = false
		case best == nil || run.keys < best.keys:
			best = run
		}
	}
	if r.enough != nil {
		return r.enough
	}
	if ended != nil && (begun || ended.keys <= verifyBatch) {
		return ended
	}
	if !begun {
		return nil
	}
	if !best.chosen {
		best.chosen = true
		r.turn.Notify()
	}
	return nil
}

// change changes the state of a runner and announces that.
func (r *race) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.turn.Notify()
}

// stream reads one shard of one value.
func (r *race) stream(ctx context.Context, run *runner, value, shard int) {
	var in *intake
	var read, paused int
	err := work.Do("read the keys of a tag value", func() (err error) {
		in = r.look.newIntake(&run.kept, newHarvest(r.want))
		read, paused, err = r.read(ctx, run, in, value, shard)
		return err
	})
	r.change(func() {
		if err != nil && !errors.Is(err, errEnough) {
			if r.err == nil && ctx.Err() == nil {
				r.err = err
			}
			return
		}
		if err != nil && r.enough == nil {
			r.enough = run
		}
		run.lists[value].take(in)
		run.keys += read - paused
		run.open--
	})
}

// read reads the row keys of one shard. It returns how many there were, and how many of them it
// had reported when it paused.
func (r *race) read(ctx context.Context, run *runner, in *intake, value, shard int) (read, paused int, err error) {
	l := r.look
	if err := l.take(ctx); err != nil {
		return 0, 0, err
	}
	held := true
	defer func() {
		if held {
			<-l.slots
		}
	}()
	st := readPostingsRaced
	if len(r.runners) == 1 {
		st = readPostings
	}
	rows := l.query(ctx, st, r.partition.key.Metric, r.partition.key.TimeMS, run.matcher.Tag, run.values[value], shard)
	defer rows.Close()
	var d keyDecoder
	var name, tags cql.Raw
	dest := []any{&name, &tags}
	for rows.Scan(dest...) {
		k, err := d.keyOf(name, tags)
		if err != nil {
			return 0, 0, err
		}
		read++
		if err := in.add(k, len(tags)); err != nil {
			l.trace.indexRows.Add(int64(read))
			return read, paused, err
		}
		if read == racedPage && len(r.runners) > 1 {
			paused = racedPage
			<-l.slots
			held = false
			if err := r.pause(ctx, run, read); err != nil {
				return 0, 0, err
			}
			if err := l.take(ctx); err != nil {
				return 0, 0, err
			}
			held = true
		}
	}
	l.trace.indexRows.Add(int64(read))
	return read, paused, rows.Close()
}

// pause waits until the runner is chosen to continue.
func (r *race) pause(ctx context.Context, run *runner, keys int) error {
	r.change(func() {
		run.waiting++
		run.keys += keys
	})
	return r.turn.Wait(ctx, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if run.chosen {
			run.waiting--
		}
		return run.chosen
	})
}

// set stores a value that was loaded elsewhere.
func (o *once[T]) set(v T) {
	o.init.Do(func() { o.lock = make(chan struct{}, 1) })
	o.lock <- struct{}{}
	defer func() { <-o.lock }()
	if !o.loaded.Load() {
		o.value = v
		o.loaded.Store(true)
	}
}

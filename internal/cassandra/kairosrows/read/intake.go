package read

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/store"
)

var (
	// errEnough ends a read of row keys of which more match than are wanted.
	errEnough = errors.New("more row keys than wanted")

	// errMatchesOnly says that not all row keys of a partition were kept: the harvests
	// have those that match.
	errMatchesOnly = errors.New("only the matching row keys are kept")
)

// leastWidest is how many bytes of row keys a Look keeps of one partition at least, so
// that a request without a cache reads narrow ones once.
const leastWidest = 1 << 20

// widestFor returns how many bytes of row keys of one partition a Look keeps that wants
// only some of them: of so many, a cache of this size holds a few partitions.
func widestFor(cacheBytes int64) int64 { return max(cacheBytes/4, leastWidest) }

// A wish is which row keys of a partition a lookup wants, and how many are too many.
type wish struct {
	matchers []model.Matcher
	limit    int // math.MaxInt: any number is wanted

	// repeats says that a list may have a key several times: old servers hold one for each
	// order of its tags.
	repeats bool

	// tick is told of the work of each row key that is compared with patterns, see
	// [store.Selection]. nil: there are none, or nobody wants to know.
	tick func(work int) error
	work int
}

// newWish returns the wish of a selection. Without a Tick, comparing with patterns looks at the context.
func newWish(ctx context.Context, sel store.Selection, limit int, repeats bool) wish {
	w := wish{matchers: sel.Matchers, limit: limit, repeats: repeats}
	for _, m := range sel.Matchers {
		w.work += len(m.Patterns) * store.MatchWork("")
	}
	switch {
	case w.work == 0:
	case sel.Tick != nil:
		w.tick = sel.Tick
	default:
		w.tick = func(int) error { return ctx.Err() }
	}
	return w
}

// matches reports whether a row key is wanted.
func (w *wish) matches(k rowkey.Key) (bool, error) {
	if w.tick != nil && len(w.matchers) > 0 {
		if err := w.tick(w.work); err != nil {
			return false, err
		}
	}
	return model.MatchesAll(w.matchers, k.Tags), nil
}

// among returns the wish among row keys that have been found by some of its matchers.
func (w wish) among(by []model.Matcher) wish {
	if len(by) == len(w.matchers) {
		w.matchers = nil // all are wanted
	}
	return w
}

// enough reports whether so many keys of a list are more than wanted.
func (w *wish) enough(keys int) bool { return !w.repeats && keys > w.limit }

// A harvest is what a lookup gets of the row keys that are read for it and others.
type harvest struct {
	wish
	keys    []rowkey.Key // that match, of an intake that does not keep all; little more than the limit
	matched int          // keys so far; 0 if any number is wanted
	seen    map[rowkey.Key]struct{}
	gone    func() error // not nil: an error of it says that nobody waits for the harvest any more
}

func newHarvest(w wish) *harvest {
	h := &harvest{wish: w}
	if w.repeats && w.limit < math.MaxInt {
		h.seen = map[rowkey.Key]struct{}{}
	}
	return h
}

// see is given the next row key, to count it or to keep it.
func (h *harvest) see(k rowkey.Key, keep bool) error {
	if h.full() || h.limit == math.MaxInt && !keep || h.gone != nil && h.gone() != nil {
		return nil
	}
	if wanted, err := h.matches(k); err != nil || !wanted {
		return err
	}
	if keep {
		h.keys = append(h.keys, k)
	}
	switch {
	case h.limit == math.MaxInt:
	case h.seen != nil:
		h.seen[k] = struct{}{}
		h.matched = len(h.seen)
	default:
		h.matched++
	}
	return nil
}

// full reports whether more matched than are wanted.
func (h *harvest) full() bool { return h.matched > h.limit }

// reset empties a harvest, for another read.
func (h *harvest) reset() {
	h.keys, h.matched = nil, 0
	clear(h.seen)
}

// An intake takes the row keys of a partition, or of a tag, as they are read. It keeps
// all, so that others find theirs among them later, until they are too wide: from then on
// it keeps what is wanted. So a read needs memory for what matches, up to the limits, and
// not for what is looked through.
type intake struct {
	list     *keyList // empty if thin
	harvests []*harvest
	widest   int64
	kept     *atomic.Int64 // bytes of row keys, of all intakes of the same read
	thin     bool          // only the harvests have row keys: what is wanted
}

// newIntake returns one for some harvests. It keeps all if there are none, or if one of
// them wants all.
func (l *Look) newIntake(kept *atomic.Int64, harvests ...*harvest) *intake {
	in := &intake{list: l.newList(), harvests: harvests, widest: l.reader.widest, kept: kept}
	for _, h := range harvests {
		if len(h.matchers) == 0 {
			in.widest = math.MaxInt64
		}
	}
	if len(harvests) == 0 {
		in.widest = math.MaxInt64
	}
	return in
}

// add takes a row key. The error is errEnough if all harvests are full.
func (in *intake) add(k rowkey.Key, tagBytes int) error {
	enough := len(in.harvests) > 0
	for _, h := range in.harvests {
		if err := h.see(k, in.thin); err != nil {
			return err
		}
		enough = enough && h.full()
	}
	if !in.thin {
		in.list.add(k, tagBytes)
		if in.kept.Add(int64(tagBytes)+keyOverhead) > in.widest {
			if err := in.thinOut(); err != nil {
				return err
			}
		}
	}
	if enough {
		return errEnough
	}
	return nil
}

// thinOut keeps from here on only what is wanted.
func (in *intake) thinOut() (err error) {
	for _, h := range in.harvests {
		if h.keys, err = in.list.only(h.wish); err != nil {
			return err
		}
	}
	in.list.keys, in.list.bytes, in.thin = nil, 0, true
	return nil
}

// end returns the list of all row keys after the last one was taken. The error of the read
// is that of the last add. The error of end is errMatchesOnly if there is no such list.
func (in *intake) end(err error) (*keyList, error) {
	if err != nil && err != errEnough {
		return nil, err
	}
	if err != nil && !in.thin {
		if err := in.thinOut(); err != nil {
			return nil, err
		}
	}
	if in.thin {
		return nil, errMatchesOnly
	}
	return in.list, nil
}

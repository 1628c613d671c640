package read

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/store"
)

var (
	// errEnough ends a read of row keys once more match than are wanted.
	errEnough = errors.New("more row keys than wanted")

	// errMatchesOnly means that not all row keys of a partition were kept: the harvests have
	// the matching ones.
	errMatchesOnly = errors.New("only the matching row keys are kept")
)

// leastWidest is the minimum of widestFor, so that a request without a cache reads narrow
// partitions only once.
const leastWidest = 1 << 20

// widestFor returns how many bytes of row keys of one partition are kept when only some of them
// are wanted. A cache of this size has room for a few such partitions.
func widestFor(cacheBytes int64) int64 { return max(cacheBytes/4, leastWidest) }

// A wish says which row keys of a partition a lookup wants, and up to how many.
type wish struct {
	matchers []model.Matcher
	filter   model.Filter // of the matchers
	limit    int          // math.MaxInt if any number is wanted

	// repeats says that a list may contain a key several times: old servers store one for each
	// order of its tags.
	repeats bool

	// tick is called with the work of comparing each row key with patterns, see
	// [store.Selection]. It is nil if there are no patterns, or no caller needs it.
	tick func(work int) error
	work int

	hold func(bytes int64) error // of the Look; nil if another request does the reading
}

// newWish returns the wish of a selection. Without a Tick, comparing with patterns checks the
// context.
func newWish(ctx context.Context, sel store.Selection, limit int, repeats bool) wish {
	w := wish{matchers: sel.Matchers, filter: model.NewFilter(sel.Matchers), limit: limit, repeats: repeats}
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
	return w.filter.Matches(k.Tags), nil
}

// among returns the wish for row keys that were found by some of its matchers.
func (w wish) among(by []model.Matcher) wish {
	if len(by) == len(w.matchers) {
		w.matchers, w.filter = nil, model.Filter{} // all of these are wanted
	}
	return w
}

// holdKey reserves the memory of a row key that is kept because it is wanted.
func (w *wish) holdKey(k rowkey.Key) error {
	if w.hold == nil {
		return nil
	}
	return w.hold(memoryOf(k))
}

// memoryOf is the memory of a row key.
func memoryOf(k rowkey.Key) int64 { return int64(cql.TagMap{Tags: k.Tags}.Size()) + keyOverhead }

// enough reports whether that many keys of a list are more than wanted.
func (w *wish) enough(keys int) bool { return !w.repeats && keys > w.limit }

// A harvest collects what one lookup wants from row keys that are read for it and others.
type harvest struct {
	wish
	keys    []rowkey.Key // matching keys of an intake that does not keep all; at most slightly more than the limit
	matched int          // matching keys so far; 0 if any number is wanted
	seen    map[rowkey.Key]struct{}
	gone    func() error // if not nil, returns an error once the lookup no longer waits for the harvest
}

func newHarvest(w wish) *harvest {
	h := &harvest{wish: w}
	if w.repeats && w.limit < math.MaxInt {
		h.seen = map[rowkey.Key]struct{}{}
	}
	return h
}

// see processes the next row key: it counts it, and keeps it if keep is set.
func (h *harvest) see(k rowkey.Key, keep bool) error {
	if h.full() || h.limit == math.MaxInt && !keep || h.gone != nil && h.gone() != nil {
		return nil
	}
	if wanted, err := h.matches(k); err != nil || !wanted {
		return err
	}
	if keep {
		if err := h.holdKey(k); err != nil {
			return err
		}
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

// full reports whether more keys matched than are wanted.
func (h *harvest) full() bool { return h.matched > h.limit }

// bytes returns the memory of its row keys.
func (h *harvest) bytes() (n int64) {
	for _, k := range h.keys {
		n += memoryOf(k)
	}
	return n
}

// reset empties a harvest for another read.
func (h *harvest) reset() {
	h.keys, h.matched = nil, 0
	clear(h.seen)
}

// An intake receives the row keys of a partition, or of a tag, as they are read. It keeps all
// of them for later lookups, unless they exceed a limit: then it keeps only wanted row keys. So
// the memory of a read is bounded by the matching row keys, up to the limits, and not by those
// read.
type intake struct {
	list     *keyList // empty if thin
	harvests []*harvest
	widest   int64
	kept     *atomic.Int64 // bytes of row keys in all intakes of the same read
	hold     func(bytes int64) error
	thin     bool // only the harvests have row keys, the wanted ones
}

// newIntake returns an intake for some harvests. It keeps all row keys if there are no
// harvests, or if one of them wants all.
func (l *Look) newIntake(kept *atomic.Int64, harvests ...*harvest) *intake {
	in := &intake{list: l.newList(), harvests: harvests, widest: l.reader.widest, kept: kept, hold: l.hold}
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

// add processes a row key. It returns errEnough if all harvests are full.
func (in *intake) add(k rowkey.Key, tagBytes int) error {
	enough := len(in.harvests) > 0
	for _, h := range in.harvests {
		if err := h.see(k, in.thin); err != nil {
			return err
		}
		enough = enough && h.full()
	}
	if !in.thin {
		if err := in.hold(int64(tagBytes) + keyOverhead); err != nil {
			return err
		}
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

// thinOut makes the intake keep only wanted row keys from now on.
func (in *intake) thinOut() (err error) {
	for _, h := range in.harvests {
		if h.keys, err = in.list.only(h.wish); err != nil {
			return err
		}
	}
	held := in.list.bytes
	in.list.keys, in.list.bytes, in.thin = nil, 0, true
	return in.hold(-held)
}

// drop gives back the memory of row keys that are of no use.
func (in *intake) drop() error {
	held := in.list.bytes
	for _, h := range in.harvests {
		held += h.bytes()
		h.reset()
	}
	in.list.keys, in.list.bytes = nil, 0
	return in.hold(-held)
}

// end returns the list of all row keys at the end of a read. err is the error of the read,
// which may be that of the last add. If not all row keys were kept, end returns errMatchesOnly.
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

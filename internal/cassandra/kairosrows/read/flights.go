package read

import (
	"context"
	"errors"
	"slices"
	"sync"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

// flights share reads of whole partitions among concurrent callers. At most one read of a
// partition is in progress, and at most one is queued behind it. A caller that arrives during a
// read does not use its result, because that read may have passed the position of a row key
// that was written before the caller's query. It joins the queued read instead. So a query sees
// all row keys that existed when it began, and a partition is never read twice at once. Each
// caller passes a harvest, which collects the row keys that the caller wants from a partition
// that is too wide to be kept.
//
//	read 1   |=====================|              for A
//	read 2                         |============| for B, C and D, by one of them
//	calls    A      B    C      D
type flights struct {
	mu     sync.Mutex
	flying map[flightKey]*flight
	next   map[flightKey]*flight // queued: callers may still join
}

// Callers share a read only if they want the same consistency.
type flightKey struct {
	rowkey.Partition
	level cql.Level
}

// A flight is one read.
type flight struct {
	landed   chan struct{}
	list     *keyList
	err      error
	harvests []*harvest // of the callers that joined before it began; guarded by flights.mu
}

// take returns the result of a call of load that began after take was called. The caller itself
// or another waiting caller makes that call, with the harvests of all of them, and in its own
// context. If that context ends, the others load for themselves.
func (f *flights) take(ctx context.Context, k flightKey, h *harvest, load func([]*harvest) (*keyList, error)) (list *keyList, shared bool, err error) {
	for {
		h.reset()
		own, before := f.join(k, h)
		if before != nil {
			select {
			case <-before.landed:
			case <-ctx.Done():
				f.leave(k, own, h)
				return nil, false, ctx.Err()
			}
		}
		if all := f.begin(k, own); all != nil {
			own.list, own.err = load(all)
			f.end(k, own)
			return own.list, false, own.err
		}
		select {
		case <-own.landed:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		if own.err == nil || errors.Is(own.err, errMatchesOnly) {
			return own.list, true, own.err
		}
	}
}

// join returns the flight to wait for, and the flight in progress, if any.
func (f *flights) join(k flightKey, h *harvest) (own, before *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[k] == nil {
		if f.next == nil {
			f.next, f.flying = map[flightKey]*flight{}, map[flightKey]*flight{}
		}
		f.next[k] = &flight{landed: make(chan struct{})}
	}
	f.next[k].harvests = append(f.next[k].harvests, h)
	return f.next[k], f.flying[k]
}

// leave undoes join, unless the flight has begun. A flight without waiting callers is removed.
func (f *flights) leave(k flightKey, own *flight, h *harvest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[k] != own {
		return
	}
	own.harvests = slices.DeleteFunc(own.harvests, func(o *harvest) bool { return o == h })
	if len(own.harvests) == 0 {
		delete(f.next, k)
	}
}

// begin returns the harvests of all waiting callers if the caller must load, because no other
// has begun to; otherwise nil.
func (f *flights) begin(k flightKey, own *flight) []*harvest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[k] != own {
		return nil
	}
	f.flying[k] = own
	delete(f.next, k)
	return own.harvests
}

func (f *flights) end(k flightKey, own *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flying, k)
	close(own.landed)
}

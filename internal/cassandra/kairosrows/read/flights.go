package read

import (
	"context"
	"errors"
	"slices"
	"sync"

	"varve/internal/cassandra/kairosrows/rowkey"
)

// Flights share whole reads of partitions among those who want the same at the
// same time. There is one under way for each partition, and at most one behind
// it. A caller that comes while one is under way does not use its result, which may
// have read past a row key that is older than the caller's query: it waits for the
// next read, together with all others that wait. So a query sees all that was there
// when it began, and a partition is not read twice at once. Each caller brings a harvest,
// which gets what the caller wants of a partition that is too wide to be kept.
type flights struct {
	mu     sync.Mutex
	flying map[rowkey.Partition]*flight
	next   map[rowkey.Partition]*flight // not begun: callers may still join
}

// A flight is one read.
type flight struct {
	landed   chan struct{}
	list     *keyList
	err      error
	harvests []*harvest // of callers that joined before it began; flights.mu must be held
}

// take returns what load returns, called by the caller or by another one after
// take was, with the harvests of all who want it. The caller that loads does so in its own
// context: if that ends, the others load for themselves.
func (f *flights) take(ctx context.Context, k rowkey.Partition, h *harvest, load func([]*harvest) (*keyList, error)) (list *keyList, shared bool, err error) {
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

// join returns the flight to wait for, and the one that is under way, if any.
func (f *flights) join(k rowkey.Partition, h *harvest) (own, before *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[k] == nil {
		if f.next == nil {
			f.next, f.flying = map[rowkey.Partition]*flight{}, map[rowkey.Partition]*flight{}
		}
		f.next[k] = &flight{landed: make(chan struct{})}
	}
	f.next[k].harvests = append(f.next[k].harvests, h)
	return f.next[k], f.flying[k]
}

// leave takes back a join, unless the flight has begun. A flight without waiting callers is
// forgotten.
func (f *flights) leave(k rowkey.Partition, own *flight, h *harvest) {
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

// begin returns the harvests of all who wait if the caller has to load, since no other
// caller has begun; else nil.
func (f *flights) begin(k rowkey.Partition, own *flight) []*harvest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[k] != own {
		return nil
	}
	f.flying[k] = own
	delete(f.next, k)
	return own.harvests
}

func (f *flights) end(k rowkey.Partition, own *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flying, k)
	close(own.landed)
}

package read

import (
	"context"
	"sync"

	"varve/internal/cassandra/kairosrows/rowkey"
)

// Flights share whole reads of partitions among those who want the same at the
// same time. There is one under way for each partition, and at most one behind
// it. A caller that comes while one is under way does not use its result, which may
// have read past a row key that is older than the caller's query: it waits for the
// next read, together with all others that wait. So a query sees all that was there
// when it began, and a partition is not read twice at once.
type flights struct {
	mu     sync.Mutex
	flying map[rowkey.Partition]*flight
	next   map[rowkey.Partition]*flight // not begun: callers may still join
}

// A flight is one read.
type flight struct {
	landed  chan struct{}
	list    *keyList
	err     error
	waiting int // callers that joined before it began; flights.mu must be held
}

// take returns what load returns, called by the caller or by another one after
// take was. The caller that loads does so in its own context: if that ends, the
// others load for themselves.
func (f *flights) take(ctx context.Context, k rowkey.Partition, load func() (*keyList, error)) (list *keyList, shared bool, err error) {
	for {
		own, before := f.join(k)
		if before != nil {
			select {
			case <-before.landed:
			case <-ctx.Done():
				f.leave(k, own)
				return nil, false, ctx.Err()
			}
		}
		if f.begin(k, own) {
			own.list, own.err = load()
			f.end(k, own)
			return own.list, false, own.err
		}
		select {
		case <-own.landed:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		if own.err == nil {
			return own.list, true, nil
		}
	}
}

// join returns the flight to wait for, and the one that is under way, if any.
func (f *flights) join(k rowkey.Partition) (own, before *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[k] == nil {
		if f.next == nil {
			f.next, f.flying = map[rowkey.Partition]*flight{}, map[rowkey.Partition]*flight{}
		}
		f.next[k] = &flight{landed: make(chan struct{})}
	}
	f.next[k].waiting++
	return f.next[k], f.flying[k]
}

// leave takes back a join. A flight without waiting callers is forgotten.
func (f *flights) leave(k rowkey.Partition, own *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own.waiting--; own.waiting == 0 && f.next[k] == own {
		delete(f.next, k)
	}
}

// begin reports whether the caller has to load: no other caller has begun.
func (f *flights) begin(k rowkey.Partition, own *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[k] != own {
		return false
	}
	f.flying[k] = own
	delete(f.next, k)
	return true
}

func (f *flights) end(k rowkey.Partition, own *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flying, k)
	close(own.landed)
}

package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"varve/internal/timeline"
)

// numbersMax bounds the numbers of timelines that are kept in memory.
const numbersMax = 1 << 16

// numbers remembers the numbers of timelines.
type numbers struct {
	sync.RWMutex
	known map[string]number
}

// number returns the number of a timeline, and whether it has a history.
func (s *Shelf) number(name string) (number, bool, error) {
	s.numbers.RLock()
	n, ok := s.numbers.known[name]
	s.numbers.RUnlock()
	if ok {
		return n, true, nil
	}
	// Under the lock, so that a history that is removed meanwhile is not remembered: see forget.
	s.numbers.Lock()
	defer s.numbers.Unlock()
	n, _, found, err := s.history(name)
	if err != nil || !found {
		return 0, false, err
	}
	if len(s.numbers.known) >= numbersMax {
		clear(s.numbers.known)
	}
	s.numbers.known[name] = n
	return n, true, nil
}

// forget drops the number of a timeline. It is called after the history was removed.
func (s *Shelf) forget(name string) {
	s.numbers.Lock()
	delete(s.numbers.known, name)
	s.numbers.Unlock()
}

// history reads a row.
func (s *Shelf) history(name string) (n number, h timeline.History, found bool, err error) {
	found, err = s.get("read the layout of a timeline", historyKey(name), func(value []byte) error {
		if n, h, err = parseHistory(value); err != nil {
			return s.damaged("the layout of timeline %q: %v", name, err)
		}
		return nil
	})
	return n, h, found, err
}

func parseHistory(value []byte) (n number, h timeline.History, err error) {
	if len(value) < 4 {
		return 0, h, fmt.Errorf("%d bytes, want at least 4", len(value))
	}
	if err := json.Unmarshal(value[4:], &h); err != nil {
		return 0, h, err
	}
	return number(binary.BigEndian.Uint32(value)), h, nil
}

// History implements [timeline.Shelf].
func (s *Shelf) History(ctx context.Context, name string) (timeline.History, error) {
	if err := s.beginRead(ctx); err != nil {
		return timeline.History{}, err
	}
	defer s.end()
	_, h, _, err := s.history(name)
	return h, err
}

// SetHistory implements [timeline.Shelf].
func (s *Shelf) SetHistory(ctx context.Context, name string, old uint64, h timeline.History) error {
	begin := s.beginWrite
	if h.Version == 0 {
		begin = s.beginErase
	}
	if err := begin(ctx); err != nil {
		return err
	}
	defer s.end()
	s.meta.Lock()
	defer s.meta.Unlock()
	n, stored, found, err := s.history(name)
	if err != nil {
		return err
	}
	if stored.Version != old {
		return timeline.ErrConflict
	}
	b := s.db.NewBatch()
	defer b.Close()
	if h.Version == 0 {
		return s.removeHistory(b, name, n, found)
	}
	next := s.meta.next
	if !found {
		n, next = s.meta.next, s.meta.next+1
		if next == 0 {
			return errors.New("4 billion timelines were created in this store: it has no numbers left for new ones")
		}
		if err := setMeta(b, "next number", uint32(next)); err != nil {
			return err
		}
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := b.Set(historyKey(name), append(binary.BigEndian.AppendUint32(nil, uint32(n)), text...), nil); err != nil {
		return err
	}
	if err := s.commit(b, nil); err != nil {
		return err
	}
	s.meta.next = next
	if !found {
		s.meta.count++
	}
	return nil
}

// removeHistory removes a timeline with all of its rows.
func (s *Shelf) removeHistory(b *pebble.Batch, name string, n number, found bool) error {
	if !found {
		return nil
	}
	err := b.Delete(historyKey(name), nil)
	for _, table := range []byte{tableEvent, tableMark, tableArrival, tableFloor} {
		err = errors.Join(err, b.DeleteRange(numbered(table, n), afterNumber(table, n), nil))
	}
	if err != nil {
		return err
	}
	err = s.commit(b, func() error {
		delete(s.order.logs, n)
		return nil
	})
	if err == nil {
		s.meta.count--
		s.forget(name)
	}
	return err
}

// Names implements [timeline.Shelf].
func (s *Shelf) Names(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	lower := historyKey(prefix)
	if next := append(historyKey(after), 0); after != "" && bytes.Compare(next, lower) > 0 {
		lower = next
	}
	var names []string
	err := s.walk(ctx, "list timelines", lower, []byte{tableHistory + 1}, false, func(it *pebble.Iterator) (bool, error) {
		name := it.Key()[1:]
		if !bytes.HasPrefix(name, []byte(prefix)) {
			return false, nil
		}
		names = append(names, string(name))
		return len(names) < limit, nil
	})
	return names, err
}

// Count implements [timeline.Shelf].
func (s *Shelf) Count(context.Context) (int, error) {
	s.meta.Lock()
	defer s.meta.Unlock()
	return s.meta.count, nil
}

func (s *Shelf) countHistories() (n int, err error) {
	err = s.walk(context.Background(), "count timelines", []byte{tableHistory}, []byte{tableHistory + 1}, false, func(*pebble.Iterator) (bool, error) {
		n++
		return true, nil
	})
	return n, err
}

// Mark implements [timeline.Shelf].
func (s *Shelf) Mark(ctx context.Context, name string, starts []int64, now time.Time) error {
	return s.changeMarks(ctx, s.beginWrite, name, func(b *pebble.Batch, n number) error {
		at := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMicro()))
		for _, start := range starts {
			if err := b.Set(markKey(n, start), at, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Unmark implements [timeline.Shelf].
func (s *Shelf) Unmark(ctx context.Context, name string, starts []int64, before time.Time) error {
	return s.changeMarks(ctx, s.beginErase, name, func(b *pebble.Batch, n number) error {
		for _, start := range starts {
			_, err := s.get(readMarks, markKey(n, start), func(value []byte) error {
				if len(value) != 8 {
					return s.damaged("the mark of a bucket has %d bytes, want 8", len(value))
				}
				if at := int64(binary.BigEndian.Uint64(value)); at >= before.UnixMicro() {
					return nil
				}
				return b.Delete(markKey(n, start), nil)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// changeMarks holds meta, so that Unmark does not remove a mark that Mark sets again meanwhile.
func (s *Shelf) changeMarks(ctx context.Context, begin func(context.Context) error, name string, change func(*pebble.Batch, number) error) error {
	if err := begin(ctx); err != nil {
		return err
	}
	defer s.end()
	s.meta.Lock()
	defer s.meta.Unlock()
	n, found, err := s.number(name)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("mark buckets: timeline %q has no history", name)
	}
	b := s.db.NewBatch()
	defer b.Close()
	if err := change(b, n); err != nil || b.Empty() {
		return err
	}
	return s.commit(b, nil)
}

const readMarks = "read the directory of buckets"

// Marks implements [timeline.Shelf].
func (s *Shelf) Marks(ctx context.Context, name string, from, toExcl int64, d timeline.Direction, limit int) ([]int64, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	n, found, err := s.number(name)
	if err != nil || !found || from >= toExcl {
		return nil, err
	}
	var starts []int64
	err = s.walk(ctx, readMarks, markKey(n, from), markKey(n, toExcl), d == timeline.Descending, func(it *pebble.Iterator) (bool, error) {
		starts = append(starts, int64(binary.BigEndian.Uint64(it.Key()[5:])^1<<63))
		return len(starts) < limit, nil
	})
	return starts, err
}

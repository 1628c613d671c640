package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/work"
)

// Older versions kept events as key-values, too:
//
//	service   service key   key                                 text
//	_Events   days          2024-03-10
//	_Events   2024-03-10    1710071700.000001.9f86d081 deploy web   {"what":"...","data":"..."}
//
// with the second, the number within it, a mark of the process, and the tags in the key.
// They are moved to the timeline before the first request is answered. A day without events
// stays entered for settledAfter, because another server of an older version may add events
// without entering the day again. Once no day is entered, a look is one read.
const daysKey = "days"

// lookAgain is how long after a look for such events another one is taken. It finds
// something only while servers of an older version share the store.
const lookAgain = time.Hour

// settledAfter is how long after its last change a day without events is taken off the list:
// longer than servers of two versions share a store.
const settledAfter = 7 * 24 * time.Hour

const (
	daysAtOnce  = 8   // that are looked at
	textsAtOnce = 16  // that are read or removed: over Cassandra each is a round trip
	movedAtOnce = 100 // events that one call puts into the timeline
)

// ready moves what older versions have kept, if it was not looked for lately.
func (l *Log) ready(ctx context.Context) error {
	if l.lookedLately() {
		return nil
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.end()
	if l.lookedLately() {
		return nil
	}
	if err := l.move(ctx); err != nil {
		return fmt.Errorf("move the events of an older version to the timeline %s: %w", Timeline, err)
	}
	l.looked.Store(time.Now().Unix())
	return nil
}

func (l *Log) lookedLately() bool {
	return time.Since(time.Unix(l.looked.Load(), 0)) < lookAgain
}

func (l *Log) move(ctx context.Context) error {
	days, err := l.keys(ctx, daysKey)
	if err != nil {
		return err
	}
	return work.Parallel(ctx, daysAtOnce, len(days), "move events of a day", func(ctx context.Context, i int) error {
		keys, err := l.keys(ctx, days[i])
		if len(keys) == 0 && err == nil {
			return l.settle(ctx, days[i])
		}
		for len(keys) > 0 && err == nil {
			n := min(movedAtOnce, len(keys))
			err = l.moveSome(ctx, days[i], keys[:n])
			keys = keys[n:]
		}
		return err
	})
}

// settle takes a day without events off the list if it has not changed for long.
func (l *Log) settle(ctx context.Context, day string) error {
	changed, err := l.values.Modified(ctx, service, day)
	if err != nil || time.Since(changed) < l.settledAfter {
		return err
	}
	entry, err := l.values.Get(ctx, service, daysKey, day)
	if errors.Is(err, store.ErrNotFound) { // another server has done it
		return nil
	}
	if err != nil || time.Since(entry.Modified) < l.settledAfter {
		return err
	}
	return l.values.Unset(ctx, service, daysKey, day)
}

// keys lists the keys of a day, or the days.
func (l *Log) keys(ctx context.Context, serviceKey string) (all []string, err error) {
	for key, err := range l.values.Keys(ctx, service, serviceKey, "") {
		if err != nil {
			return nil, err
		}
		all = append(all, key)
	}
	return all, nil
}

// moveSome puts events of a day into the timeline and then removes their keys. Repeated
// after a crash in between, it puts the same events. One that cannot be moved stays where
// it is.
func (l *Log) moveSome(ctx context.Context, day string, keys []string) error {
	faults := make([]error, len(keys))
	events := make([]timeline.Addressed, len(keys))
	err := work.Parallel(ctx, textsAtOnce, len(keys), "read events", func(ctx context.Context, i int) error {
		text, err := l.values.Get(ctx, service, day, keys[i])
		if err != nil && !errors.Is(err, store.ErrNotFound) { // another server has moved it
			return err
		}
		if faults[i] = err; err == nil {
			events[i], faults[i] = parseOlder(keys[i], text.Text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var sound []timeline.Addressed
	var from []int // which key each is of
	for i := range events {
		if faults[i] == nil {
			sound, from = append(sound, events[i]), append(from, i)
		}
	}
	r, err := l.timelines.Append(ctx, sound)
	if err != nil {
		return err
	}
	for _, rejected := range r.Rejected {
		faults[from[rejected.Index]] = rejected.Err
	}
	return work.Parallel(ctx, textsAtOnce, len(keys), "remove events that were moved", func(ctx context.Context, i int) error {
		if faults[i] == nil {
			return l.values.Unset(ctx, service, day, keys[i])
		}
		if !errors.Is(faults[i], store.ErrNotFound) {
			l.log.Error("cannot move an event of an older version to the timeline; it stays where it is", "day", day, "key", keys[i], "error", faults[i])
		}
		return nil
	})
}

// parseOlder reads a key-value of an older version. Several processes may have given one
// number, so the id in the timeline is made of the whole key.
func parseOlder(key, text string) (timeline.Addressed, error) {
	words := strings.Split(key, " ")
	parts := strings.Split(words[0], ".")
	if len(parts) != 3 || len(parts[0]) != 10 || len(parts[1]) != 6 {
		return timeline.Addressed{}, badOlder(key)
	}
	when, err1 := strconv.ParseInt(parts[0], 10, 64)
	number, err2 := strconv.ParseInt(parts[1], 10, 64)
	var s stored
	if err := errors.Join(err1, err2, json.Unmarshal([]byte(text), &s)); err != nil || when < 0 || number < 0 || number >= 1<<numberBits {
		return timeline.Addressed{}, badOlder(key)
	}
	s.Tags = words[1:]
	data, err := json.Marshal(s)
	id := fmt.Sprintf("%.8s.%08x", parts[2], crc32.ChecksumIEEE([]byte(key)))
	return timeline.Addressed{Event: timeline.Event{Time: when*second + number, ID: id, Data: data}, Timelines: []string{Timeline}}, err
}

func badOlder(key string) error {
	return &store.CorruptionError{File: "key-values of " + service, Reason: fmt.Sprintf("%.100q is no key of an event, or its text is none", key)}
}

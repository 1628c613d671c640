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

// Older versions stored events as key-values:
//
//	service   service key   key                                 text
//	_Events   days          2024-03-10
//	_Events   2024-03-10    1710071700.000001.9f86d081 deploy web   {"what":"...","data":"..."}
//
// The key of an event has the second, the number within it, an identifier of the process,
// and the tags. Such events are moved to the timeline before the first request is answered.
// An empty day stays in the list of days for settledAfter, because another server of an
// older version may add events without listing the day again. Once the list is empty, a
// check for such events is one read.
const daysKey = "days"

// lookAgain is the interval of checks for such events. After the first check there are new
// ones only while servers of an older version share the store.
const lookAgain = time.Hour

// settledAfter is how long after its last change an empty day is removed from the list. It
// must be longer than servers of two versions share a store.
const settledAfter = 7 * 24 * time.Hour

const (
	daysAtOnce  = 8   // days that are processed in parallel
	textsAtOnce = 16  // keys that are read or removed in parallel: over Cassandra each is a round trip
	movedAtOnce = 100 // events in one append to the timeline
)

// ready moves the events of older versions to the timeline, unless it did so within
// lookAgain.
func (l *Log) ready(ctx context.Context) error {
	if l.lookedLately() {
		return nil
	}
	release, err := work.Take(ctx, l.turn)
	if err != nil {
		return err
	}
	defer release()
	if l.lookedLately() {
		return nil
	}
	if err := l.move(ctx); err != nil {
		return fmt.Errorf("move the events of an older version to the timeline %s: %w", Timeline, err)
	}
	l.looked.Store(time.Now().Unix())
	return nil
}

// lookedLately reports whether the last check was within lookAgain. A check further than lookAgain
// in the future was made before the clock was set back: its age is unknown.
func (l *Log) lookedLately() bool {
	age := time.Since(time.Unix(l.looked.Load(), 0))
	return age >= -lookAgain && age < lookAgain
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

// settle removes an empty day from the list if it has not changed for settledAfter.
func (l *Log) settle(ctx context.Context, day string) error {
	changed, err := l.values.Modified(ctx, service, day)
	if err != nil || time.Since(changed) < l.settledAfter {
		return err
	}
	entry, err := l.values.Get(ctx, service, daysKey, day)
	if errors.Is(err, store.ErrNotFound) { // another server has already removed it
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

// moveSome appends events of a day to the timeline and then removes their keys. After a
// crash in between, the next run appends the same events again, with the same ids. An
// event that cannot be moved keeps its key.
func (l *Log) moveSome(ctx context.Context, day string, keys []string) error {
	faults := make([]error, len(keys))
	events := make([]timeline.Addressed, len(keys))
	err := work.Parallel(ctx, textsAtOnce, len(keys), "read events", func(ctx context.Context, i int) error {
		text, err := l.values.Get(ctx, service, day, keys[i])
		if err != nil && !errors.Is(err, store.ErrNotFound) { // another server has already moved it
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
	var from []int // the index in keys of each
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

// parseOlder parses a key-value of an older version. Several processes may have used the
// same number, so the id in the timeline is derived from the whole key.
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
	return &store.CorruptionError{File: "key-values of " + service, Reason: fmt.Sprintf("%.100q is not the key of an event, or its text is not an event", key)}
}

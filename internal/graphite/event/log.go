package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/work"
)

// Timeline is the name of the timeline with the events.
const Timeline = "_graphite.events"

// Own returns the layout of the timeline, for timeline.Options. A bucket is a day, so that
// all events that Log accepts for a day fit into one partition.
func Own() map[string]timeline.Layout {
	return map[string]timeline.Layout{Timeline: {
		From: timeline.Beginning, Size: secondsPerDay * second, Factor: 1, Mode: timeline.Materialised, Placement: timeline.Hash,
	}}
}

// The keys of key-values. The metadata API does not show this service, because it is
// internal.
const (
	service = "_Events"
	tagsKey = "tags"
)

// A Log is the events of a store.
type Log struct {
	timelines *timeline.Engine
	values    store.KeyValues
	perDay    int
	log       *slog.Logger

	turn     chan struct{} // a lock that respects contexts; held while events are changed
	counting chan struct{} // another such lock; held while the events of a day are counted

	mu    sync.Mutex
	days  map[string]dayCount // days that were written to
	known map[string]bool     // tags that are stored

	looked       atomic.Int64  // when the log was last searched for events of older versions, unix seconds; see ready
	settledAfter time.Duration // the constant, except in tests
	recountAfter time.Duration // the constant, except in tests
}

// A dayCount is the approximate number of events of a day: other servers may add or delete
// some.
type dayCount struct {
	n  int
	at time.Time // when they were counted
}

// recountAfter is how long the count of a full day is valid: the API of timelines, retention
// or another server may have deleted events since.
const recountAfter = time.Minute

// Limits of a Log's caches. Beyond them it drops a day, or all tags, and reads them again.
const (
	maxDaysKnown = 100
	maxTagsKnown = 10_000
)

// PerDayLimit is the name of the limit of the events of a day in errors.
const PerDayLimit = "events of a day"

// NewLog returns the events of a store. The engine of timelines must have been opened with
// Own. perDay limits the events of a day. If several processes share a store, it limits
// the events that each process knows of.
func NewLog(timelines *timeline.Engine, values store.KeyValues, perDay int, log *slog.Logger) *Log {
	return &Log{timelines: timelines, values: values, perDay: perDay, log: log,
		settledAfter: settledAfter, recountAfter: recountAfter,
		turn: make(chan struct{}, 1), counting: make(chan struct{}, 1), days: map[string]dayCount{}, known: map[string]bool{}}
}

// Add stores an event. The event is durable when Add returns nil.
func (l *Log) Add(ctx context.Context, e Event) error {
	data, err := e.stored()
	if err != nil {
		return err
	}
	if err := l.ready(ctx); err != nil {
		return err
	}
	day := dayOf(e.When)
	n, err := l.count(ctx, e.When, day)
	if err != nil {
		return err
	}
	if err := l.room(day, n); err != nil { // before the tags of an event that is refused are stored
		return err
	}
	if err := l.enter(ctx, e.Tags); err != nil {
		return err
	}
	release, err := work.Take(ctx, l.turn)
	if err != nil {
		return err
	}
	defer release()
	if err := l.room(day, n); err != nil {
		return err
	}
	if err := l.put(ctx, e.When, data); err != nil {
		return fmt.Errorf("store an event: %w", err)
	}
	l.added(day, 1)
	return nil
}

// count returns the number of events of the day of a time. It reads all of them if it has no valid
// count, see counted. It does so without the turn, and counts one day at a time: a day may have
// gigabytes, and callers that add to a day with a valid count must not wait for that.
func (l *Log) count(ctx context.Context, when int64, day string) (int, error) {
	if n, ok := l.counted(day); ok {
		return n, nil
	}
	release, err := work.Take(ctx, l.counting)
	if err != nil {
		return 0, err
	}
	defer release()
	if n, ok := l.counted(day); ok {
		return n, nil
	}
	n, start := 0, when-when%secondsPerDay
	err = l.each(ctx, timeline.Query{}, start*second, (start+secondsPerDay)*second-1, func(*timeline.Event) error { n++; return nil })
	if err != nil {
		return 0, fmt.Errorf("count the events of %s: %w", day, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.days) >= maxDaysKnown {
		for any := range l.days {
			delete(l.days, any)
			break
		}
	}
	l.days[day] = dayCount{n, time.Now()}
	return n, nil
}

// counted returns the number of events of a day. ok is false if it is unknown, or is that of a
// full day and older than recountAfter.
func (l *Log) counted(day string) (n int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.days[day]
	return c.n, ok && (c.n < l.perDay || time.Since(c.at) < l.recountAfter)
}

// room returns an error if a day is full. n is the count from before the caller waited for the turn.
// It is used if no later count is known.
func (l *Log) room(day string, n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.days[day]; ok {
		n = c.n
	}
	if n < l.perDay {
		return nil
	}
	return &store.LimitError{Limit: PerDayLimit, Max: int64(l.perDay), Need: int64(n) + 1, What: "add an event of " + day + "; delete some of that day, or send this one with another \"when\""}
}

// added adds n to the count of a day, if it is known.
func (l *Log) added(day string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.days[day]; ok {
		l.days[day] = dayCount{c.n + n, c.at}
	}
}

// tagsAtOnce is how many tags of an event are stored in parallel. Storing a tag waits for a sync of
// the disk, which concurrent waiters share, or, over Cassandra, for a round trip.
const tagsAtOnce = 32

// enter stores tags that are not known to be stored. It does so without the turn: an event may have
// hundreds of new tags, and callers that add other events must not wait for them.
func (l *Log) enter(ctx context.Context, tags []string) error {
	fresh := l.unknown(tags)
	err := work.Parallel(ctx, tagsAtOnce, len(fresh), "record a tag of events", func(ctx context.Context, i int) error {
		if err := l.values.Set(ctx, service, tagsKey, fresh[i], ""); err != nil {
			return fmt.Errorf("record the tag %.100q of events: %w", fresh[i], err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known)+len(fresh) > maxTagsKnown {
		clear(l.known)
	}
	for _, tag := range fresh {
		l.known[tag] = true
	}
	return nil
}

// unknown returns the tags that are not known to be stored, each once.
func (l *Log) unknown(tags []string) (fresh []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	for _, tag := range tags {
		if !l.known[tag] && !seen[tag] {
			seen[tag] = true
			fresh = append(fresh, tag)
		}
	}
	return fresh
}

// putTries limits the attempts to store an event while other servers use its number.
const putTries = 12

// put stores an event with the next number of its second. Two servers may choose the same
// number. Both store their event and then read, so at least one sees both events. That
// server deletes its own event and stores it again with a later number.
func (l *Log) put(ctx context.Context, when int64, data []byte) error {
	next := int64(0)
	for try := range putTries {
		last, err := l.page(ctx, timeline.Query{Order: timeline.Descending, Limit: 1}, when*second, when*second+second-1)
		if err != nil {
			return err
		}
		if len(last.Events) > 0 {
			next = max(next, last.Events[0].Time%second+1)
		}
		if next >= 1<<numberBits {
			return badf("the second %d already has %d events, the maximum; send this one with another \"when\"", when, next)
		}
		at := when*second + next
		id, err := l.append(ctx, timeline.Event{Time: at, Data: data})
		if err != nil {
			return err
		}
		there := 0
		err = l.each(ctx, timeline.Query{}, at, at, func(*timeline.Event) error { there++; return nil })
		if err != nil || there == 1 {
			return err
		}
		if err := l.timelines.Delete(ctx, Timeline, timeline.Deletion{From: &at, Until: &at, ID: id}); err != nil {
			return err
		}
		next += 1 + rand.Int64N(1<<try)
	}
	return &store.UnavailableError{Reason: fmt.Sprintf("other servers add events of the second %d at the same time; send this event again", when)}
}

// append stores one event and returns its id in the timeline.
func (l *Log) append(ctx context.Context, e timeline.Event) (id string, err error) {
	r, err := l.timelines.Append(ctx, []timeline.Addressed{{Event: e, Timelines: []string{Timeline}}})
	if err != nil {
		return "", err
	}
	if len(r.Rejected) > 0 {
		return "", r.Rejected[0].Err
	}
	return r.IDs[0], nil
}

// page reads a page of the events between two times of the timeline, which are inclusive.
func (l *Log) page(ctx context.Context, q timeline.Query, from, until int64) (timeline.Page, error) {
	q.Timelines, q.From, q.Until = []string{Timeline}, &from, &until
	for {
		p, err := l.timelines.Read(ctx, q)
		if err != nil || p.End || len(p.Events) > 0 {
			return p, err
		}
		q.Cursor = p.Cursor // the engine returned early, because finding events took long
	}
}

// each calls f for the events between two times of the timeline, which are inclusive, in
// their order. It ends with the first error of f.
func (l *Log) each(ctx context.Context, q timeline.Query, from, until int64, f func(*timeline.Event) error) error {
	q.Order = timeline.Ascending
	for {
		p, err := l.page(ctx, q, from, until)
		if err != nil {
			return err
		}
		for i := range p.Events {
			if err := f(&p.Events[i].Event); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if p.End {
			return nil
		}
		q.Cursor = p.Cursor
	}
}

// A Set says which tags of a search an event must have.
type Set int

const (
	Known        Set = iota // all tags that any event has, and at least one; graphite-web's default
	Union                   // at least one
	Intersection            // all
)

// A Search selects events from From to Until, both inclusive.
type Search struct {
	From, Until int64
	Tags        []string // nil does not restrict; an empty list finds nothing, as in graphite-web
	Set         Set

	// Step is called between two steps of reading, see timeline.Query. It may be nil.
	Step func(bytes int64) error

	wanted map[string]bool // Tags as a set, in Find
}

// Find calls f for the events of a search, in order of time. It ends with the first error
// of f.
func (l *Log) Find(ctx context.Context, s Search, f func(Event) error) error {
	if err := checkTags(s.Tags); err != nil {
		return err
	}
	s.From, s.Until = max(s.From, 0), min(s.Until, endExcl-1)
	if s.From > s.Until || s.Tags != nil && len(s.Tags) == 0 {
		return nil
	}
	if err := l.ready(ctx); err != nil {
		return err
	}
	nothing, err := l.dropUnknown(ctx, &s)
	if err != nil || nothing {
		return err
	}
	s.wanted = map[string]bool{}
	for _, tag := range s.Tags {
		s.wanted[tag] = true
	}
	return l.each(ctx, timeline.Query{Step: s.Step}, s.From*second, s.Until*second+second-1, func(found *timeline.Event) error {
		e, err := parseStored(found)
		if err != nil || !s.matches(e.Tags) {
			return err
		}
		return f(e)
	})
}

// dropUnknown removes tags that no event has from a search with the set Known. It reports
// whether no event can match.
func (l *Log) dropUnknown(ctx context.Context, s *Search) (nothing bool, err error) {
	if s.Set != Known || len(s.Tags) == 0 {
		return false, nil
	}
	var known []string
	for _, tag := range s.Tags {
		switch _, err := l.values.Get(ctx, service, tagsKey, tag); {
		case err == nil:
			known = append(known, tag)
		case !errors.Is(err, store.ErrNotFound):
			return false, fmt.Errorf("look for the tag %.100q of events: %w", tag, err)
		}
	}
	s.Tags = known
	return len(known) == 0, nil
}

func (s *Search) matches(tags []string) bool {
	found := 0
	for i, tag := range tags {
		if s.wanted[tag] && !slices.Contains(tags[:i], tag) {
			found++
		}
	}
	return found == len(s.wanted) || s.Set == Union && found > 0
}

// ByID returns the event with an id. It is store.ErrNotFound if there is none.
func (l *Log) ByID(ctx context.Context, id int64) (Event, error) {
	if err := l.ready(ctx); err != nil {
		return Event{}, err
	}
	found, err := l.locate(ctx, id)
	if err != nil {
		return Event{}, err
	}
	return parseStored(found)
}

// locate finds the event with an id. Older versions may have stored several; locate returns
// the first.
func (l *Log) locate(ctx context.Context, id int64) (*timeline.Event, error) {
	if id < 0 || id>>numberBits >= endExcl {
		return nil, store.ErrNotFound
	}
	at := timeOf(id)
	p, err := l.page(ctx, timeline.Query{Order: timeline.Ascending, Limit: 1}, at, at)
	if err == nil && len(p.Events) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("find the event %d: %w", id, err)
	}
	return &p.Events[0].Event, nil
}

// Delete deletes the event that ByID returns. Its tags remain stored.
func (l *Log) Delete(ctx context.Context, id int64) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	release, err := work.Take(ctx, l.turn)
	if err != nil {
		return err
	}
	defer release()
	found, err := l.locate(ctx, id)
	if err != nil {
		return err
	}
	if err := l.timelines.Delete(ctx, Timeline, timeline.Deletion{From: &found.Time, Until: &found.Time, ID: found.ID}); err != nil {
		return fmt.Errorf("delete the event %d: %w", id, err)
	}
	l.added(dayOf(found.Time/second), -1)
	return nil
}

// dayOf returns the day of a time, in UTC.
func dayOf(when int64) string { return time.Unix(when, 0).UTC().Format(time.DateOnly) }

const secondsPerDay = 24 * 60 * 60

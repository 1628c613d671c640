package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/store"
	"varve/internal/work"
)

// Where events are kept. The service is the server's own: the metadata API does not
// show it.
const (
	service = "_Events"
	daysKey = "days"
	tagsKey = "tags"
)

// A Log has the events of a store.
type Log struct {
	values store.KeyValues
	writer string
	perDay int

	turn  chan struct{}   // holds one; the caller that changes events has it
	days  map[string]int  // events of days that were written to; for the caller with the turn
	known map[string]bool // tags that were entered; the same
	next  map[int64]int   // next number of seconds that have many events; the same
}

// Bounds on what a Log remembers. It forgets all beyond them and reads it again.
const (
	maxDaysKnown    = 100
	maxTagsKnown    = 10_000
	maxSecondsKnown = 1000
)

// PerDayLimit is the key of the setting that bounds the events of a day.
const PerDayLimit = "graphite.max_events_per_day"

// NewLog returns the events of a store. perDay bounds those of one day; with several
// processes over one store, it bounds what each knows of. writer tells these apart.
func NewLog(values store.KeyValues, perDay int, writer uint32) *Log {
	return &Log{values: values, writer: fmt.Sprintf("%08x", writer), perDay: perDay,
		turn: make(chan struct{}, 1), days: map[string]int{}, known: map[string]bool{}, next: map[int64]int{}}
}

// stored is the text of an event.
type stored struct {
	What string `json:"what"`
	Data string `json:"data"`
}

// Add keeps an event. It is durable when Add returns.
func (l *Log) Add(ctx context.Context, e Event) error {
	text, err := json.Marshal(stored{e.What, e.Data})
	if err != nil {
		return err
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.end()
	k := key{when: e.When, writer: l.writer, tags: e.Tags}
	day := dayOf(k.when)
	n, err := l.enter(ctx, day, e.Tags)
	if err != nil {
		return err
	}
	if k.number, err = l.nextNumber(ctx, day, k.when); err != nil {
		return err
	}
	if err := l.values.Set(ctx, service, day, k.String(), string(text)); err != nil {
		return fmt.Errorf("keep an event: %w", err)
	}
	l.days[day] = n + 1
	l.remember(k.when, k.number+1)
	return nil
}

// begin takes the turn.
func (l *Log) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Log) end() { <-l.turn }

// manyEvents is from how many events on the next number of a second is remembered. Below,
// it is read, so that processes whose events are in one second seldom give the same.
const manyEvents = 64

func (l *Log) remember(when int64, next int) {
	if next < manyEvents {
		return
	}
	if len(l.next) >= maxSecondsKnown {
		clear(l.next)
	}
	l.next[when] = next
}

// enter notes a day and tags, and returns how many events the day has.
func (l *Log) enter(ctx context.Context, day string, tags []string) (int, error) {
	n, ok := l.days[day]
	if !ok {
		for _, err := range l.values.Keys(ctx, service, day, "") {
			if err != nil {
				return 0, fmt.Errorf("count the events of %s: %w", day, err)
			}
			n++
		}
	}
	if n >= l.perDay {
		return 0, &store.LimitError{Limit: PerDayLimit, Max: int64(l.perDay), Need: int64(n) + 1, What: "add an event of " + day}
	}
	if n == 0 {
		if err := l.values.Set(ctx, service, daysKey, day, ""); err != nil {
			return 0, fmt.Errorf("enter %s as a day with events: %w", day, err)
		}
	}
	if len(l.days) >= maxDaysKnown {
		clear(l.days)
	}
	l.days[day] = n
	if len(l.known)+len(tags) > maxTagsKnown {
		clear(l.known)
	}
	for _, tag := range tags {
		if l.known[tag] {
			continue
		}
		if err := l.values.Set(ctx, service, tagsKey, tag, ""); err != nil {
			return 0, fmt.Errorf("enter the tag %.100q of events: %w", tag, err)
		}
		l.known[tag] = true
	}
	return n, nil
}

// nextNumber is that of a new event in its second.
func (l *Log) nextNumber(ctx context.Context, day string, when int64) (int, error) {
	next := l.next[when]
	if next > 0 {
		return next, l.checkNumber(when, next)
	}
	for text, err := range l.values.Keys(ctx, service, day, secondPrefix(when)) {
		if err != nil {
			return 0, fmt.Errorf("find the events of %d: %w", when, err)
		}
		k, err := parseKey(text)
		if err != nil {
			return 0, err
		}
		next = k.number + 1
	}
	return next, l.checkNumber(when, next)
}

func (l *Log) checkNumber(when int64, number int) error {
	if number >= 1<<numberBits {
		return badf("the second %d has %d events, the most that one can have; add this one with another \"when\"", when, number)
	}
	return nil
}

// A Set says which tags an event must have.
type Set int

const (
	Known        Set = iota // all that some event has, and one at least; what graphite-web does if not told
	Union                   // one at least
	Intersection            // all
)

// A Search says which events are wanted: those from From to Until, both included. No
// tags do not restrict.
type Search struct {
	From, Until int64
	Tags        []string
	Set         Set

	wanted map[string]bool // Tags, in Find
}

// A Found is an event without its text.
type Found struct {
	When int64
	ID   int64
	Tags []string
	key  string
}

// Find calls f for the events of a search, in the order of time. It ends with the first
// error of f.
func (l *Log) Find(ctx context.Context, s Search, f func(Found) error) error {
	if err := checkTags(s.Tags); err != nil {
		return err
	}
	s.From, s.Until = max(s.From, 0), min(s.Until, endExcl-1)
	if s.From > s.Until {
		return nil
	}
	nothing, err := l.dropUnknown(ctx, &s)
	if err != nil || nothing {
		return err
	}
	s.wanted = map[string]bool{}
	for _, tag := range s.Tags {
		s.wanted[tag] = true
	}
	first, last := dayOf(s.From), dayOf(s.Until)
	for day, err := range l.values.Keys(ctx, service, daysKey, common(first, last)) {
		if err != nil {
			return fmt.Errorf("list the days that have events: %w", err)
		}
		if day < first || day > last {
			continue
		}
		if err := l.findDay(ctx, day, s, f); err != nil {
			return err
		}
	}
	return nil
}

// findDay calls f for the events of a day.
func (l *Log) findDay(ctx context.Context, day string, s Search, f func(Found) error) error {
	prefix, err := s.prefix(day)
	if err != nil {
		return err
	}
	for text, err := range l.values.Keys(ctx, service, day, prefix) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return fmt.Errorf("list the events of %s: %w", day, err)
		}
		k, err := parseKey(text)
		if err != nil {
			return err
		}
		if k.when > s.Until {
			break
		}
		if k.when < s.From || !s.matches(k.tags) {
			continue
		}
		if err := f(Found{k.when, k.id(), k.tags, text}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// prefix is what all keys of a day begin with that a search looks at.
func (s *Search) prefix(day string) (string, error) {
	t, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return "", &store.CorruptionError{File: "key-values of " + service, Reason: fmt.Sprintf("%.100q is no day", day)}
	}
	start := t.Unix()
	first, last := max(s.From, start), min(s.Until, start+secondsPerDay-1)
	return common(fmt.Sprintf("%010d", first), fmt.Sprintf("%010d", last)), nil
}

// common is what both texts begin with.
func common(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// dropUnknown leaves out tags that no event has, unless the search wants them, and
// reports whether no event can match.
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

// readers is how many texts are read at a time: over Cassandra each is a round trip.
const readers = 16

// Read returns events with their texts, in their order, without those that were deleted
// meanwhile. took is called with the bytes of each text, by several goroutines.
func (l *Log) Read(ctx context.Context, found []Found, took func(bytes int64) error) ([]Event, error) {
	events := make([]Event, len(found))
	deleted := make([]bool, len(found))
	var group work.Group
	for first := range min(readers, len(found)) {
		group.Go("read events", func() error {
			for i := first; i < len(found); i += readers {
				var err error
				events[i], err = l.read(ctx, found[i], took)
				if deleted[i] = errors.Is(err, store.ErrNotFound); err != nil && !deleted[i] {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	kept := events[:0]
	for i, e := range events {
		if !deleted[i] {
			kept = append(kept, e)
		}
	}
	return kept, err
}

func (l *Log) read(ctx context.Context, f Found, took func(bytes int64) error) (Event, error) {
	e := Event{ID: f.ID, When: f.When, Tags: f.Tags}
	v, err := l.values.Get(ctx, service, dayOf(f.When), f.key)
	if err != nil {
		return e, fmt.Errorf("read the event %d: %w", f.ID, err)
	}
	if err := took(int64(len(v.Text))); err != nil {
		return e, err
	}
	var s stored
	if err := json.Unmarshal([]byte(v.Text), &s); err != nil {
		return e, &store.CorruptionError{File: "key-values of " + service, Reason: fmt.Sprintf("the text of event %d: %v", f.ID, err)}
	}
	e.What, e.Data = s.What, s.Data
	return e, nil
}

// ByID returns the event with an id. It is store.ErrNotFound if there is none. Of
// several, which processes may have made at the same time, it is the first.
func (l *Log) ByID(ctx context.Context, id int64) (Event, error) {
	f, err := l.locate(ctx, id)
	if err != nil {
		return Event{}, err
	}
	return l.read(ctx, f, func(int64) error { return nil })
}

func (l *Log) locate(ctx context.Context, id int64) (Found, error) {
	when := id >> numberBits
	if id < 0 || when >= endExcl {
		return Found{}, store.ErrNotFound
	}
	prefix := secondPrefix(when) + fmt.Sprintf("%06d.", id&(1<<numberBits-1))
	for text, err := range l.values.Keys(ctx, service, dayOf(when), prefix) {
		if err != nil {
			return Found{}, fmt.Errorf("find the event %d: %w", id, err)
		}
		k, err := parseKey(text)
		return Found{k.when, k.id(), k.tags, text}, err
	}
	return Found{}, store.ErrNotFound
}

// Delete removes the event that ByID returns. Its day and its tags stay entered.
func (l *Log) Delete(ctx context.Context, id int64) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.end()
	f, err := l.locate(ctx, id)
	if err != nil {
		return err
	}
	day := dayOf(f.When)
	delete(l.days, day) // to be counted again
	if err := l.values.Unset(ctx, service, day, f.key); err != nil {
		return fmt.Errorf("delete the event %d: %w", id, err)
	}
	return nil
}

// ParseID reads an id as it stands in a path.
func ParseID(text string) (int64, error) { return strconv.ParseInt(strings.TrimSpace(text), 10, 64) }

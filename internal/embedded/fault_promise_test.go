package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// A place is where a value can be: a sample's series and time, or a key-value
// (series "") and its number.
type place struct {
	series string // metric and the value of tag "n": "fault.a 3"
	ms     int64
}

// nothing stands for a place without a value.
const nothing = int64(-1)

// A belief is what may be found at a place: what was acknowledged last, and what
// was asked for since and failed, or is under way. It is not changed in place.
type belief struct {
	sure   int64
	maybe  []int64
	before []int64 // what there was since the last sync, and a power cut may bring back
}

func (b belief) allows(v int64) bool { return v == b.sure || slices.Contains(b.maybe, v) }

// Promises are what a store has promised to its only writer.
type promises struct {
	mu     sync.Mutex
	places map[place]belief
}

func newPromises() *promises { return &promises{places: make(map[place]belief)} }

// attempt runs op, which is to put values at places. If op fails, both the old
// and the new ones may be there from then on.
func (p *promises) attempt(values map[place]int64, op func() error) error {
	p.mu.Lock()
	for at, v := range values {
		b, ok := p.places[at]
		if !ok {
			b.sure = nothing
		}
		p.places[at] = belief{b.sure, append(slices.Clone(b.maybe), v), b.before}
	}
	p.mu.Unlock()
	if err := op(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, v := range values {
		b := p.places[at]
		p.places[at] = belief{sure: v, before: slices.Concat(b.before, []int64{b.sure}, b.maybe)}
	}
	return nil
}

// synced records that a power cut cannot undo anything that exists now.
func (p *promises) synced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, b := range p.places {
		b.before = nil
		p.places[at] = b
	}
}

// afterPowerCut allows what there was since the last sync.
func (p *promises) afterPowerCut() {
	for at, b := range p.places {
		p.places[at] = belief{sure: b.sure, maybe: slices.Concat(b.maybe, b.before)}
	}
}

// expire advances the clock beyond the time-to-live of all samples of a metric. Who
// takes a copy of the promises sees both or neither.
func (p *promises) expire(metric string, advance func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	advance()
	for at := range p.places {
		if strings.HasPrefix(at.series, metric+" ") {
			p.places[at] = belief{sure: nothing}
		}
	}
}

// while calls fn with a copy, and with no attempt beginning or ending meanwhile.
func (p *promises) while(fn func(now *promises)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&promises{places: maps.Clone(p.places)})
}

// An untrueError means that a store holds something else than it promised.
type untrueError struct{ text string }

func (e *untrueError) Error() string { return e.text }

// check compares everything that s holds. The error is an *untrueError, or why
// s could not be read.
func (p *promises) check(s *Store) error {
	found := make(map[place]int64)
	if err := p.readSamples(s, found); err != nil {
		return err
	}
	if err := p.readValues(s, found); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range found {
		if _, ok := p.places[at]; !ok {
			return &untrueError{fmt.Sprintf("%v: %d was never written", at, found[at])}
		}
	}
	for at, b := range p.places {
		v, ok := found[at]
		if !ok {
			v = nothing
		}
		if !b.allows(v) {
			return &untrueError{fmt.Sprintf("%v: found %d, want %d (or one of %d, not acknowledged); -1 is nothing", at, v, b.sure, b.maybe)}
		}
	}
	return nil
}

func (p *promises) readSamples(s *Store, found map[place]int64) error {
	ctx := context.Background()
	v, err := s.View(ctx)
	if err != nil {
		return err
	}
	defer v.Close()
	metrics, _, err := v.Names(ctx, store.NamesQuery{Kind: store.MetricNames})
	if err != nil {
		return err
	}
	for _, metric := range metrics {
		all, err := storetest.Select(ctx, v, store.Selection{Metric: metric, Range: model.AllTime})
		if err != nil {
			return err
		}
		for _, series := range all {
			if err := readBack(v, series, found); err != nil {
				return err
			}
		}
	}
	return nil
}

func readBack(v store.View, series store.Series, found map[place]int64) error {
	name := series.Metric + " " + mustGet(series.Tags, "n")
	c := v.Read(context.Background(), series, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	for {
		b, err := c.Next()
		if err != nil || b == nil {
			return err
		}
		for i, ms := range b.Times {
			at := place{name, ms}
			if _, twice := found[at]; twice {
				return &untrueError{fmt.Sprintf("%v is there twice", at)}
			}
			found[at] = int64(b.Values[i])
		}
	}
}

func (p *promises) readValues(s *Store, found map[place]int64) error {
	ctx := context.Background()
	for key, err := range s.Keys(ctx, "fault", "key", "") {
		if err != nil {
			return err
		}
		v, err := s.Get(ctx, "fault", "key", key)
		if errors.Is(err, store.ErrNotFound) {
			return &untrueError{"key " + key + " is listed and not there"}
		}
		if err != nil {
			return err
		}
		n, errN := strconv.ParseInt(key, 10, 64)
		text, errV := strconv.ParseInt(v.Text, 10, 64)
		if errN != nil || errV != nil {
			return &untrueError{fmt.Sprintf("key-value %q = %q was never written", key, v.Text)}
		}
		found[place{"", n}] = text
	}
	return nil
}

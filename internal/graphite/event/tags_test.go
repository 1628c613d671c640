package event

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// Slow key-values store tags that begin with "slow" once release is closed.
type slow struct {
	store.KeyValues
	entered chan string
	release chan struct{}
}

func (s *slow) Set(ctx context.Context, service, serviceKey, key, value string) error {
	if strings.HasPrefix(key, "slow") {
		s.entered <- key
		<-s.release
	}
	return s.KeyValues.Set(ctx, service, serviceKey, key, value)
}

// New tags of an event are stored together, and keep no other event waiting.
func TestNewTagsKeepNobodyWaiting(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem(), "data")
	values := &slow{s.values, make(chan string), make(chan struct{})}
	s.values = values
	l := s.newLog(t, 1000)
	add(t, l, 1, "first", "known")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var tags []string
	for i := range tagsAtOnce {
		tags = append(tags, fmt.Sprint("slow", i), fmt.Sprint("slow", i))
	}
	done := make(chan error, 1)
	go func() { done <- l.Add(ctx, Event{When: 1, What: "many", Data: "of many", Tags: tags}) }()
	for n := range tagsAtOnce {
		select {
		case <-values.entered:
		case <-ctx.Done():
			t.Errorf("%d of %d tags are stored at once", n, tagsAtOnce)
			close(values.release)
			t.Fatal(<-done)
		}
	}
	if err := l.Add(ctx, Event{When: 1, What: "other", Data: "of other", Tags: []string{"known"}}); err != nil {
		t.Errorf("another event while tags are stored: %v", err)
	}
	close(values.release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := found(t, l, Search{Until: 5}); got != "first other many" {
		t.Errorf("found %q", got)
	}
	if got := l.unknown(tags); got != nil {
		t.Errorf("not known to be stored: %q", got)
	}
}

// TestRoomForOneOfTwo: of two events that were counted while a day had room for one, one is refused.
func TestRoomForOneOfTwo(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem(), "data")
	values := &slow{s.values, make(chan string), make(chan struct{})}
	s.values = values
	l := s.newLog(t, 2)
	add(t, l, 1, "first", "")
	done := make(chan error)
	for i := range 2 {
		go func() {
			done <- l.Add(t.Context(), Event{When: 2, What: "more", Data: "of more", Tags: []string{fmt.Sprint("slow", i)}})
		}()
	}
	<-values.entered
	<-values.entered
	close(values.release)
	a, b := <-done, <-done
	limit := (*store.LimitError)(nil)
	if (a == nil) == (b == nil) || !errors.As(errors.Join(a, b), &limit) || limit.Limit != PerDayLimit {
		t.Errorf("got %v and %v", a, b)
	}
	if got := found(t, l, Search{Until: 5}); got != "first more" {
		t.Errorf("found %q", got)
	}
}

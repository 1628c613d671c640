package timeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"varve/internal/store"
)

// A deletionsShelf stores only records of deletes.
type deletionsShelf struct {
	quietShelf
	all   []Deleted
	noted int
}

func (s *deletionsShelf) NoteDeletion(context.Context, string, Deleted) error {
	s.noted++
	return nil
}

// TestDeletionsMax: the deletes of a timeline that are recorded in a day are bounded. The next
// day, others are accepted.
func TestDeletionsMax(t *testing.T) {
	s, now := &deletionsShelf{}, time.Now()
	e, err := Open(s, Options{Upkeep: -1, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l := e.use("t")
	defer e.release(l)
	note := func() error { _, err := e.noteDeletion(t.Context(), l, Deleted{}); return err }
	for range deletionsMax {
		if err := note(); err != nil {
			t.Fatal(err)
		}
	}
	if err := note(); !errors.As(err, new(*store.LimitError)) || s.noted != deletionsMax {
		t.Errorf("one more: %v, %d are recorded", err, s.noted)
	}
	now = now.Add(24 * time.Hour)
	if err := note(); err != nil {
		t.Error(err)
	}
}

func (s *deletionsShelf) Deletions(_ context.Context, _ string, after time.Time, f func(Deleted) error) error {
	for _, d := range s.all {
		if d.Before.After(after) {
			if err := f(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// An event is deleted by a later delete that covers its position, and by no other.
func TestDeletedOf(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	at := func() time.Time { return time.UnixMicro(1000 + random.Int64N(20)) }
	position := func() Position { return Position{random.Int64N(6), fmt.Sprint(random.IntN(3))} }
	for round := range 2000 {
		s := &deletionsShelf{}
		for range random.IntN(6) {
			d := Deleted{Range: Range{position(), position()}, Before: at()}
			if random.IntN(3) == 0 {
				d.ID = fmt.Sprint(random.IntN(3))
			}
			s.all = append(s.all, d)
		}
		var all []candidate
		for i := range random.IntN(10) {
			all = append(all, candidate{position(), at(), i})
		}
		want := map[int]bool{}
		for _, c := range all {
			for _, d := range s.all {
				if d.Range.Contains(c.Position) && (d.ID == "" || d.ID == c.ID) && c.at.Before(d.Before) {
					want[c.index] = true
				}
			}
		}
		got, err := (&Engine{deletes: s}).deletedOf(t.Context(), "a", all)
		if err != nil || len(got) != len(want) {
			t.Fatalf("round %d: %v are deleted, want %v; %v", round, got, want, err)
		}
		for i, d := range got {
			if !want[i] || d.Before.IsZero() {
				t.Fatalf("round %d: event %d is deleted by %+v", round, i, d)
			}
		}
	}
}

// Many deletes of the same events take some milliseconds. If every delete compared all events, the
// test would time out.
func TestManyDeletes(t *testing.T) {
	const n = 200_000
	now := time.Now()
	s := &deletionsShelf{}
	var all []candidate
	for i := range n {
		d := Deleted{Range: All(), Before: now.Add(time.Duration(i+1) * time.Microsecond)}
		if i%2 == 0 {
			d.ID = "x"
		}
		s.all = append(s.all, d)
		id := fmt.Sprint(i)
		if i%2 == 0 {
			id = "x"
		}
		all = append(all, candidate{Position{int64(i), id}, now, i})
	}
	gone, err := (&Engine{deletes: s}).deletedOf(t.Context(), "a", all)
	if err != nil || len(gone) != n {
		t.Errorf("%d of %d events are deleted, %v", len(gone), n, err)
	}
}

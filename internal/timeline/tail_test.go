package timeline

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"varve/internal/store"
)

// A payloadShelf has a log of arrivals, each with 40 KiB of data that is stored separately.
type payloadShelf struct {
	Shelf
	events uint64
}

func (s *payloadShelf) Arrivals(_ context.Context, _ string, after []byte, l Limit) (Arrivals, error) {
	a := Arrivals{Next: make([]byte, 8)}
	if after == nil {
		return a, nil
	}
	at := binary.BigEndian.Uint64(after)
	for ; at < s.events && l.Entries > 0 && l.Bytes > 0; l.Entries-- {
		e := Entry{Event: Event{Time: int64(at), ID: "x"}, Pointer: PayloadKey{1, byte(at)}, Size: 40 << 10}
		l.Bytes -= e.Bytes()
		at++
		a.Entries, a.After = append(a.Entries, e), append(a.After, binary.BigEndian.AppendUint64(nil, at))
	}
	a.Next, a.More = binary.BigEndian.AppendUint64(nil, at), at < s.events
	return a, nil
}

func (s *payloadShelf) Payload(context.Context, PayloadKey) ([]byte, error) {
	return make([]byte, 40<<10), nil
}

// TestTailOfSeparateData: a reader gets all arrivals, a bounded number of bytes at a time, even if
// their data is stored separately.
func TestTailOfSeparateData(t *testing.T) {
	s := &payloadShelf{events: 50}
	e, err := Open(s, Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	sub, err := e.Tail(t.Context(), TailQuery{Timeline: "t"})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for n := int64(0); n < int64(s.events); {
		some, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for i := range some {
			if some[i].Time != n {
				t.Fatalf("got event %d, want %d", some[i].Time, n)
			}
			n++
			bytes += len(some[i].Data)
		}
		if most := tailBytes + 40<<10; bytes > most {
			t.Fatalf("got %d events of %d bytes at once, want %d bytes at most", len(some), bytes, most)
		}
		if got, want := sub.Cursor(), some[len(some)-1].Cursor; got != want {
			t.Errorf("the reader continues at %s, want %s", got, want)
		}
	}
}

// An absentShelf has a log of arrivals that cannot be read.
type absentShelf struct{ Shelf }

func (absentShelf) Arrivals(context.Context, string, []byte, Limit) (Arrivals, error) {
	return Arrivals{}, errors.New("the node is away")
}

// TestPlacesOfTails: a reader that could not begin has no place among timeline.tails_max, and one that
// has ended gives its place back once.
func TestPlacesOfTails(t *testing.T) {
	s := &struct{ Shelf }{absentShelf{}}
	e, err := Open(s, Options{Upkeep: -1, Config: Config{TailsMax: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Tail(t.Context(), TailQuery{Timeline: "t"}); err == nil || errors.As(err, new(*store.LimitError)) {
		t.Fatalf("got %v, want the error of the shelf", err)
	}
	s.Shelf = &payloadShelf{}
	follow := func() *Subscription {
		t.Helper()
		sub, err := e.Tail(t.Context(), TailQuery{Timeline: "t"})
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	first := follow()
	first.Close()
	first.Close()
	second := follow()
	if _, err := e.Tail(t.Context(), TailQuery{Timeline: "t"}); !errors.As(err, new(*store.LimitError)) {
		t.Errorf("a reader too many got %v", err)
	}
	second.Close()
	follow().Close()
	if _, err := e.Tail(t.Context(), TailQuery{Timeline: "t", Cursor: "made up"}); !errors.As(err, new(*store.InputError)) {
		t.Errorf("a reader with a cursor that was made up got %v", err)
	}
}

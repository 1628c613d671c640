package timeline

import (
	"context"
	"testing"
	"time"
)

// A quietShelf has one timeline and nothing in it.
type quietShelf struct {
	Shelf
	looked chan string
}

func (q *quietShelf) History(context.Context, string) (History, error) {
	return History{Version: 1, Layouts: []Layout{defaultLayout}}, nil
}

func (q *quietShelf) Names(context.Context, string, string, int) ([]string, error) {
	select {
	case q.looked <- "names":
	default:
	}
	return nil, nil
}

// TestKeepUp: retention and remains are looked after by themselves, and Close ends that.
func TestKeepUp(t *testing.T) {
	q := &quietShelf{looked: make(chan string)}
	e, err := Open(q, Options{Upkeep: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		<-q.looked
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-q.looked:
		t.Error("it goes on after Close")
	default:
	}
}

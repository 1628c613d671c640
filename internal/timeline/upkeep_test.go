package timeline

import (
	"context"
	"testing"
	"testing/synctest"
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

// TestKeepUp: an engine runs upkeep on its own, and Close stops it.
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

// TestRetentionWaitsAfterAStart: a clock that is ahead when the server starts has ten minutes to be
// set before events are removed.
func TestRetentionWaitsAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quietShelf{looked: make(chan string)}
		began := time.Now()
		e, err := Open(q, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		<-q.looked
		if waited := time.Since(began); waited != 10*time.Minute {
			t.Errorf("retention was first looked after %v after the start", waited)
		}
		<-q.looked
		if waited := time.Since(began); waited != 15*time.Minute {
			t.Errorf("retention was looked after again %v after the start", waited)
		}
	})
}

package timeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A quietShelf has one empty timeline.
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

// TestKeepUp: an engine runs upkeep by itself, and Close stops it.
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
		t.Error("upkeep continues after Close")
	default:
	}
}

// TestRetentionWaitsAfterAStart: if the clock is ahead when the server starts, there are ten minutes
// to correct it before events are removed.
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
			t.Errorf("retention was applied first %v after the start", waited)
		}
		<-q.looked
		if waited := time.Since(began); waited != 15*time.Minute {
			t.Errorf("retention was applied again %v after the start", waited)
		}
	})
}

// TestUpkeepWaitsForTheClock: while nothing may be changed, upkeep changes nothing either. The shelf
// does not check that.
func TestUpkeepWaitsForTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quietShelf{looked: make(chan string)}
		began := time.Now()
		e, err := Open(q, Options{Changeable: func(context.Context) error {
			if time.Since(began) < 22*time.Minute {
				return errors.New("the clock is not set")
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		<-q.looked
		if waited := time.Since(began); waited != 25*time.Minute {
			t.Errorf("retention was applied first %v after the start", waited)
		}
	})
}

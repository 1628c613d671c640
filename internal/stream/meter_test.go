package stream

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// metered returns the meter of a connection that owes a number of bytes.
func metered(p *Pace, debt int64) *Meter {
	c := &Conn{}
	c.Meter(p)
	m := c.Metered()
	m.debt.Store(debt)
	return m
}

// readAll is a connection that fills every read.
func readAll(p []byte) (int, error) { return len(p), nil }

// A connection that owes more than is free is read at the pace, whatever the size of the reads. Once
// it is credited, it is read at full speed again, but not further ahead than it may be.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metered(NewPace(), paceFree+1)
		m.Begin() // so that it may owe more
		for _, size := range []int{1 << 20, firstInbound} {
			reads := 1 << 20 / min(size, pacePiece)
			began, read := time.Now(), 0
			for range reads {
				n, err := m.read(make([]byte, size), readAll)
				if err != nil {
					t.Fatal(err)
				}
				read += n
			}
			turn := paceTurn * 64 / time.Duration(reads)
			if took := time.Since(began); read != 1<<20 || took != 64*paceTurn-turn {
				t.Errorf("%d bytes in %v, want 1 MiB in %v", read, took, 64*paceTurn-turn)
			}
			time.Sleep(turn)
		}
		m.Credit(int(m.debt.Load()))
		began := time.Now()
		if n, err := m.read(make([]byte, 1<<20), readAll); n != paceFree+pacePiece || err != nil || time.Since(began) != 0 {
			t.Errorf("%d bytes in %v, %v", n, time.Since(began), err)
		}
	})
}

// A connection that waits for its turn holds no large buffer meanwhile, though more has come.
func TestPacedReadsAreSmall(t *testing.T) {
	for debt, want := range map[int64]bool{paceFree: true, paceFree + 1: false} {
		if got := metered(NewPace(), debt).conn.more(); got != want { // without a socket, more has come for all it knows
			t.Errorf("with a debt of %d: %t", debt, got)
		}
	}
}

// Credit, or the end of its connection, wakes a reader that waits for its turn.
func TestPaceIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		leave func(*Meter)
		err   error
	}{
		"by credit":  {func(m *Meter) { m.Credit(paceFree) }, nil},
		"by the end": {(*Meter).end, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewPace()
				p.turn <- struct{}{} // of another connection, for ever
				m := metered(p, 2*paceFree)
				done := make(chan error)
				go func() {
					_, err := m.read(make([]byte, 1), readAll)
					done <- err
				}()
				synctest.Wait()
				tc.leave(m)
				if err := <-done; !errors.Is(err, tc.err) {
					t.Errorf("the wait ended with %v, want %v", err, tc.err)
				}
			})
		})
	}
}

// A connection that owes too much is closed, unless it has a request, whose body may be on its way.
func TestFloodEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var owed int64
		p := NewPace()
		p.Flood = func(_ *Conn, n int64) { owed = n }
		m := metered(p, paceMost+1)
		m.Begin()
		if _, err := m.read(make([]byte, 1), readAll); err != nil || owed != 0 {
			t.Errorf("with a request: %v", err)
		}
		m.End(0)
		if _, err := m.read(make([]byte, 1), readAll); !errors.Is(err, net.ErrClosed) || owed != paceMost+2 {
			t.Errorf("without a request: %v after %d bytes", err, owed)
		}
	})
}

// Over time, what a client needs between its requests is forgiven. Credit has a bound.
func TestDebtIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metered(NewPace(), 3*paceForgiven)
		time.Sleep(2 * time.Second)
		if owed := m.settle(time.Now()); owed != paceForgiven {
			t.Errorf("it owes %d, want %d", owed, paceForgiven)
		}
		time.Sleep(time.Minute)
		if owed := m.settle(time.Now()); owed != 0 {
			t.Errorf("it owes %d, want 0", owed)
		}
		m.Credit(10 * paceFree)
		if owed := m.settle(time.Now()); owed != -paceFree {
			t.Errorf("it owes %d, want %d", owed, -paceFree)
		}
	})
}

// A connection without a meter is read as it is.
func TestNoMeter(t *testing.T) {
	m := (*Conn).Metered(&Conn{})
	m.Begin()
	m.Credit(1)
	m.End(1)
	m.end()
	if n, err := m.read(make([]byte, 10), readAll); n != 10 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

package query

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/store"
)

// A client accepts an answer at some rate until it is cut off.
type client struct {
	rate int // bytes per second
	gone chan struct{}
}

var errCut = errors.New("i/o timeout")

func (c *client) Write(p []byte) (int, error) {
	select {
	case <-time.After(time.Duration(len(p)) * time.Second / time.Duration(c.rate)):
		return len(p), nil
	case <-c.gone:
		return 0, errCut
	}
}

// TestSlowReadersAreEnded: answers whose clients read them slowly hold memory for as long as nobody needs it. Then they
// are ended, those that hold most first, and those of other clients are not.
func TestSlowReadersAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxWait = 32*grantBytes, 10*time.Second
		f := newFixture(t, config)
		each := f.pool.most() / 4
		send := func(address string, bytes int64, rate int) <-chan error {
			answer, c, done := f.Unsent(t.Context(), address), &client{rate, make(chan struct{})}, make(chan error, 1)
			if err := answer.AtLeast(bytes); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := answer.Writer(c, func() { close(c.gone) }).Write(make([]byte, bytes))
				answer.Free()
				done <- err
			}()
			return done
		}
		fast := send("10.0.0.1:1", each, 2*slowRead)
		slow := send("10.0.0.2:1", each, slowRead/2)
		slower := send("10.0.0.3:1", each-grantBytes, slowRead/4)
		time.Sleep(3 * readPatience)
		if n := counted(t, f.metrics.slowReaders); n != 0 {
			t.Fatalf("%v answers were ended for nobody", n)
		}

		query := f.session(t, t.Context())
		defer query.Close(nil)
		if err := query.Reserve(2 * each); err != nil {
			t.Errorf("a query that waits: %v", err)
		}
		if err := <-slow; err != ErrSlowReader {
			t.Errorf("the answer of a slow client: %v", err)
		}
		if n := counted(t, f.metrics.slowReaders); n != 1 {
			t.Errorf("%v answers were ended for the memory of one", n)
		}
		if err := query.Reserve(each - 2*grantBytes); err != nil {
			t.Errorf("a query that needs more: %v", err)
		}
		if err := <-slower; err != ErrSlowReader {
			t.Errorf("the answer of a slower client: %v", err)
		}
		if err := <-fast; err != nil {
			t.Errorf("the answer of a client that reads fast enough: %v", err)
		}
		if n := len(f.pool.outgoing); n != 0 {
			t.Errorf("%d answers are still to be sent", n)
		}
	})
}

// TestClientsAreGivenTime: a client that has just begun to read is not slow, even if it has accepted nothing.
func TestClientsAreGivenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxWait = 32*grantBytes, readPatience-time.Second
		f := newFixture(t, config)
		answer := f.Unsent(t.Context(), "10.0.0.1:1")
		if err := answer.AtLeast(f.pool.most()); err != nil {
			t.Fatal(err)
		}
		answer.Writer(io.Discard, func() { t.Error("its answer was ended") })
		if err := f.take(t.Context(), "10.0.0.2:1", f.pool.modest()+grantBytes, f.pool.modest()+grantBytes); !store.IsBusy(err) {
			t.Errorf("a query that waits: %v", err)
		}
		answer.Free()
	})
}

// TestPausesOfTheServerDoNotCount: a client is not slow because its query computes for long between the parts of its
// answer.
func TestPausesOfTheServerDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxWait = 32*grantBytes, time.Minute
		f := newFixture(t, config)
		answer := f.Unsent(t.Context(), "10.0.0.1:1")
		if err := answer.AtLeast(f.pool.most()); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() {
			waited <- f.take(t.Context(), "10.0.0.2:1", f.pool.modest()+grantBytes, f.pool.modest()+grantBytes)
		}()
		out := answer.Writer(&client{rate: 2 * slowRead}, func() { t.Error("its answer was ended") })
		for range 10 {
			time.Sleep(2 * readPatience / 3)
			if _, err := out.Write(make([]byte, 64<<10)); err != nil {
				t.Error(err)
			}
		}
		answer.Free()
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

// A failure to send that nobody has caused is passed on.
func TestSendingFails(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	write := func(w io.Writer, bytes int) (int, error) {
		answer := f.Unsent(context.Background(), "")
		defer answer.Free()
		if err := answer.AtLeast(2 * smallGrant); err != nil {
			t.Fatal(err)
		}
		return answer.Writer(w, nil).Write(make([]byte, bytes))
	}
	reset := &client{1, make(chan struct{})}
	close(reset.gone)
	if n, err := write(reset, 100); n != 0 || err != errCut {
		t.Errorf("%d bytes, %v", n, err)
	}
	var all bytes.Buffer
	if n, err := write(&all, 3*sentAtOnce+1); n != all.Len() || n != 3*sentAtOnce+1 || err != nil {
		t.Errorf("%d bytes of which %d were accepted, %v", n, all.Len(), err)
	}
}

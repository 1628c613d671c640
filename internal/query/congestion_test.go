package query

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/store"
)

// A day is what became of queries that came at a rate.
type day struct {
	sync.Mutex
	served, refused int
	longest         time.Duration // from the arrival to the end, of one that was served
	latest          time.Duration // from the arrival to the refusal
	err             error         // of one that was refused
}

// come lets a query come each time after a pause, for some time.
func (f *fixture) come(all *sync.WaitGroup, pause, during time.Duration, work func(*Session) error) *day {
	d := &day{}
	for began := time.Now(); time.Since(began) < during; time.Sleep(pause) {
		all.Go(func() {
			came := time.Now()
			run, err := f.Begin(context.Background(), Request{})
			if err == nil {
				err = work(run)
				run.Close(err)
			}
			d.Lock()
			defer d.Unlock()
			if took := time.Since(came); err != nil {
				d.refused, d.latest, d.err = d.refused+1, max(d.latest, took), err
			} else {
				d.served, d.longest = d.served+1, max(d.longest, took)
			}
		})
	}
	return d
}

// While five times as many queries come as can be served, those that are served wait for a
// short time, the others learn soon that they are not, and the server is never idle. After
// that everybody is served again.
func TestCongestedLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxConcurrent = 1
		f := newFixture(t, config)
		const took = 500 * time.Millisecond
		work := func(*Session) error { time.Sleep(took); return nil } // as one that waits for the store
		var all sync.WaitGroup
		burst := f.come(&all, took/5, config.MaxWait/10, work)
		all.Wait()
		if burst.refused > 0 {
			t.Errorf("of a burst %d queries were refused: %v", burst.refused, burst.err)
		}
		if n := counted(t, f.metrics.shed.WithLabelValues("begin")); n != 0 {
			t.Errorf("%v of a burst are counted", n)
		}
		flood := f.come(&all, took/5, time.Minute, work)
		all.Wait()
		limit := (*store.LimitError)(nil)
		if !errors.As(flood.err, &limit) || !limit.Busy || limit.Limit != "query.max_wait" || limit.Wait != config.MaxWait/5 || !strings.Contains(flood.err.Error(), "for 5s no request was served within 500ms") {
			t.Errorf("the error of a refused query: %v", flood.err)
		}
		if flood.longest > 6*time.Second || flood.latest > 6*time.Second || flood.served < 118 || flood.refused == 0 {
			t.Errorf("%d queries were served, the last after %s; %d were refused, the last after %s", flood.served, flood.longest, flood.refused, flood.latest)
		}
		if n := counted(t, f.metrics.shed.WithLabelValues("begin")); int(n) != flood.refused {
			t.Errorf("%v are counted, %d were refused", n, flood.refused)
		}
		calm := f.come(&all, 2*took, time.Minute, work)
		all.Wait()
		if calm.refused > 0 || calm.longest > took {
			t.Errorf("after the flood %d queries are refused, and one took %s", calm.refused, calm.longest)
		}
	})
}

// Short queries begin at once, whatever else is asked. Long ones that come beyond what can be
// computed are refused after their first turn, and not half done.
func TestCongestedTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxConcurrent = 4
		f := newFixture(t, config)
		compute := func(s *Session, turns int) error {
			for range turns {
				time.Sleep(turnTime)
				if err := s.Yield(); err != nil {
					return err
				}
			}
			return nil
		}
		var all sync.WaitGroup
		var short *day
		all.Go(func() {
			short = f.come(&all, 100*time.Millisecond, time.Minute, func(*Session) error { time.Sleep(turnTime / 2); return nil })
		})
		long := f.come(&all, 50*time.Millisecond, time.Minute, func(s *Session) error { return compute(s, 50) }) // 20 come in a second, 4 are done
		all.Wait()
		if short.refused > 0 || short.longest > time.Second {
			t.Errorf("%d of %d short queries were refused (%v), and one took %s", short.refused, short.served, short.err, short.longest)
		}
		if long.refused == 0 || long.latest > 10*time.Second || long.longest > 20*time.Second || long.served < 180 {
			t.Errorf("%d long queries were served, the slowest in %s; %d were refused, the last after %s", long.served, long.longest, long.refused, long.latest)
		}
		if n := counted(t, f.metrics.shed.WithLabelValues("turn")); int(n) != long.refused {
			t.Errorf("%v are counted, %d were refused: %v", n, long.refused, long.err)
		}
		var limit *store.LimitError
		if !errors.As(long.err, &limit) || !limit.Busy || !strings.Contains(limit.What, "third turn") {
			t.Errorf("a long query is refused with %v", long.err)
		}
		if n := f.slots.inUse() + f.Queued() + len(f.Running()); n != 0 {
			t.Errorf("%d slots, waiters and queries are left", n)
		}
	})
}

// TestCongestedTurnsOfAnswers: a query of whose answer a part has been sent is not refused, however many
// others come.
func TestCongestedTurnsOfAnswers(t *testing.T) {
	for _, sent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			config := DefaultConfig()
			config.MaxConcurrent = 4
			f := newFixture(t, config)
			var all sync.WaitGroup
			f.come(&all, 50*time.Millisecond, 20*time.Second, func(s *Session) error {
				if sent {
					s.Settle()
				}
				for range 50 {
					time.Sleep(turnTime)
					if err := s.Yield(); err != nil {
						return err
					}
				}
				return nil
			})
			all.Wait()
			if n := counted(t, f.metrics.shed.WithLabelValues("turn")); (n == 0) != sent {
				t.Errorf("a part has been sent: %t; %v queries are refused at a later turn", sent, n)
			}
		})
	}
}

// TestLineThatIsNeverEmpty: a line whose waiters are served soon is not congested, although it is never
// empty. One that then has to wait a little longer is not refused.
func TestLineThatIsNeverEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 10 * time.Second
		s := &slots{}
		stand := func() *waiter {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.stand(netip.Prefix{}, 0, patience, false)
		}
		stand()
		last := stand()
		for range patience / (200 * time.Millisecond) {
			time.Sleep(200 * time.Millisecond)
			s.leave() // the first has a slot
			last = stand()
		}
		time.Sleep(patience / 4)
		stand()
		select {
		case <-last.called:
			t.Errorf("it was called: %v", last.refused)
		default:
		}
	})
}

package gate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
)

var (
	crowd  = netip.MustParsePrefix("192.0.2.1/32")
	single = netip.MustParsePrefix("192.0.2.2/32")
	third  = netip.MustParsePrefix("192.0.2.3/32")
)

// Senders take turns, however many callers each has; those of one sender keep their order.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1)
		g.TryEnter(crowd, 1)
		admitted := make(chan string, 10)
		wait := func(sender netip.Prefix, name string) {
			go func() {
				if _, waited, err := g.Enter(t.Context(), sender, 1); err != nil || !waited {
					t.Errorf("%s: waited %t, %v", name, waited, err)
				}
				admitted <- name
			}()
			synctest.Wait()
		}
		for i := range 4 {
			wait(crowd, fmt.Sprint("crowd ", i))
		}
		wait(single, "single 0")
		wait(third, "third 0")
		wait(single, "single 1")
		var order []string
		for i := range 7 {
			if n := g.Waiting(); n != 7-i {
				t.Errorf("%d wait, want %d", n, 7-i)
			}
			g.Leave(crowd, 1)
			order = append(order, <-admitted)
		}
		if want := []string{"crowd 0", "single 0", "third 0", "crowd 1", "single 1", "crowd 2", "crowd 3"}; !slices.Equal(order, want) {
			t.Errorf("admitted in the order %q, want %q", order, want)
		}
		if g.Leave(crowd, 1); g.InUse() != 0 || len(g.mu.lines) != 0 {
			t.Errorf("%d are in use, %d senders wait", g.InUse(), len(g.mu.lines))
		}
	})
}

// A large caller is not overtaken by smaller ones that would fit. One that gives up makes room for them.
func TestLargeCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(10)
		g.TryEnter(crowd, 5)
		ctx, cancel := context.WithCancel(t.Context())
		large := make(chan error, 1)
		go func() {
			_, _, err := g.Enter(ctx, crowd, 100)
			large <- err
		}()
		synctest.Wait()
		if g.TryEnter(crowd, 1) {
			t.Error("a caller overtakes one that waits")
		}
		small := make(chan int64, 1)
		go func() {
			taken, _, _ := g.Enter(t.Context(), single, 4)
			small <- taken
		}()
		synctest.Wait()
		if g.InUse() != 5 {
			t.Errorf("%d are in use beside a large caller", g.InUse())
		}
		cancel()
		if err := <-large; !errors.Is(err, context.Canceled) {
			t.Errorf("the large caller: %v", err)
		}
		if taken := <-small; taken != 4 || g.InUse() != 9 {
			t.Errorf("the small one took %d, %d are in use", taken, g.InUse())
		}
		g.Leave(crowd, 9)
		if taken, waited, err := g.Enter(t.Context(), crowd, 100); taken != 10 || waited || err != nil {
			t.Errorf("an empty gate gave %d of 10, waited %t, %v", taken, waited, err)
		}
	})
}

// The reserve is only for senders that hold no more than it. They pass callers of others that wait,
// and take turns among themselves.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewReserving(80, 10)
		for range 7 {
			if !g.TryEnter(crowd, 10) {
				t.Fatal("no room for the crowd")
			}
		}
		if g.TryEnter(crowd, 1) {
			t.Error("the crowd takes of the reserve")
		}
		admitted := make(chan string, 10)
		wait := func(sender netip.Prefix, name string, n int64) {
			go func() {
				taken, _, err := g.Enter(t.Context(), sender, n)
				if err != nil || taken != n {
					t.Errorf("%s: %d, %v", name, taken, err)
				}
				admitted <- name
			}()
			synctest.Wait()
		}
		wait(crowd, "crowd", 10)
		if !g.TryEnter(single, 6) {
			t.Error("no room for a single sender")
		}
		wait(single, "single", 4)
		if got := <-admitted; got != "single" {
			t.Errorf("%s is admitted", got)
		}
		wait(third, "third", 5) // the reserve is in use
		wait(single, "large single", 20)
		if len(admitted) != 0 {
			t.Errorf("%s is admitted to a full gate", <-admitted)
		}
		g.Leave(single, 6)
		synctest.Wait()
		if got := <-admitted; got != "third" || len(admitted) != 0 {
			t.Errorf("%s is admitted to the reserve, %d more", got, len(admitted))
		}
		for range 2 {
			g.Leave(crowd, 10)
		}
		synctest.Wait()
		if got := <-admitted; got != "crowd" || len(admitted) != 0 {
			t.Errorf("%s is admitted, %d more", got, len(admitted))
		}
		for range 2 {
			g.Leave(crowd, 10)
		}
		if got := <-admitted; got != "large single" {
			t.Errorf("%s is admitted", got)
		}
		for sender, n := range map[netip.Prefix]int64{crowd: 40, single: 24, third: 5} {
			g.Leave(sender, n)
		}
		if g.InUse() != 0 || len(g.mu.held) != 0 || len(g.mu.lines) != 0 {
			t.Errorf("%d are in use, %d senders hold some, %d wait", g.InUse(), len(g.mu.held), len(g.mu.lines))
		}
		if taken, _, err := g.Enter(t.Context(), crowd, 1000); err != nil || taken != 70 {
			t.Errorf("a caller that asks for too much gets %d, %v", taken, err)
		}
	})
}

// Small callers pass one that is blocked as long as they fit, also several of one sender.
func TestSmallCallersOfOneSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewReserving(10, 3)
		enter := func(sender netip.Prefix, n int64) chan struct{} {
			done := make(chan struct{})
			go func() {
				g.Enter(t.Context(), sender, n)
				close(done)
			}()
			synctest.Wait()
			return done
		}
		enter(crowd, 7)
		enter(third, 3)
		blocked := enter(crowd, 7)
		first, second := enter(single, 1), enter(single, 1)
		g.Leave(third, 3)
		synctest.Wait()
		for i, done := range []chan struct{}{first, second} {
			select {
			case <-done:
			default:
				t.Errorf("small caller %d still waits, although %d of 10 are in use", i, g.InUse())
			}
		}
		g.Leave(crowd, 7)
		synctest.Wait()
		<-blocked
	})
}

// Small callers that arrive all the time do not keep a large one waiting for ever.
func TestSmallCallersLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewReserving(100, 10)
		sender := func(i int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32) }
		for i := range 10 {
			if !g.TryEnter(sender(i), 9) {
				t.Fatal(i)
			}
		}
		large := make(chan struct{})
		go func() {
			g.Enter(t.Context(), single, 60)
			close(large)
		}()
		synctest.Wait()
		for round := range 1000 { // each small one leaves, and another comes
			i := round % 10
			g.Leave(sender(i), 9)
			g.TryEnter(sender(i), 9)
			synctest.Wait()
			select {
			case <-large:
				return
			default:
			}
		}
		t.Error("the large caller was overtaken 1000 times")
		for i := range 10 {
			g.Leave(sender(i), 9)
		}
		<-large
	})
}

// While a caller waits for what is not reserved, others get of the reserve alone.
func TestLargeCallerBesideAReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewReserving(10, 4)
		g.TryEnter(crowd, 4)
		enter := func(sender netip.Prefix, n int64) {
			go func() {
				if _, _, err := g.Enter(t.Context(), sender, n); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		enter(third, 6)
		enter(single, 4) // of the reserve
		enter(single, 2)
		if g.InUse() != 8 {
			t.Fatalf("%d are in use, want 4 and the reserve", g.InUse())
		}
		if g.Leave(crowd, 1); g.InUse() != 7 {
			t.Errorf("%d are in use: a small caller has passed the large one", g.InUse())
		}
		g.Leave(crowd, 3)
		if synctest.Wait(); g.InUse() != 10 {
			t.Errorf("%d are in use, want 6 and the reserve", g.InUse())
		}
		g.Leave(third, 6)
		if synctest.Wait(); g.InUse() != 6 {
			t.Errorf("%d are in use, want all of one sender", g.InUse())
		}
	})
}

// A reserve of one is one.
func TestSmallestReserve(t *testing.T) {
	g := NewReserving(2, 1)
	if !g.TryEnter(crowd, 1) || !g.TryEnter(single, 1) || g.TryEnter(third, 1) {
		t.Errorf("%d are in use, want one and the reserve", g.InUse())
	}
	g.Leave(crowd, 1)
	if g.Leave(single, 1); g.InUse() != 0 || len(g.mu.held) != 0 {
		t.Errorf("%d are in use, by %d senders", g.InUse(), len(g.mu.held))
	}
}

// ending is a context that has ended, and does something when somebody starts to wait for that.
type ending struct {
	context.Context
	do func()
}

func (e ending) Done() <-chan struct{} {
	e.do()
	return e.Context.Done()
}

// A caller that is admitted just before its context ends has what it must give back, and one that is
// not has nothing. Which of both a caller sees first is left to chance, hence many of them.
func TestContextThatEnds(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g := New(3)
	for range 50 {
		g.TryEnter(crowd, 3)
		if taken, waited, err := g.Enter(ending{ended, func() { g.Leave(crowd, 3) }}, single, 2); taken != 2 || !waited || err != nil || g.InUse() != 2 {
			t.Fatalf("admitted: took %d, waited %t, %v; %d are in use", taken, waited, err, g.InUse())
		}
		if taken, waited, err := g.Enter(ended, crowd, 2); taken != 0 || !waited || !errors.Is(err, context.Canceled) || g.InUse() != 2 {
			t.Fatalf("not admitted: took %d, waited %t, %v; %d are in use", taken, waited, err, g.InUse())
		}
		g.Leave(single, 2)
	}
}

// What one sender gives back helps another one unless it is of the reserve and the other one holds too much
// for that. Asking changes nothing.
func TestHelps(t *testing.T) {
	g := NewReserving(4, 1)
	for _, sender := range []netip.Prefix{crowd, crowd, single, third} { // third holds the reserve
		if !g.TryEnter(sender, 1) {
			t.Fatalf("no room for %v", sender)
		}
	}
	newcomer := netip.MustParsePrefix("192.0.2.4/32")
	for _, c := range []struct {
		leaving, sender netip.Prefix
		want            bool
	}{{third, crowd, false}, {third, single, false}, {third, third, true}, {third, newcomer, true}, {single, crowd, true}, {crowd, crowd, true}} {
		if got := g.Helps(c.leaving, c.sender, 1); got != c.want {
			t.Errorf("what %v gives back helps %v: %t", c.leaving, c.sender, got)
		}
	}
	if g.InUse() != 4 || len(g.mu.held) != 3 || g.mu.used.reserved != 1 || g.mu.held[third].reserved != 1 {
		t.Errorf("asking has changed the gate: %+v", &g.mu.held)
	}
}

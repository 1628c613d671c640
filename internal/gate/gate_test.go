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
		g.TryEnter(1)
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
		for range 7 {
			g.Leave(1)
			order = append(order, <-admitted)
		}
		if want := []string{"crowd 0", "single 0", "third 0", "crowd 1", "single 1", "crowd 2", "crowd 3"}; !slices.Equal(order, want) {
			t.Errorf("admitted in the order %q, want %q", order, want)
		}
		if g.Leave(1); g.InUse() != 0 || len(g.mu.lines) != 0 {
			t.Errorf("%d are in use, %d senders wait", g.InUse(), len(g.mu.lines))
		}
	})
}

// A large caller is not overtaken by smaller ones that would fit. One that gives up makes room for them.
func TestLargeCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(10)
		g.TryEnter(5)
		ctx, cancel := context.WithCancel(t.Context())
		large := make(chan error, 1)
		go func() {
			_, _, err := g.Enter(ctx, crowd, 100)
			large <- err
		}()
		synctest.Wait()
		if g.TryEnter(1) {
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
		g.Leave(9)
		if taken, waited, err := g.Enter(t.Context(), crowd, 100); taken != 10 || waited || err != nil {
			t.Errorf("an empty gate gave %d of 10, waited %t, %v", taken, waited, err)
		}
	})
}

package e2e

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"varve/e2e/process"
)

// TestStopInTheCrowd stops a server with default settings in order while many
// clients send. After the next start, all acknowledged points exist, and of
// each telnet stream all lines up to some line.
func TestStopInTheCrowd(t *testing.T) {
	process.SkipShort(t)
	const clients = 12
	dir := t.TempDir()
	s := process.Start(t, dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var writers []*writer
	for i := range clients {
		writers = append(writers, newWriter(i, i%2 == 1, rand.Uint64()))
	}
	ends := make([]error, clients)
	var wg sync.WaitGroup
	for i, w := range writers {
		wg.Go(func() {
			ends[i] = w.run(ctx, s)
			if !s.Ending.Load() {
				t.Errorf("a writer ended before the server was: %v", ends[i])
			}
		})
	}
	time.Sleep(3 * time.Second)
	took := s.Stop(t)
	wg.Wait()
	for _, err := range ends {
		if err != nil && !excusable(err, true) {
			t.Error(err)
		}
	}

	s = process.Start(t, dir)
	stored, caught, open := 0, 0, 0
	for _, w := range writers {
		w.server = s
		open += w.ledger.streamed.len()
		if err := w.check(ctx); err != nil {
			t.Error(err)
		}
		stored += w.ledger.count()
		caught += w.ledger.caught
	}
	t.Logf("stopped in %v with %d clients sending; %d points are there; of %d that were under way by telnet %d were stored",
		took.Round(time.Millisecond), clients, stored, open, caught)
	s.Stop(t)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// The number of concurrent askers in the stage busy, and how long each question
// is asked.
const (
	askers  = 4
	askFor  = 4 * time.Second
	perStep = 40 * time.Millisecond // time between steps of W1: 100,000 points/s

	// VictoriaMetrics takes up to this long to show a point. Questions leave out
	// younger points, for which its answer would be empty, and fast.
	visibleAfter = 5 * time.Second
)

// busyStage asks servers that hold W1 the usual questions while new points of its
// series arrive. Only one server runs at a time; they take turns by rounds.
func (r *run) busyStage(ctx context.Context) error {
	w := r.sized(w1)
	for _, t := range r.targets {
		if slow(t) {
			continue
		}
		if err := r.loadIfMissing(ctx, t, w, r.loaded); err != nil {
			return fmt.Errorf("%s: %w", t.name(), err)
		}
	}
	start := w
	for round := range r.rounds {
		next := start
		for i := range r.targets {
			t := r.targets[(round+i)%len(r.targets)]
			if slow(t) {
				continue
			}
			end, err := r.askBusy(ctx, start, round, t)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name(), err)
			}
			next.steps = max(next.steps, end)
			fmt.Fprintf(os.Stderr, "busy round %d: %s done\n", round+1, t.name())
		}
		start = next
	}
	return nil
}

// askBusy measures one server that holds w, and returns how many steps its series
// have afterwards.
func (r *run) askBusy(ctx context.Context, w workload, round int, t target) (steps int, err error) {
	s, err := t.start(ctx, r.loaded[t.name()], usual)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.account().stop()) }()

	more := w
	more.startMS, more.pace = w.endMS(), perStep*time.Duration(w.series())/4000
	more.steps = int((askFor*time.Duration(len(queries)) + 2*time.Second) / more.pace)
	sent := make(chan error, 1)
	began := time.Now()
	go func() { sent <- s.send(ctx, more, asLines, r.connections) }()

	time.Sleep(time.Second)
	for _, q := range queries {
		stage := q.name + " busy"
		var millis []float64
		err := r.profiled(ctx, s, stage, func() (err error) {
			millis, err = askAtOnce(ctx, s, func(turn int) question {
				now := w // up to the time until which all servers show its series
				now.steps += max(0, int((time.Since(began)-visibleAfter)/more.pace))
				return q.question(now, turn)
			})
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("%s: %w", q.name, err)
		}
		r.book.title(stage, fmt.Sprintf("%s; %d askers, 100,000 points/s coming in", q.about, askers))
		r.book.add(stage, figureP50, t.name(), round, median(millis))
		r.book.add(stage, figureP99, t.name(), round, quantile(millis, 0.99))
		r.book.add(stage, figureRate, t.name(), round, float64(len(millis))/askFor.Seconds())
	}
	if err := <-sent; err != nil {
		return 0, err
	}
	r.book.title("busy", "what was sent meanwhile")
	r.book.add("busy", figureTaken, t.name(), round, float64(more.points())/1e6/time.Since(began).Seconds())
	used, err := s.account().usage()
	if err != nil {
		return 0, err
	}
	r.book.add("busy", figureBusyCPU, t.name(), round, used.cpu)
	return w.steps + more.steps, awaitStored(ctx, s, more.points())
}

// askAtOnce runs concurrent askers for a while and returns the time of each answer in
// milliseconds.
func askAtOnce(ctx context.Context, s server, nth func(n int) question) ([]float64, error) {
	var (
		mu     sync.Mutex
		millis []float64
		errs   []error
		wait   sync.WaitGroup
	)
	for first := range askers {
		wait.Go(func() {
			own, err := askInTurns(ctx, s, func(n int) question { return nth(first + n*askers) })
			mu.Lock()
			defer mu.Unlock()
			millis, errs = append(millis, own...), append(errs, err)
		})
	}
	wait.Wait()
	return millis, errors.Join(errs...)
}

// askInTurns is one of the askers: it sends its nth question after the answer to the
// previous one.
func askInTurns(ctx context.Context, s server, nth func(n int) question) (millis []float64, err error) {
	a, err := dialAsker(ctx, s.request(nth(0)))
	if err != nil {
		return nil, err
	}
	defer a.close()
	for began, n := time.Now(), 0; time.Since(began) < askFor; n++ {
		text, err := s.request(nth(n)).text()
		if err != nil {
			return nil, err
		}
		asked := time.Now()
		if _, err := a.ask(text); err != nil {
			return nil, err
		}
		millis = append(millis, float64(time.Since(asked).Nanoseconds())/1e6)
	}
	return millis, nil
}

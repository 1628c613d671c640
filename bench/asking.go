package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A contender is a server that takes part in queries.
type contender struct {
	name   string
	server server
	asker  *asker // open while one kind of question is asked
	millis []float64
	spent  time.Duration
	cpu    int64
}

// askMost bounds the time for one query at one target.
const askMost = 30 * time.Second

// ask times the queries on servers that hold w. The servers take turns, one
// request at a time. The first target is compared with the others. dirs are the
// directories that ingest left, by target; suffix is appended to the names of
// queries.
func (r *run) ask(ctx context.Context, w workload, targets []target, dirs map[string]string, how mode, suffix string) error {
	var contenders []*contender
	defer func() {
		for _, c := range contenders {
			if err := c.server.account().stop(); err != nil {
				r.book.fail("queries", c.name, err)
			}
		}
	}()
	for _, t := range targets {
		dir, ok := dirs[t.name()]
		if !ok {
			continue
		}
		s, err := t.start(ctx, dir, how)
		if err != nil {
			r.book.fail("queries", t.name(), err)
			continue
		}
		contenders = append(contenders, &contender{name: t.name(), server: s})
	}
	if len(contenders) == 0 || contenders[0].name != targets[0].name() {
		return nil // without Varve there is nothing to compare with
	}
	if err := warmUp(ctx, r.warm, w, contenders); err != nil {
		return err
	}
	for _, q := range queries {
		q.name += suffix
		if err := r.askOne(ctx, w, q, contenders); err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
	}
	return nil
}

// warmUp sends all questions to the servers that run on Java for a while, because
// Java compiles code only after it has run often.
func warmUp(ctx context.Context, each time.Duration, w workload, contenders []*contender) error {
	for _, c := range contenders {
		if c.server.account().under == nil {
			continue
		}
		for began, turn := time.Now(), 0; time.Since(began) < each; turn++ {
			for _, q := range queries {
				if _, err := c.server.request(q.question(w, turn)).do(ctx); err != nil {
					return fmt.Errorf("%s: %s: %w", q.name, c.name, err)
				}
			}
		}
	}
	return nil
}

func (r *run) askOne(ctx context.Context, w workload, q query, contenders []*contender) (err error) {
	for _, c := range contenders {
		if c.asker, err = dialAsker(ctx, c.server.request(q.question(w, 0))); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer c.asker.close()
	}
	points, err := r.compareAnswers(w, q, contenders)
	if err != nil {
		return err
	}
	r.book.title(q.name, fmt.Sprintf("%s; %d points in an answer", q.about, points))
	for _, c := range contenders {
		c.millis, c.spent = nil, 0
		if c.cpu, err = c.server.account().cpuNanoseconds(); err != nil {
			return err
		}
	}
	for turn := range r.turns {
		for i := range contenders {
			c := contenders[(turn+i)%len(contenders)]
			if c.spent > askMost {
				continue
			}
			text, err := c.server.request(q.question(w, turn)).text()
			if err != nil {
				return err
			}
			began := time.Now()
			if _, err := c.asker.ask(text); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			taken := time.Since(began)
			c.spent += taken
			c.millis = append(c.millis, float64(taken.Nanoseconds())/1e6)
		}
	}
	for _, c := range contenders {
		cpu, err := c.server.account().cpuNanoseconds()
		if err != nil {
			return err
		}
		r.book.add(q.name, figureP50, c.name, 0, median(c.millis))
		r.book.add(q.name, figureP99, c.name, 0, quantile(c.millis, 0.99))
		r.book.add(q.name, figureQueryCPU, c.name, 0, float64(cpu-c.cpu)/1e6/float64(len(c.millis)))
	}
	return r.profileQuery(ctx, w, q, contenders[0].server)
}

// compareAnswers sends the first questions to all servers, which also warms
// them up, and returns how many points an answer has. A peer whose answer
// differs from Varve's counts as a failure, recorded once, but is still timed.
func (r *run) compareAnswers(w workload, q query, contenders []*contender) (points int, err error) {
	differs := make(map[string]bool)
	for turn := range 20 {
		var ours answer
		for i, c := range contenders {
			a, err := c.answer(q.question(w, turn))
			if err != nil {
				return 0, fmt.Errorf("%s: %w", c.name, err)
			}
			if i == 0 {
				ours, points = a, a.size()
				continue
			}
			if err := ours.equal(a); err != nil && !differs[c.name] {
				differs[c.name] = true
				r.book.fail(q.name, c.name, fmt.Errorf("answer to question %d differs: %w", turn, err))
			}
		}
	}
	return points, nil
}

// answer sends a question and parses the answer.
func (c *contender) answer(q question) (answer, error) {
	text, err := c.server.request(q).text()
	if err != nil {
		return nil, err
	}
	if text, err = c.asker.ask(text); err != nil {
		return nil, err
	}
	a, err := c.server.read(q, text)
	if err == nil && len(a) == 0 {
		err = errors.New("answer is empty")
	}
	return a, err
}

// profileQuery repeats a query for some seconds while profiles are taken, if
// they are requested.
func (r *run) profileQuery(ctx context.Context, w workload, q query, s server) error {
	if r.profiles == "" {
		return nil
	}
	return r.profiled(ctx, s, q.name, func() error {
		for began, turn := time.Now(), 0; time.Since(began) < 3*time.Second; turn++ {
			if _, err := s.request(q.question(w, turn)).do(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

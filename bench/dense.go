package main

import (
	"context"
	"fmt"
	"os"
)

// denseStage asks for aggregates of all points of one metric: first directly
// after they were sent, when Varve has them only in memory, and again when all
// are in merged files.
func (r *run) denseStage(ctx context.Context) error {
	w := r.sized(dense)
	var contenders []*contender
	var dirs []string
	defer func() {
		for _, c := range contenders {
			if err := c.server.account().stop(); err != nil {
				r.book.fail("dense", c.name, err)
			}
		}
		for _, dir := range dirs {
			os.RemoveAll(dir)
		}
	}()
	for _, t := range r.targets {
		if slow(t) {
			continue
		}
		dir, _, err := r.emptyDir("dense", t)
		if err != nil {
			return err
		}
		dirs = append(dirs, dir)
		s, err := t.start(ctx, dir, onlyLogs)
		if err != nil {
			return err
		}
		contenders = append(contenders, &contender{name: t.name(), server: s})
		if err = r.sendAll(ctx, s, w, asLines); err == nil {
			err = s.flush(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name(), err)
		}
		fmt.Fprintf(os.Stderr, "dense: %s has its points\n", t.name())
	}
	few := *r
	few.turns = min(r.turns, 40)
	for _, state := range []string{" head", ""} {
		for _, q := range denseQueries {
			q.name += state
			q.about += ", " + w.String()
			if err := few.askOne(ctx, w, q, contenders); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
		}
		if state == "" {
			break
		}
		for _, c := range contenders {
			if err := c.server.settle(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}

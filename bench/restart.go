package main

import (
	"context"
	"time"
)

// restarts measures how long targets take to start: after kill -9 with 10 M
// points in the log, and with a million series.
func (r *run) restarts(ctx context.Context) error {
	killed := w1
	killed.steps = 2500
	million := shapes[len(shapes)-1]
	if r.quick {
		killed.steps, million.hosts = 500, 5_000
	}
	r.book.title("kill", killed.String()+", kill -9 as soon as all are acknowledged, start")
	r.book.title("open", million.String()+", settled, stopped, start")
	for _, t := range r.targets {
		if slow(t) {
			continue
		}
		if err := r.afterKill(ctx, t, killed); err != nil {
			r.book.fail("kill", t.name(), err)
		}
	}
	for _, t := range r.targets {
		if slow(t) {
			continue
		}
		if err := r.afterStop(ctx, t, million); err != nil {
			r.book.fail("open", t.name(), err)
		}
	}
	return nil
}

func (r *run) afterKill(ctx context.Context, t target, w workload) error {
	dir, remove, err := r.emptyDir("kill", t)
	if err != nil {
		return err
	}
	defer remove()
	s, err := t.start(ctx, dir, onlyLogs)
	if err != nil {
		return err
	}
	err = r.sendAll(ctx, s, w, asLines)
	s.account().kill()
	if err != nil {
		return err
	}
	return r.timeStart(ctx, "kill", t, w, dir, onlyLogs)
}

func (r *run) afterStop(ctx context.Context, t target, w workload) error {
	dir, remove, err := r.emptyDir("open", t)
	if err != nil {
		return err
	}
	defer remove()
	if err := r.load(ctx, t, w, dir); err != nil {
		return err
	}
	return r.timeStart(ctx, "open", t, w, dir, usual)
}

// timeStart starts a target in dir, sends it one question, and counts the
// points of w that it has. Files are in the operating system's cache.
func (r *run) timeStart(ctx context.Context, stage string, t target, w workload, dir string, how mode) error {
	began := time.Now()
	return with(ctx, t, dir, how, func(s server) error {
		ready := time.Since(began)
		if _, err := s.request(question{kind: raw, startMS: w.startMS, endExcl: w.startMS + hourMS}).do(ctx); err != nil {
			return err
		}
		answers := time.Since(began)
		used, err := s.account().usage()
		if err != nil {
			return err
		}
		lost, err := missing(ctx, s, w)
		if err != nil {
			return err
		}
		r.book.add(stage, figureReady, t.name(), 0, ready.Seconds())
		r.book.add(stage, figureAnswers, t.name(), 0, answers.Seconds())
		r.book.add(stage, figureOpenPeak, t.name(), 0, float64(used.peak)/1e6)
		r.book.add(stage, figureLost, t.name(), 0, float64(lost))
		return nil
	})
}

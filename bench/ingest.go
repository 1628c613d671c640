package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// ingest runs one stage of sending w on one target, in an empty directory. It
// leaves everything settled and the server stopped.
func (r *run) ingest(ctx context.Context, stage string, round int, t target, w workload, as form, dir string) error {
	s, err := t.start(ctx, dir, usual)
	if err != nil {
		return err
	}
	if err := r.sendTo(ctx, s, stage, round, t, w, as); err != nil {
		s.account().kill()
		return err
	}
	return s.account().stop()
}

// sendTo sends w to a server, measures what it cost, and looks whether all of it is
// there.
func (r *run) sendTo(ctx context.Context, s server, stage string, round int, t target, w workload, as form) error {
	add := func(f figure, v float64) { r.book.add(stage, f, t.name(), round, v) }
	millions := float64(w.points()) / 1e6

	before, err := s.account().cpuSeconds()
	if err != nil {
		return err
	}
	ownBefore, err := s.account().ownSeconds()
	if err != nil {
		return err
	}
	began := time.Now()
	stopProfile := r.profile(ctx, s, filepath.Join(r.profiles, stage))
	if err := errors.Join(s.send(ctx, w, as, r.connections), stopProfile()); err != nil {
		return err
	}
	if err := awaitStored(ctx, s, w.points()); err != nil {
		return err
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	taken := time.Since(began)
	visible, err := s.account().cpuSeconds()
	if err != nil {
		return err
	}
	own, err := s.account().ownSeconds()
	if err != nil {
		return err
	}
	memory, err := s.account().peakMemory()
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	settled, err := s.account().cpuSeconds()
	if err != nil {
		return err
	}
	var disk []float64 // of each directory, per point
	var sum float64
	for i, dir := range s.dataDirs() {
		n, err := diskBytes(dir)
		if err != nil {
			return err
		}
		disk = append(disk, float64(n)/float64(w.points()))
		sum += disk[i]
	}
	if err := verify(ctx, s, w); err != nil {
		return err
	}
	add(figureCPU, (visible-before)/millions)
	if s.account().under != nil {
		add(figureOwnCPU, (own-ownBefore)/millions)
	}
	add(figureCPUAll, (settled-before)/millions)
	add(figureSpeed, millions/taken.Seconds())
	if len(disk) > 0 {
		add(figureBytes, sum)
	}
	if t.name() == varveName {
		for i, dir := range s.dataDirs() {
			add(figure{figurePart + filepath.Base(dir), figureBytes.unit}, disk[i])
		}
	}
	add(figurePeak, float64(memory)/1e6)
	if s.account().under != nil {
		alone, err := s.account().ownPeak()
		if err != nil {
			return err
		}
		add(figureOwnPeak, float64(alone)/1e6)
	}
	if stage == w1.name && round == 0 {
		wait, err := visibility(ctx, s, w)
		if err != nil {
			return err
		}
		add(figureVisible, float64(wait.Microseconds())/1000)
		return s.settle(ctx)
	}
	return nil
}

// visibility is the longest of some times between sending a point of a series
// that is there and its being counted by a query.
func visibility(ctx context.Context, s server, w workload) (longest time.Duration, err error) {
	const probes, patience = 3, time.Minute
	for i := range probes {
		probe := workload{hosts: 1, steps: 1, startMS: w.endMS() + int64(i)*hourMS, stepMS: 1000, shape: constant}
		began := time.Now()
		if err := s.send(ctx, probe, asLines, 1); err != nil {
			return 0, err
		}
		for {
			counts, err := s.counts(ctx, probe, 0)
			if err != nil {
				return 0, err
			}
			if counts[hostName(0)] == 1 {
				break
			}
			if time.Since(began) > patience {
				return 0, fmt.Errorf("a point is not visible after %v", patience)
			}
			if err := sleep(ctx, time.Millisecond); err != nil {
				return 0, err
			}
		}
		longest = max(longest, time.Since(began))
	}
	return longest, nil
}

// profile takes CPU profiles of a Varve until the function that it returns is
// called, if profiles are wanted.
func (r *run) profile(ctx context.Context, s server, prefix string) (stop func() error) {
	var v *varve
	switch s := s.(type) {
	case *varve:
		v = s
	case *overCassandra:
		v = s.varve
	}
	if v == nil || r.profiles == "" {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- v.profile(ctx, prefix) }()
	return func() error {
		cancel()
		return <-done
	}
}

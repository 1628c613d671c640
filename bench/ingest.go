package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"varve/internal/work"
)

// sendTo sends w to a server, measures the costs, and checks that all points were
// stored.
func (r *run) sendTo(ctx context.Context, s server, stage string, round int, t target, w workload, as form) error {
	add := func(f figure, v float64) { r.book.add(stage, f, t.name(), round, v) }
	millions := float64(w.points()) / 1e6

	before, err := s.account().usage()
	if err != nil {
		return err
	}
	began := time.Now()
	err = r.profiled(ctx, s, stage, func() error { return s.send(ctx, w, as, r.connections) })
	if err == nil {
		err = awaitStored(ctx, s, w.points())
	}
	if err == nil {
		err = s.flush(ctx)
	}
	if err != nil {
		return err
	}
	taken := time.Since(began)
	visible, err := s.account().usage()
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	settled, err := s.account().usage()
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
	if _, untold := s.(*whisperServer); !untold {
		add(figureCPU, (visible.cpu-before.cpu)/millions)
		add(figureSpeed, millions/taken.Seconds())
	}
	if visible.own != nil {
		add(figureOwnCPU, (visible.own.cpu-before.own.cpu)/millions)
	}
	add(figureCPUAll, (settled.cpu-before.cpu)/millions)
	if len(disk) > 0 {
		add(figureBytes, sum)
	}
	if t.name() == varveName {
		for i, dir := range s.dataDirs() {
			add(figure{figurePart + filepath.Base(dir), figureBytes.unit}, disk[i])
		}
	}
	peak := visible.peak
	if as == asPaths || as == asPickles { // these stages measure until all points are in files, because some servers report nothing earlier
		peak = settled.peak
	}
	add(figurePeak, float64(peak)/1e6)
	if visible.own != nil {
		add(figureOwnPeak, float64(visible.own.peak)/1e6)
	}
	add(figureLoad, loadAverage())
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

// visibility is how long a new point of an existing series takes to be counted
// by a query: the longest of several attempts.
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
			if err := work.Pause(ctx, time.Millisecond); err != nil {
				return 0, err
			}
		}
		longest = max(longest, time.Since(began))
	}
	return longest, nil
}

// profiled runs f while CPU profiles of Varve are taken, if they are requested.
func (r *run) profiled(ctx context.Context, s server, stage string, f func() error) error {
	v, ok := s.(interface {
		profile(ctx context.Context, prefix string) error
	})
	if !ok || r.profiles == "" {
		return f()
	}
	prefix := filepath.Join(r.profiles, strings.NewReplacer(" ", "-", ",", "").Replace(stage))
	profiling, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- v.profile(profiling, prefix) }()
	err := f()
	cancel()
	return errors.Join(err, <-done)
}

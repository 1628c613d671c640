package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Stages of retention.
const (
	stageRetention = "graphite retention: "
	stageStages    = "graphite stages, old data: "
)

var (
	figureStageBytes = figure{"block files, settled", "bytes/point sent"}
	figureFolded     = figure{"points folded", "of those sent"}
)

// The rule that is measured. Its middle stage is short, so that two days of data reach
// all stages.
const (
	threeStages = "retention:\n  enforce: true\n  policies:\n    - {name: all, stages: '10s:6h,60s:1d,1h:5y'}\n"
	usualStages = "retention:\n  enforce: true\n  policies:\n    - {name: all, stages: '10s:6h,60s:30d,1h:5y'}\n"
)

// A ruled is a Varve in one of the columns.
type ruled struct{ column, settings string }

// graphiteRetention sends two days of data, with a rule of three stages and without
// rules, and data that all belongs to one stage.
func (r *run) graphiteRetention(ctx context.Context, ours varveTarget) error {
	r.book.column(withoutRule)
	w := workload{name: "retention", hosts: 20, steps: 17_280, stepMS: 10_000, shape: devops}
	if r.quick {
		w.hosts = 5
	}
	now := time.Now()
	w = endingAt(w, now)
	stage := nameOf(stageRetention)
	r.book.title(stage, w.String()+", two days that end now, lines, 10s:6h,60s:1d,1h:5y enforced beside no rule; all that is due is folded")
	servers := []ruled{{varveName, threeStages}, {withoutRule, ""}}
	for round := range r.rounds {
		for i := range servers {
			if err := r.retain(ctx, ours, stage, round, servers[(round+i)%len(servers)], w, true); err != nil {
				return err
			}
		}
	}
	for _, old := range []struct {
		name string
		age  time.Duration
	}{{"60s", 7 * time.Hour}, {"1h", 31 * 24 * time.Hour}} {
		w.hosts = max(w.hosts/2, 5)
		w = endingAt(w, now.Add(-old.age))
		stage := nameOf(stageStages) + " " + old.name
		r.book.title(stage, fmt.Sprintf("%v, two days that end %v ago, 10s:6h,60s:30d,1h:5y beside no rule", w, old.age))
		goals[stage+" "+figureStageBytes.name] = goals[nameOf(stageStages)+" "+figureStageBytes.name]
		for _, one := range []ruled{{varveName, usualStages}, {withoutRule, ""}} {
			if err := r.retain(ctx, ours, stage, 0, one, w, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// retain sends w to a server and lets it fold.
func (r *run) retain(ctx context.Context, ours varveTarget, stage string, round int, how ruled, w workload, withCPU bool) error {
	dir, remove, err := r.emptyDir("retention", ours)
	if err != nil {
		return err
	}
	defer remove()
	s, err := ours.startRuled(ctx, dir, how.settings)
	if err != nil {
		return err
	}
	defer s.kill()
	add := func(f figure, v float64) { r.book.add(stage, f, how.column, round, v) }
	millions := float64(w.points()) / 1e6
	before, err := s.usage()
	if err != nil {
		return err
	}
	var visible usage
	err = r.profiled(ctx, s, stage+" "+how.column, func() error {
		if err := r.sendAll(ctx, s, w, asPaths); err != nil {
			return err
		}
		if visible, err = s.usage(); err != nil {
			return err
		}
		return s.settle(ctx)
	})
	if err != nil {
		return err
	}
	settled, err := s.usage()
	if err != nil {
		return err
	}
	folded, err := s.metric(ctx, "varve_store_folded_samples_total")
	if err != nil {
		return err
	}
	if (folded > 0) != (how.settings != "") {
		return fmt.Errorf("%.0f points were folded %s", folded, how.column)
	}
	bytes, err := diskBytes(filepath.Join(s.dir, "blocks"))
	if err != nil {
		return err
	}
	if withCPU {
		add(figureCPU, (visible.cpu-before.cpu)/millions)
		add(figureCPUAll, (settled.cpu-before.cpu)/millions)
	}
	add(figureStageBytes, float64(bytes)/float64(w.points()))
	add(figureFolded, folded/float64(w.points()))
	add(figureLoad, loadAverage())
	fmt.Fprintf(os.Stderr, "%s round %d: %s done\n", stage, round+1, how.column)
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A run is one call of the command.
type run struct {
	dir         string // holds everything that is written
	targets     []target
	book        *book
	stages      []string
	rounds      int
	turns       int
	warm        time.Duration
	connections int
	profiles    string // directory for CPU profiles of Varve, "" for none
	quick       bool
	loaded      map[string]string // directories with W1 for queries, by target
}

const varveName = "varve"

// stageNames are all stages. A single shape is a stage as well.
var stageNames = []string{"W1", "W2", "W3", "json", "shapes", "queries", "busy", "dense", "restart", "tenants", "timelines", "graphite", "cassandra"}

// cassandraParts are the parts of the stage cassandra, which can be run alone.
var cassandraParts = []string{"cassandra-ingest", "cassandra-live", "cassandra-queries", "cassandra-cities", "cassandra-deletes"}

// upkeepParts run only if they are named: each takes more than an hour.
var upkeepParts = []string{"cassandra-upkeep", upkeepBeside}

func isStage(name string) bool {
	return slices.Contains(stageNames, name) || slices.Contains(cassandraParts, name) || slices.Contains(upkeepParts, name) || slices.Contains(graphiteParts, name) || slices.ContainsFunc(shapes, func(w workload) bool { return w.name == name })
}

// takesPart reports whether a target takes part in a round of a stage that
// sends points.
func takesPart(t target, stage string, round int) bool {
	switch {
	case !slow(t):
		return true
	case t == (kairosTarget{}): // whose users send JSON
		return stage == "json" && round == 0
	case t.name() == (clusterTarget{}).name(): // has a stage of its own
		return false
	}
	return round == 0 && (stage == w1.name || stage == w2.name)
}

// slow reports whether a target would take most of the time.
func slow(t target) bool {
	switch t.(type) {
	case varveTarget, victoriaTarget:
		return false
	}
	return true
}

// usualForm is how users of a target send points.
func usualForm(t target) form {
	if t == (kairosTarget{}) {
		return asJSON
	}
	return asLines
}

// varve is the target of stages that measure only Varve.
func (r *run) varve() (varveTarget, error) {
	for _, t := range r.targets {
		if ours, ok := t.(varveTarget); ok {
			return ours, nil
		}
	}
	return varveTarget{}, errors.New("there is no Varve to measure")
}

// all runs the requested stages. Failures are recorded in the book; only a
// failure that ends the run is an error.
func (r *run) all(ctx context.Context) error {
	wants := func(stage string) bool { return slices.Contains(r.stages, stage) }
	for _, w := range []workload{w1, w2, w3} {
		if !wants(w.name) {
			continue
		}
		w = r.sized(w)
		r.book.title(w.name, w.String()+", put lines")
		for round := range r.rounds {
			r.round(ctx, w.name, round, w, asLines)
		}
	}
	if wants("json") {
		w := r.sized(w1)
		r.book.title("json", fmt.Sprintf("%v, JSON bodies of %d points; KairosDB's with %d an entry for Varve, OpenTSDB's for peers",
			w, bodyPutPoints, entryPoints))
		for round := range r.rounds {
			r.round(ctx, "json", round, w, asJSON)
		}
	}
	for _, w := range shapes {
		if !wants("shapes") && !wants(w.name) {
			continue
		}
		w = r.sized(w)
		r.book.title(w.name, w.String()+", put lines")
		r.round(ctx, w.name, 0, w, asLines)
	}
	for _, stage := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"queries", r.queryStage}, {"busy", r.busyStage}, {"dense", r.denseStage}, {"restart", r.restarts}, {"tenants", r.neighbours}, {"timelines", r.timelineStage},
	} {
		if !wants(stage.name) {
			continue
		}
		if err := stage.do(ctx); err != nil {
			r.book.fail(stage.name, "all", err)
		}
	}
	parts := slices.DeleteFunc(slices.Clone(graphiteParts), func(part string) bool { return !wants("graphite") && !wants(part) })
	r.overGraphite(ctx, parts)
	parts = slices.DeleteFunc(slices.Clone(cassandraParts), func(part string) bool { return !wants("cassandra") && !wants(part) })
	parts = append(parts, slices.DeleteFunc(slices.Clone(upkeepParts), func(part string) bool { return !wants(part) })...)
	if len(parts) > 0 {
		r.overCassandra(ctx, parts)
	}
	return context.Cause(ctx)
}

// sized is w, or a part of it in quick runs.
func (r *run) sized(w workload) workload {
	switch {
	case !r.quick:
	case w.hosts > 1000:
		w.hosts /= 10
	case w.name == w1.name: // queries need all its hours
		w.hosts /= 4
	default:
		w.steps /= 4
	}
	return w
}

// round has each target run a stage that sends points once. Each round begins
// with another target.
func (r *run) round(ctx context.Context, stage string, round int, w workload, as form) {
	for i := range r.targets {
		if t := r.targets[(round+i)%len(r.targets)]; takesPart(t, stage, round) {
			r.turn(ctx, stage, round, t, w, as)
		}
	}
}

// turn has one target run a stage that sends points, in an empty directory.
func (r *run) turn(ctx context.Context, stage string, round int, t target, w workload, as form) {
	if ctx.Err() != nil {
		return
	}
	dir, remove, err := r.emptyDir(stage, t)
	if err == nil {
		err = with(ctx, t, dir, usual, func(s server) error { return r.sendTo(ctx, s, stage, round, t, w, as) })
	}
	switch {
	case err != nil:
		r.book.fail(stage, t.name(), err)
		remove()
	case w.name == w1.name && (stage == w1.name) == (usualForm(t) == asLines) && round == 0 && (slices.Contains(r.stages, "queries") || slices.Contains(r.stages, "busy")):
		r.loaded[t.name()] = dir
	default:
		remove()
	}
	fmt.Fprintf(os.Stderr, "%s round %d: %s done\n", stage, round+1, t.name())
}

// queryStage loads W1 into every target that does not have it, and asks.
func (r *run) queryStage(ctx context.Context) error {
	w := r.sized(w1)
	for _, t := range r.targets {
		if t.name() == (clusterTarget{}).name() {
			continue // has a stage of its own
		}
		if err := r.loadIfMissing(ctx, t, w, r.loaded); err != nil {
			r.book.fail("queries", t.name(), err)
		}
	}
	return r.ask(ctx, w, r.targets, r.loaded, usual, "")
}

// loadIfMissing loads w into a target that has no directory in dirs yet.
func (r *run) loadIfMissing(ctx context.Context, t target, w workload, dirs map[string]string) error {
	if dirs[t.name()] != "" {
		return nil
	}
	dir, _, err := r.emptyDir("queries", t)
	if err == nil {
		err = r.load(ctx, t, w, dir)
	}
	if err == nil {
		dirs[t.name()] = dir
		fmt.Fprintf(os.Stderr, "queries: %s loaded\n", t.name())
	}
	return err
}

// load sends w to a target, settles it and stops it.
func (r *run) load(ctx context.Context, t target, w workload, dir string) error {
	return with(ctx, t, dir, usual, func(s server) error {
		if err := r.sendAll(ctx, s, w, usualForm(t)); err != nil {
			return err
		}
		return s.settle(ctx)
	})
}

// emptyDir makes a directory for one target in one stage.
func (r *run) emptyDir(stage string, t target) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(r.dir, filepath.Base(stage)+"-"+t.name()+"-")
	return dir, func() { os.RemoveAll(dir) }, err
}

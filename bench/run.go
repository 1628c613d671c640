package main

import (
	"context"
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

// stageNames are the stages there are. A single shape is a stage as well.
var stageNames = []string{"W1", "W2", "W3", "json", "shapes", "queries", "busy", "dense", "restart", "tenants", "timelines", "graphite", "cassandra"}

// cassandraParts are the parts of the stage cassandra, which can be run alone.
var cassandraParts = []string{"cassandra-ingest", "cassandra-live", "cassandra-queries", "cassandra-cities", "cassandra-deletes"}

func isStage(name string) bool {
	return slices.Contains(stageNames, name) || slices.Contains(cassandraParts, name) || slices.Contains(graphiteParts, name) || slices.ContainsFunc(shapes, func(w workload) bool { return w.name == name })
}

// takesPart reports whether a target runs a round of a stage of sending.
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

// slow is true of targets that would take most of the time.
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

// all runs the stages that are wanted. What fails is in the book; only what ends
// the run is an error.
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
	if wants("queries") {
		if err := r.queryStage(ctx); err != nil {
			r.book.fail("queries", "all", err)
		}
	}
	if wants("busy") {
		if err := r.busyStage(ctx); err != nil {
			r.book.fail("busy", "all", err)
		}
	}
	if wants("dense") {
		if err := r.denseStage(ctx); err != nil {
			r.book.fail("dense", "all", err)
		}
	}
	if wants("restart") {
		r.restarts(ctx)
	}
	if wants("tenants") {
		if err := r.neighbours(ctx); err != nil {
			r.book.fail("tenants", "varve", err)
		}
	}
	if wants("timelines") {
		if err := r.timelineStage(ctx); err != nil {
			r.book.fail("timelines", "all", err)
		}
	}
	parts := slices.DeleteFunc(slices.Clone(graphiteParts), func(part string) bool { return !wants("graphite") && !wants(part) })
	r.overGraphite(ctx, parts)
	parts = slices.DeleteFunc(slices.Clone(cassandraParts), func(part string) bool { return !wants("cassandra") && !wants(part) })
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
	case w.name == w1.name: // whose hours queries need
		w.hosts /= 4
	default:
		w.steps /= 4
	}
	return w
}

// round has each target run a stage of sending once, every time another one
// first.
func (r *run) round(ctx context.Context, stage string, round int, w workload, as form) {
	for i := range r.targets {
		t := r.targets[(round+i)%len(r.targets)]
		if !takesPart(t, stage, round) || ctx.Err() != nil {
			continue
		}
		dir, remove, err := r.emptyDir(stage, t)
		if err == nil {
			err = r.ingest(ctx, stage, round, t, w, as, dir)
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

// load puts w into a target, settles it and stops it.
func (r *run) load(ctx context.Context, t target, w workload, dir string) error {
	s, err := t.start(ctx, dir, usual)
	if err != nil {
		return err
	}
	err = s.send(ctx, w, usualForm(t), r.connections)
	if err == nil {
		err = awaitStored(ctx, s, w.points())
	}
	if err == nil {
		err = s.settle(ctx)
	}
	if err == nil {
		return s.account().stop()
	}
	s.account().kill()
	return err
}

// emptyDir makes a directory for one target in one stage.
func (r *run) emptyDir(stage string, t target) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(r.dir, filepath.Base(stage)+"-"+t.name()+"-")
	return dir, func() { os.RemoveAll(dir) }, err
}

package rollup

import (
	"context"
	"time"

	"varve/internal/downsample"
	"varve/internal/ingest"
	"varve/internal/store"
)

// lateNotes are the notes of late points of roll-up tasks: the list, and where in the
// store it is kept.
type lateNotes struct {
	*downsample.LateList
	catalogue catalogue
	node      string // this node, if several share the store; else empty
}

// newLateNotes makes the notes of a node. node is empty if this process alone uses the
// store.
func newLateNotes(s store.KeyValues, p *ingest.Pipeline, node string, config Config, now func() time.Time) *lateNotes {
	n := &lateNotes{catalogue: catalogue{s}, node: node}
	o := downsample.Options{
		Keep: n.keepIn(s), Horizon: config.LateHorizon, Most: config.MaxLateSpans, Now: now, What: "roll-up task",
		Lifetime: p.Lifetime, DefaultMS: p.DefaultLifetime(),
	}
	if cutter, ok := store.As[store.TimeCutter](s); ok {
		o.Stored = cutter.StoredTime
	}
	if journal, ok := store.As[downsample.Journal](s); ok {
		o.Journal = journal
	}
	n.LateList = downsample.NewLateList(o)
	if o.Journal != nil {
		o.Journal.BeforeTrim(func(ctx context.Context, values store.KeyValues) error { return n.Persist(ctx, n.keepIn(values)) })
	}
	return n
}

// keepIn stores the notes of a task under Late.
func (n *lateNotes) keepIn(values store.KeyValues) downsample.Keep {
	c := catalogue{values}
	return func(ctx context.Context, id string, late map[string]downsample.Spans) error {
		if len(late) == 0 {
			return c.unset(ctx, lateKey, n.keyOf(id))
		}
		return c.setJSON(ctx, lateKey, n.keyOf(id), late)
	}
}

// Watch records the points that arrive through a pipeline while no scheduler runs. The next
// scheduler on the store recomputes their buckets. All points count as late, because the
// next scheduler may have a shorter horizon than config, and continues where the previous
// scheduler ended.
func Watch(ctx context.Context, s Store, p *ingest.Pipeline, parser Parser, config Config) error {
	config.LateHorizon = 0
	n := newLateNotes(s, p, "", config, time.Now)
	ids, texts, err := n.catalogue.tasks(ctx)
	if err != nil {
		return err
	}
	for i, id := range ids {
		t, err := parseTask(parser, []byte(texts[i]), id, nil)
		if err != nil {
			continue // the scheduler logs and counts such tasks
		}
		if _, err := n.watch(ctx, t); err != nil {
			return err
		}
	}
	p.Observe(n)
	return n.AllRead(ctx)
}

// watch begins to record late points of a task's metrics, or continues the records of
// an earlier task with this id. It reports whether a metric is new.
func (n *lateNotes) watch(ctx context.Context, t *task) (fresh bool, err error) {
	var stored map[string]downsample.Spans
	if !n.Watches(t.id) {
		if stored, err = n.catalogue.late(ctx, lateKey, n.keyOf(t.id)); err != nil {
			return false, err
		}
	}
	return n.Watch(ctx, t.targets(), stored)
}

// targets returns the targets whose late points are recorded for a task.
func (t *task) targets() downsample.Task {
	of := downsample.Task{ID: t.id, JSON: t.json, Targets: map[string]downsample.Target{}}
	for _, src := range t.sources() {
		of.Targets[src.key] = downsample.Target{Metric: src.metric, Grid: src.grid}
	}
	return of
}

var _ ingest.Observer = (*lateNotes)(nil)

package rollup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
)

// Where several nodes work on a store, late points come in at all of them, and
// one runs the task. Each node keeps its own list: in a notebook, or without one
// under Late, by task and guid. A node that does not run the task hands its notes over when it would have
// been due:
//
//	take     notes whose points are stored
//	flush    until the points can be seen by other nodes
//	Handed   the spans, under task, guid and a name of their own
//	done     they leave the own list
//
// and the node that runs it adopts them: into its own list, then Handed is unset.
// What is under Handed never changes, so nobody takes away what another one has
// just added. A crash in between leaves spans in both lists, and they are computed
// twice.

// keyOf is where the notes of a task are stored.
func (l *lateList) keyOf(id string) string {
	if l.node == "" {
		return id
	}
	return id + "/" + l.node
}

// handOver passes the notes of a task on to the node that runs it.
func (l *lateList) handOver(ctx context.Context, t *task, flush func(context.Context) error) error {
	all := map[string]spans{}
	for i := range t.rollups {
		for _, key := range t.rollups[i].keys {
			if taken := l.take(t.id, key); len(taken) > 0 {
				all[key] = taken
			}
		}
	}
	if len(all) == 0 {
		return l.settle(ctx, t.id)
	}
	if err := flush(ctx); err != nil {
		return fmt.Errorf("make late points visible to other nodes: %w", err)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // numbers always marshal
	}
	if err := l.catalogue.set(ctx, handedKey, l.keyOf(t.id)+"/"+rand.Text(), string(text)); err != nil {
		return err
	}
	for key, taken := range all {
		for _, one := range taken {
			if err := l.done(ctx, t.id, key, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt takes over what other nodes have handed to the one that runs a task.
func (l *lateList) adopt(ctx context.Context, t *task) error {
	names, err := l.catalogue.ofNodes(ctx, handedKey, t.id)
	if err != nil {
		return err
	}
	for _, name := range names {
		handed, err := l.catalogue.late(ctx, handedKey, name)
		if err != nil {
			return err
		}
		if err := l.include(ctx, t.id, handed); err != nil {
			return err
		}
		if err := l.catalogue.unset(ctx, handedKey, name); err != nil {
			return err
		}
	}
	return nil
}

// include notes spans of other nodes, by rollup.keys. Those of a metric that the
// task has no more are dropped.
func (l *lateList) include(ctx context.Context, id string, handed map[string]spans) error {
	l.mu.RLock()
	t := l.tasks[id]
	var notes []note
	if t != nil {
		for key, x := range t.targets {
			for _, one := range handed[key] {
				notes = append(notes, note{x, one})
			}
		}
	}
	l.mu.RUnlock()
	if len(notes) == 0 {
		return nil
	}
	generations, versions := l.note(notes)
	defer func() {
		for g := range generations {
			g.pending.Done()
		}
	}()
	for t, version := range versions {
		if err := l.persist(ctx, t, version); err != nil {
			return err
		}
	}
	return nil
}

package rollup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"varve/internal/downsample"
	"varve/internal/store"
)

// When several nodes share a store, late points arrive at all of them, but one node
// runs the task. Each node keeps its own list: in a notebook, or else under Late, by
// task and guid. A node that does not run the task hands its notes over whenever the
// task is due:
//
//	take     notes whose points are stored
//	flush    until points of these metrics can be seen by other nodes
//	Handed   the spans, under task, guid and a name of their own
//	done     they leave the own list
//
// The node that runs the task adopts the spans: it adds them to its own list, then
// unsets the entry under Handed. Entries under Handed never change, so no node removes
// spans that another node has just added. A crash in between leaves spans in both
// lists, and they are computed twice.
//
// A node that is gone hands nothing over. Its notes under Late are adopted, too, once
// they have been unchanged for abandonedAfter. Notes in the files of such a node are
// lost with the files.

// abandonedAfter is how long the notes of a node that is gone must be unchanged before
// others adopt them: much longer than a node pauses or clocks differ. If the node comes
// back after all, its spans are computed twice.
const abandonedAfter = 10 * time.Minute

// keyOf is the key under which this node stores the notes of a task.
func (n *lateNotes) keyOf(id string) string {
	if n.node == "" {
		return id
	}
	return id + "/" + n.node
}

// handOver passes this node's notes of a task to the node that runs the task.
func (n *lateNotes) handOver(ctx context.Context, t *task, flush func(context.Context, ...string) error) error {
	all, metrics := map[string]downsample.Spans{}, []string(nil)
	for _, src := range t.sources() {
		if taken := n.Take(t.id, src.key); len(taken) > 0 {
			all[src.key], metrics = taken, append(metrics, src.metric)
		}
	}
	if len(all) == 0 {
		return n.Settle(ctx, t.id)
	}
	if err := flush(ctx, metrics...); err != nil {
		return fmt.Errorf("make late points visible to other nodes: %w", err)
	}
	if err := n.catalogue.setJSON(ctx, handedKey, n.keyOf(t.id)+"/"+rand.Text(), all); err != nil {
		return err
	}
	return n.Done(ctx, t.id, all)
}

// adopt takes over the notes that other nodes have handed to the node that runs the
// task.
func (n *lateNotes) adopt(ctx context.Context, t *task) error {
	names, err := n.catalogue.ofNodes(ctx, handedKey, t.id)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := n.takeOver(ctx, t, handedKey, name); err != nil {
			return err
		}
	}
	return nil
}

// takeOver moves the notes of a task that another node has stored to this node's list.
func (n *lateNotes) takeOver(ctx context.Context, t *task, key, name string) error {
	late, err := n.catalogue.late(ctx, key, name)
	if err != nil {
		return err
	}
	if err := n.Include(ctx, t.id, late); err != nil {
		return err
	}
	return n.catalogue.unset(ctx, key, name)
}

// inherit adopts the notes of a task left by nodes that are gone.
func (n *lateNotes) inherit(ctx context.Context, t *task, a *assignments) error {
	names, err := n.catalogue.ofNodes(ctx, lateKey, t.id)
	if err != nil {
		return err
	}
	for _, name := range names {
		guid := strings.TrimPrefix(name, t.id+"/")
		if guid == n.node {
			continue
		}
		gone, err := a.abandoned(ctx, guid, name)
		if err != nil {
			return err
		}
		if !gone {
			continue
		}
		if err := n.takeOver(ctx, t, lateKey, name); err != nil {
			return err
		}
		a.log.Info("adopted the late points of a node that is gone", "id", t.id, "name", t.name, "node", guid)
	}
	return nil
}

// abandoned reports whether the node guid is gone and its notes under name have not
// changed for abandonedAfter.
func (a *assignments) abandoned(ctx context.Context, guid, name string) (bool, error) {
	v, err := a.values.Get(ctx, service, lateKey, name)
	if errors.Is(err, store.ErrNotFound) || err == nil && a.now().Sub(v.Modified) < abandonedAfter {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read when node %s last changed its notes of late points: %w", guid, err)
	}
	fresh, _, err := a.fresh(ctx, nodesService, nodesKey, guid)
	return !fresh, err
}

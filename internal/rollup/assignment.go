package rollup

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"varve/internal/store"
	"varve/internal/work"
)

// Where nodes are listed: one list of KairosDB nodes and one of Varve nodes. The key is
// the node's guid, the value its host name.
const (
	hostsService = "_Hosts"
	activeKey    = "Active"
	nodesService = "_Varve"
	nodesKey     = "Nodes"
)

// nodePrefix begins the guid of every Varve node. Among KairosDB nodes, the one whose
// guid sorts first assigns the tasks. The prefix sorts after all hexadecimal digits, so
// KairosDB never elects a Varve node.
const nodePrefix = "varve-"

// Times of the protocol. It tolerates a clock difference of nodeLife - beatLife between
// nodes.
const (
	beatEvery  = 10 * time.Second // a node renews its entry at this interval, which must not exceed KairosDB's 20 s
	beatLimit  = 10 * time.Second // time limit of one round of beat and review
	beatLife   = 30 * time.Second // a node that has not renewed its entry for this long runs no task
	nodeLife   = 60 * time.Second // a node is gone if its entry is older than this, or was seen unchanged for this long
	claimPause = 25 * time.Second // from a claim to the first run; more than twice beatLimit
)

// assignments decide which tasks this process runs when several processes share a
// store. The store has no compare-and-set: of two writes to a key, the one with the
// later timestamp wins.
//
// The node whose guid is stored under Assignment runs the task. A node
//
//   - renews its entry in the list of nodes, and runs nothing once it has failed to do
//     so for beatLife;
//   - claims a task by writing its guid, but only if the guid stored there is not that
//     of a fresh node, and if this node is the one that every node would choose among
//     the fresh ones. The read and the write take beatLimit at most;
//   - runs a task only after every check during claimPause found its guid there, and
//     checks again before each run. If two nodes claim a task at once, both have
//     written by then, and both see the same winner.
//
// So two Varve nodes never run one task at once unless their clocks differ by more than
// nodeLife - beatLife, or a write takes effect after its node has treated it as failed,
// and wins. In these cases one of the runs ends at its next check, and the lease of the
// task keeps the two apart: see lease.go. A node that was paused during a run, and resumes after other nodes have
// claimed its tasks, stores no results from samples that it had read before: see owns.
//
// # Why not only leases
//
// Leases of package cluster would replace none of this. Only KairosDB's own list shows
// whether a KairosDB node is running. Only Assignment shows which node runs a task:
// KairosDB and Varve hand tasks over to each other there, and so do Varve nodes of
// earlier versions. A lease that one node kept all the time would not let another node
// compute a backfill.
//
// While entries under _Hosts/Active show that KairosDB nodes are running, this node
// claims nothing. With participation it has an entry there too, and runs the tasks that
// KairosDB assigns to it. Without participation it runs nothing.
type assignments struct {
	values      store.KeyValues
	node, host  string
	participate bool
	now         func() time.Time
	log         *slog.Logger

	mu     sync.Mutex
	beatAt time.Time            // when the last successful renewal began; zero if none
	kairos string               // one of the running KairosDB nodes, "" if there is none
	since  map[string]time.Time // tasks assigned to this node, and when this node first saw the assignment
	unsure map[string]bool      // tasks in since that another node may have claimed since they were last checked
	seenAs map[listing]sighting // entries of nodes
	twin   bool                 // another process renews this node's entry
}

// A listing identifies a node's entry: the list and the node's guid.
type listing struct{ service, key, guid string }

// A sighting is the modification time of a node's entry, and when this process first
// saw it.
type sighting struct{ modified, at time.Time }

// members are the nodes with a fresh entry.
type members struct {
	varve  map[string]bool // by guid
	kairos string          // one of the KairosDB nodes, "" if there are none
}

// beat renews this node's entry and checks the assignment of all tasks.
func (a *assignments) beat(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	began := a.now()
	if err := a.lookForTwin(ctx); err != nil {
		return err
	}
	if err := a.enlist(ctx); err != nil {
		return err
	}
	a.renewed(began)
	m, err := a.members(ctx)
	if err != nil {
		return err
	}
	a.noteKairos(m)
	for _, id := range ids {
		if err := a.review(ctx, id, m); err != nil {
			return err
		}
	}
	return nil
}

// renewed records when this node's entry was renewed. If the entry had expired before,
// other nodes may have claimed tasks, so each task is checked again before it runs.
func (a *assignments) renewed(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if work.Elapsed(a.beatAt, at) >= beatLife {
		a.unsure = map[string]bool{}
		for id := range a.since {
			a.unsure[id] = true
		}
	}
	a.beatAt = at
}

// lookForTwin reports a process that has renewed this node's entry since this process saw its own
// renewal. Both have the id of one server, because its data directory was copied. So both run its
// tasks, and write the same logs of arrivals of timelines: clients that follow a timeline miss events.
func (a *assignments) lookForTwin(ctx context.Context) error {
	entry, err := a.values.Get(ctx, nodesService, nodesKey, a.node)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("read the entry of this node: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	own := listing{nodesService, nodesKey, a.node}
	last, known := a.seenAs[own]
	delete(a.seenAs, own) // beat renews the entry next; if members cannot read it afterwards, nothing is known of it
	if !known {
		return nil // twin keeps its value: otherwise the error would be logged again after each failed renewal
	}
	// If both processes renew the entry at the same moment, both see the later renewal. The host
	// name in it shows the other process that it is not alone.
	twin := err == nil && (!entry.Modified.Equal(last.modified) || entry.Text != a.host)
	if twin && !a.twin {
		a.log.Error("another server has the id of this one, because it uses a copy of its data directory; clients that follow timelines miss events. "+
			"Stop the server with the copy, remove the file node-id there, and start it again", "id", a.node, "host", entry.Text)
	}
	a.twin = twin
	return nil
}

func (a *assignments) enlist(ctx context.Context) error {
	if err := a.values.Set(ctx, nodesService, nodesKey, a.node, a.host); err != nil {
		return fmt.Errorf("add this node to the list of nodes: %w", err)
	}
	if !a.participate {
		return nil
	}
	if err := a.values.Set(ctx, hostsService, activeKey, a.node, a.host); err != nil {
		return fmt.Errorf("add this node to the list of hosts: %w", err)
	}
	return nil
}

// resign removes this node from the lists, and its tasks from the assignments. None of its tasks may
// run any more.
func (a *assignments) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := a.values.Unset(ctx, nodesService, nodesKey, a.node)
	if a.participate {
		err = errors.Join(err, a.values.Unset(ctx, hostsService, activeKey, a.node))
	}
	if err != nil {
		a.log.Info("this node stays listed until its entry expires; its roll-up tasks do not run until then", "error", err)
		return
	}
	if err := a.release(ctx); err != nil {
		a.log.Info("roll-up tasks stay assigned to this node; Varve nodes take them over anyway, a KairosDB node may not", "error", err)
	}
}

// release removes the assignments of this node's tasks. Varve nodes would claim these tasks even
// without this, but KairosDB would not: a starting KairosDB node takes every unassigned task, but
// takes a task assigned to a node that is gone only if there are more tasks than KairosDB nodes.
func (a *assignments) release(ctx context.Context) error {
	a.mu.Lock()
	ids := slices.Collect(maps.Keys(a.since))
	a.mu.Unlock()
	for _, id := range ids {
		guid, err := a.assigned(ctx, id)
		if err == nil && guid == a.node {
			err = a.unassign(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *assignments) unassign(ctx context.Context, id string) error {
	if err := a.values.Unset(ctx, service, assignmentKey, id); err != nil {
		return fmt.Errorf("release roll-up task %s: %w", id, err)
	}
	return nil
}

// members reads both lists.
func (a *assignments) members(ctx context.Context) (members, error) {
	m := members{varve: map[string]bool{}}
	err := a.eachFresh(ctx, nodesService, nodesKey, func(guid, _ string) { m.varve[guid] = true })
	if err != nil {
		return m, fmt.Errorf("list Varve nodes: %w", err)
	}
	err = a.eachFresh(ctx, hostsService, activeKey, func(guid, host string) {
		if !strings.HasPrefix(guid, nodePrefix) {
			m.kairos = host + " (" + guid + ")"
		}
	})
	if err != nil {
		return m, fmt.Errorf("list KairosDB nodes: %w", err)
	}
	return m, nil
}

// eachFresh calls f with each node of a list whose entry is fresh.
func (a *assignments) eachFresh(ctx context.Context, service, key string, f func(guid, host string)) error {
	listed := map[string]bool{}
	for guid, err := range a.values.Keys(ctx, service, key, "") {
		if err != nil {
			return err
		}
		listed[guid] = true
		fresh, host, err := a.fresh(ctx, service, key, guid)
		if err != nil {
			return err
		}
		if fresh {
			f(guid, host)
		}
	}
	a.forget(service, key, listed)
	return nil
}

func (a *assignments) fresh(ctx context.Context, service, key, guid string) (bool, string, error) {
	v, err := a.values.Get(ctx, service, key, guid)
	if errors.Is(err, store.ErrNotFound) {
		return false, "", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("read the entry of node %s: %w", guid, err)
	}
	now := a.now()
	return now.Sub(v.Modified) < nodeLife && !a.stopped(listing{service, key, guid}, v.Modified, now), v.Text, nil
}

// stopped reports whether this process has seen a node's entry unchanged for nodeLife.
// The modification time alone is not enough: if the node's clock was ahead, its entry
// looks fresh for too long.
func (a *assignments) stopped(l listing, modified, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, ok := a.seenAs[l]; ok && last.modified.Equal(modified) {
		return now.Sub(last.at) >= nodeLife
	}
	if a.seenAs == nil {
		a.seenAs = map[listing]sighting{}
	}
	a.seenAs[l] = sighting{modified, now}
	return false
}

// forget drops the sightings of nodes that are no longer listed.
func (a *assignments) forget(service, key string, listed map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.seenAs, func(l listing, _ sighting) bool { return l.service == service && l.key == key && !listed[l.guid] })
}

// noteKairos records whether KairosDB nodes are running, and logs a change.
func (a *assignments) noteKairos(m members) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if (a.kairos == "") != (m.kairos == "") {
		switch {
		case m.kairos == "":
			a.log.Info("no KairosDB node is listed any more; roll-up tasks are shared among Varve nodes")
		case a.participate:
			a.log.Info("a KairosDB node is listed; roll-up tasks run where it assigns them", "node", m.kairos)
		default:
			a.log.Info("a KairosDB node is listed; roll-up tasks are left to it (rollups.participate is false)", "node", m.kairos)
		}
	}
	a.kairos = m.kairos
}

// review checks which node runs a task, and claims the task for this node if no other node
// runs it. If tasks are left to KairosDB, review removes an assignment to this node or to a
// Varve node that is gone, for the reason given at release.
func (a *assignments) review(ctx context.Context, id string, m members) error {
	guid, err := a.assigned(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case m.kairos != "" && !a.participate:
		a.drop(id)
		if guid == a.node || strings.HasPrefix(guid, nodePrefix) && !m.varve[guid] {
			return a.unassign(ctx, id)
		}
	case guid == a.node:
		a.seen(id)
	case m.kairos != "" || m.varve[guid] || a.choice(id, m) != a.node:
		a.drop(id)
	default:
		if err := a.values.Set(ctx, service, assignmentKey, id, a.node); err != nil {
			return fmt.Errorf("claim roll-up task %s: %w", id, err)
		}
		a.drop(id)
		a.seen(id)
	}
	return nil
}

// found claims a new task before other nodes can know of it.
func (a *assignments) found(ctx context.Context, id string) error {
	a.mu.Lock()
	rest := a.kairos != "" || work.Elapsed(a.beatAt, a.now()) >= beatLife
	a.mu.Unlock()
	if rest {
		return nil
	}
	if err := a.values.Set(ctx, service, assignmentKey, id, a.node); err != nil {
		return fmt.Errorf("claim roll-up task %s: %w", id, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since[id] = a.now().Add(-claimPause)
	return nil
}

func (a *assignments) assigned(ctx context.Context, id string) (guid string, err error) {
	v, err := a.values.Get(ctx, service, assignmentKey, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read who runs roll-up task %s: %w", id, err)
	}
	return v.Text, nil
}

// choice is the node that every node would choose for a task (rendezvous hashing):
// tasks are spread evenly, and few of them move when a node joins or leaves.
func (a *assignments) choice(id string, m members) (best string) {
	var most uint64
	for guid := range m.varve {
		h := fnv.New64a()
		h.Write([]byte(guid))
		h.Write([]byte(id))
		if n := mixBits(h.Sum64()); best == "" || n > most || n == most && guid < best {
			best, most = guid, n
		}
	}
	return best
}

// mixBits is a finalizer: each bit of the result depends on all bits of x.
func mixBits(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func (a *assignments) seen(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unsure, id)
	if _, ok := a.since[id]; !ok {
		a.since[id] = a.now()
	}
}

func (a *assignments) drop(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, id)
	delete(a.unsure, id)
}

// owns reports whether this process runs a task, as far as it knows. It does no I/O.
// After a process was suspended so long that another one may run the task, owns returns
// false at once.
func (a *assignments) owns(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, ok := a.since[id]
	now := a.now()
	return ok && !a.unsure[id] && now.Sub(since) >= claimPause && work.Elapsed(a.beatAt, now) < beatLife
}

// confirm reads again whether this process runs a task.
func (a *assignments) confirm(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	m, err := a.members(ctx)
	if err != nil {
		return false, err
	}
	guid, err := a.assigned(ctx, id)
	if err != nil {
		return false, err
	}
	if guid != a.node || m.kairos != "" && !a.participate {
		a.drop(id)
	}
	return a.owns(id), nil
}

// count is how many of the tasks this process runs.
func (a *assignments) count(ids []string) (n int) {
	for _, id := range ids {
		if a.owns(id) {
			n++
		}
	}
	return n
}

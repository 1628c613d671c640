package rollup

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"varve/internal/store"
)

// Where nodes are listed: KairosDB's list, and that of Varve nodes. The key is the
// node's guid, the value the name of its machine.
const (
	hostsService = "_Hosts"
	activeKey    = "Active"
	nodesService = "_Varve"
	nodesKey     = "Nodes"
)

// nodePrefix begins the guid of every Varve node. KairosDB nodes let the one
// with the smallest guid assign tasks, in the order of characters: with a letter
// behind those of hexadecimal digits it is never a Varve node.
const nodePrefix = "varve-"

// Times of the protocol. Clocks of nodes may differ by nodeLife - beatLife.
const (
	beatEvery  = 10 * time.Second // nodes renew their entry so often; no more than KairosDB's 20 s
	beatLimit  = 10 * time.Second // what one round of beat and review may take
	beatLife   = 30 * time.Second // a node that could not renew its entry for so long runs nothing
	nodeLife   = 60 * time.Second // an entry that is older, or has been the same for so long, is that of a node which is gone
	claimPause = 25 * time.Second // from a claim to the first run; more than twice beatLimit
)

// assignments say which tasks this process runs, where several work on one
// store. The store has no compare-and-set: each write of a key wins over those
// with earlier timestamps, and that is all.
//
// A task is run by the node whose guid is under Assignment. A node
//
//   - renews its entry in the list of nodes, and runs nothing when that has not
//     succeeded for beatLife;
//   - claims a task, by writing its guid, only if the one that is there is no
//     fresh node's, and if it is the one that all nodes would choose among those
//     that are fresh. Read and write take beatLimit at most;
//   - runs a task only when its guid was there at each look for claimPause, and
//     looks once more before each run. Of two that claim at once, both have
//     written by then, and both see the same winner.
//
// So two Varve nodes do not run one task at once unless clocks differ by more
// than nodeLife - beatLife, or a write arrives after its node took it for failed,
// and wins. In these cases one run ends at its next look. Even then the only cost is
// work: both nodes compute the same buckets, and results overwrite each other. A node
// that was paused during a run, and resumes after other nodes have claimed its tasks,
// stores no results from samples that it had read before: see owns.
//
// # Why not leases
//
// Leases of package cluster would not replace any of this. Only KairosDB's own list shows
// whether a KairosDB node is there. Only Assignment shows which node runs a task, with
// KairosDB and after it: KairosDB and Varve hand tasks over to each other there, and so do
// Varve nodes of earlier versions. A lease of each task would come on top. It would cost
// three rounds of a lightweight transaction for each run, or as many for each task every
// few seconds. It would save claimPause after a node has left, and work if clocks differ.
//
// While KairosDB nodes are there, which is told by their entries under
// _Hosts/Active, nothing is claimed. Without participation nothing is run
// either. With it this node has an entry there too, and runs what they assign to
// it.
type assignments struct {
	values      store.KeyValues
	node, host  string
	participate bool
	now         func() time.Time
	log         *slog.Logger

	mu     sync.Mutex
	beatAt time.Time            // when the last good renewal began; zero if none
	kairos string               // a KairosDB node that is there, "" if none is
	since  map[string]time.Time // tasks that are assigned to this node, and since when that is seen
	unsure map[string]bool      // those of since that others may have claimed and that were not looked at after that
	seenAs map[listing]sighting // entries of nodes
}

// A listing is where a node is listed, and its guid.
type listing struct{ service, key, guid string }

// A sighting is the time in a node's entry, and when this process first saw it.
type sighting struct{ modified, at time.Time }

// members are the nodes with a fresh entry.
type members struct {
	varve  map[string]bool // by guid
	kairos string          // one of the KairosDB nodes, "" if there are none
}

// beat renews this node's entry and looks at all tasks.
func (a *assignments) beat(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	began := a.now()
	if err := a.enlist(ctx); err != nil {
		return err
	}
	a.renewed(began)
	m, err := a.members(ctx)
	if err != nil {
		return err
	}
	a.tell(m)
	for _, id := range ids {
		if err := a.review(ctx, id, m); err != nil {
			return err
		}
	}
	return nil
}

// renewed notes that this node's entry was renewed at a time. If it had been old before,
// other nodes may have claimed tasks: each has to be looked at before it is run.
func (a *assignments) renewed(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if elapsed(a.beatAt, at) >= beatLife {
		a.unsure = map[string]bool{}
		for id := range a.since {
			a.unsure[id] = true
		}
	}
	a.beatAt = at
}

// elapsed is the time from one reading of the clock to another: by the wall clock or the
// monotonic one, whichever says more. The monotonic one may stand still while the machine
// sleeps, and the other may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
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

// resign takes this node off the lists. Nothing of it may run any more.
func (a *assignments) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := a.values.Unset(ctx, nodesService, nodesKey, a.node)
	if a.participate {
		err = errors.Join(err, a.values.Unset(ctx, hostsService, activeKey, a.node))
	}
	if err != nil {
		a.log.Info("this node stays listed until its entry expires; its roll-up tasks do not run until then", "error", err)
	}
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

// eachFresh calls f with the nodes of a list that are there.
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

// stopped reports whether a node has not renewed its entry for nodeLife, as this process has
// seen it. The entry of a node whose clock was ahead looks fresh for longer.
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

// forget forgets the entries of nodes that are not listed any more.
func (a *assignments) forget(service, key string, listed map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.seenAs, func(l listing, _ sighting) bool { return l.service == service && l.key == key && !listed[l.guid] })
}

// tell notes whether KairosDB nodes are there.
func (a *assignments) tell(m members) {
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

// review looks at who runs a task, and claims it if nobody does.
func (a *assignments) review(ctx context.Context, id string, m members) error {
	guid, err := a.assigned(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case m.kairos != "" && !a.participate:
		a.drop(id)
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

// found claims a task before others can know of it.
func (a *assignments) found(ctx context.Context, id string) error {
	a.mu.Lock()
	rest := a.kairos != "" || elapsed(a.beatAt, a.now()) >= beatLife
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

// choice is the node that all would choose for a task: tasks are spread evenly,
// and few change place when a node comes or goes.
func (a *assignments) choice(id string, m members) (best string) {
	var most uint64
	for guid := range m.varve {
		h := fnv.New64a()
		h.Write([]byte(guid))
		h.Write([]byte(id))
		if n := mixed(h.Sum64()); best == "" || n > most || n == most && guid < best {
			best, most = guid, n
		}
	}
	return best
}

// mixed makes all bits of a hash depend on all others.
func mixed(x uint64) uint64 {
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

// owns reports whether this process runs a task, as far as it knows. It does no I/O: a
// process that stood still for so long that another one may run the task finds that it does
// not own it, as soon as it goes on.
func (a *assignments) owns(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, ok := a.since[id]
	now := a.now()
	return ok && !a.unsure[id] && now.Sub(since) >= claimPause && elapsed(a.beatAt, now) < beatLife
}

// confirm looks once more whether this process runs a task.
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

// count is how many tasks this process runs.
func (a *assignments) count(ids []string) (n int) {
	for _, id := range ids {
		if a.owns(id) {
			n++
		}
	}
	return n
}

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"varve/internal/work"
)

const (
	// Skew is by how much clocks of servers may differ. For this long after the end of a lease,
	// no other process takes it.
	Skew = 5 * time.Second

	// keepLeases is how long the register of a lease is kept after its last renewal.
	keepLeases = 30 * 24 * time.Hour

	// releaseTimeout is how long a process that shuts down may take to release its leases.
	releaseTimeout = 2 * time.Second

	// maxSightings is how many leases of other processes a process remembers. A lease that it
	// does not remember is taken over later.
	maxSightings = 1000

	leases = "lease" // the space of leases
)

// ErrLost means that the caller does not hold the lease, or no longer does.
var ErrLost = errors.New("the lease is lost: it has ended, or another process has it")

// A HeldError means that another process has a lease.
type HeldError struct {
	Name string
	By   Holder
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lease %s is held by node %s (%s) until %s", e.Name, e.By.Node, e.By.Note, e.By.Until.UTC().Format(time.RFC3339))
}

// A Holder is a process that has a lease.
type Holder struct {
	Node  string // the server's id
	Note  string // for people
	Until time.Time
}

// record is a lease as it is stored, in JSON.
type record struct {
	Holder  string `json:"holder"` // a process; empty if it was released
	Node    string `json:"node"`
	Note    string `json:"note,omitempty"`
	Token   int64  `json:"token"`
	UntilMS int64  `json:"until_ms"` // by the clock of the holder
	LifeMS  int64  `json:"life_ms"`  // from when it was requested or renewed; 0 in leases of earlier versions
}

func (r record) by() Holder {
	return Holder{Node: r.Node, Note: r.Note, Until: time.UnixMilli(r.UntilMS)}
}

// A Node is a process among those that share a keyspace.
type Node struct {
	ID string

	registers *Registers
	holder    string // unique to the process; the same server has another one after a restart
	note      string
	skew      time.Duration
	now       func() time.Time

	mu   sync.Mutex
	seen map[string]sighting // leases that others held when this process wanted them, by name
}

// A sighting is a version of a lease, and when this process first saw it.
type sighting struct {
	version int64
	at      time.Time
}

// NewNode returns this process as a node with the id of its server. note is for people, for
// example the name of the machine.
func NewNode(registers *Registers, id, note string) *Node {
	return &Node{ID: id, registers: registers, holder: id + "/" + rand.Text(), note: note, skew: Skew, now: time.Now}
}

// A Lease is held until it ends, unless it is renewed before. Its methods may be called
// by several goroutines.
type Lease struct {
	Token int64 // larger than those of all earlier leases of the name

	node *Node
	name string
	life time.Duration

	turn  sync.Mutex // held by Renew and Release, also during their requests; guards value
	value Value

	mu    sync.Mutex // never held during a request, for Check
	began time.Time  // when it was requested or renewed, by both clocks
	gone  bool       // released, or found to be another's
}

// Acquire acquires the lease of a name for the duration life. It returns a *HeldError if
// another process holds the lease or held it less than Skew ago, and ErrChanged if another
// process may have acquired it at the same time.
func (n *Node) Acquire(ctx context.Context, name string, life time.Duration) (*Lease, error) {
	return n.acquire(ctx, name, life, false)
}

// Reacquire is like Acquire, but also takes over a lease of an earlier process of the same
// server. That process has ended, because only one process at a time uses the data directory,
// which has the server's id. If two servers use copies of one directory, the other server finds
// its lease lost.
func (n *Node) Reacquire(ctx context.Context, name string, life time.Duration) (*Lease, error) {
	return n.acquire(ctx, name, life, true)
}

// acquire acquires a lease that no process holds or, if again is set, that this server holds.
func (n *Node) acquire(ctx context.Context, name string, life time.Duration, again bool) (*Lease, error) {
	old, err := n.registers.Get(ctx, leases, name)
	if err != nil {
		return nil, err
	}
	began := n.now()
	if old.Version != 0 {
		there, err := parse(old.Data)
		if err != nil {
			return nil, fmt.Errorf("lease %s: %w", name, err)
		}
		if n.heldAt(began, there) && !(again && there.Node == n.ID) && !n.notRenewed(name, old.Version, there, began) {
			return nil, &HeldError{Name: name, By: there.by()}
		}
	}
	token := n.registers.next(old)
	l := &Lease{Token: token, node: n, name: name, life: life, began: began}
	l.value, err = n.registers.send(ctx, swapRegister, change{leases, name, old, token, l.record(began), keepLeases})
	if err != nil {
		return nil, err
	}
	return l, l.Check()
}

// heldAt reports whether a lease is held, or ended less than Skew ago, according to the end
// that its holder stored.
func (n *Node) heldAt(now time.Time, r record) bool {
	return r.Holder != "" && now.UnixMilli() <= r.UntilMS+n.skew.Milliseconds()
}

// notRenewed reports whether a lease has ended although its stored end is still to come,
// because the holder's clock is ahead. This is so if this process has seen the same version for
// longer than the whole life of the lease: the holder has not renewed it.
func (n *Node) notRenewed(name string, version int64, r record, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if first, ok := n.seen[name]; ok && first.version == version {
		return r.LifeMS > 0 && now.Sub(first.at) > time.Duration(r.LifeMS)*time.Millisecond+n.skew
	}
	if n.seen == nil || len(n.seen) >= maxSightings {
		n.seen = map[string]sighting{}
	}
	n.seen[name] = sighting{version, now}
	return false
}

func parse(data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("this version of Varve cannot read what is stored: %w", err)
	}
	return r, nil
}

func (l *Lease) record(began time.Time) []byte {
	n := l.node
	data, err := json.Marshal(record{Holder: n.holder, Node: n.ID, Note: n.note, Token: l.Token, UntilMS: began.Add(l.life).UnixMilli(), LifeMS: l.life.Milliseconds()})
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return data
}

// Check returns nil if the lease is held now, and ErrLost otherwise. It does no I/O. Call it
// immediately before each action that needs the lease.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.node.now()
	if l.gone || work.Elapsed(l.began, now) >= l.life {
		return ErrLost
	}
	return nil
}

// Renew extends the lease to its whole life from now. After an error other than ErrLost, the
// lease ends when it would have ended before, and Renew may be called again.
func (l *Lease) Renew(ctx context.Context) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	if err := l.Check(); err != nil {
		return err
	}
	began := l.node.now()
	if err := l.swap(ctx, l.record(began)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = began
	return nil
}

// Release ends the lease, so that others can acquire it at once.
func (l *Lease) Release(ctx context.Context) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	if !l.end() {
		return nil
	}
	err := l.swap(ctx, []byte(`{}`))
	if errors.Is(err, ErrLost) {
		return nil
	}
	return err
}

// end makes Check return ErrLost. It returns false if it already did for good.
func (l *Lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := !l.gone
	l.gone = true
	return held
}

// swap stores the record of the lease. The caller has the turn.
func (l *Lease) swap(ctx context.Context, data []byte) error {
	r := l.node.registers
	for {
		v, err := r.Swap(ctx, leases, l.name, l.value, data, keepLeases)
		if err == nil {
			l.value = v
			return nil
		}
		if !errors.Is(err, ErrChanged) {
			return err
		}
		// An earlier attempt that returned an error may have changed the register.
		if own, err := l.own(ctx); err != nil {
			return err
		} else if !own {
			l.end()
			return ErrLost
		}
	}
}

// own reads the register again, and reports whether it is still this lease.
func (l *Lease) own(ctx context.Context) (bool, error) {
	v, err := l.node.registers.Get(ctx, leases, l.name)
	if err != nil {
		return false, err
	}
	there, err := parse(v.Data)
	if err != nil || there.Holder != l.node.holder || there.Token != l.Token {
		return false, nil
	}
	l.value = v
	return true, nil
}

// Keep runs f, renews the lease meanwhile, and releases it at the end. If the lease is lost,
// the context of f ends with ErrLost.
func (l *Lease) Keep(ctx context.Context, f func(context.Context) error) error {
	held, lose := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewer sync.WaitGroup
	renewer.Go(func() {
		if l.renewUntil(renewing) != nil {
			lose(ErrLost)
		}
	})
	err := work.Do("work under a lease", func() error { return f(held) })
	stop()
	renewer.Wait()
	lose(nil)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return errors.Join(err, l.Release(last))
}

// renewUntil renews the lease in good time until ctx ends. It returns ErrLost if the lease is
// lost.
func (l *Lease) renewUntil(ctx context.Context) error {
	pause := time.NewTicker(l.life / 4)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		attempt, cancel := context.WithTimeout(ctx, l.life/4)
		err := l.Renew(attempt)
		cancel()
		if ctx.Err() == nil && (errors.Is(err, ErrLost) || l.Check() != nil) {
			return ErrLost
		}
	}
}

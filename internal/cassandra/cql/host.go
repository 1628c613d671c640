package cql

import (
	"context"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// hosts orders the nodes for each statement: in the order of the policy below (replicas of the
// partition first), except that a replica at its limit comes after those below theirs, and
// nodes that have stopped answering come last. So a slow node gets fewer statements than a fast
// one. If all replicas are at their limits, the one with the fewest statements in flight is
// used: any other node would only forward the statement to it.
//
// A node is silent when statements wait for it and it has answered nothing for stallAfter, not
// even a probe. This detects a paused process or a dead machine: its connections stay open, and
// the other nodes notice only after some 20 s. While another node is available, a silent node
// only gets a probe every second, which detects when it is back.
type hosts struct {
	gocql.HostSelectionPolicy
	stallAfter time.Duration
	most       [kinds]int // maximum limits of a node
	goal       time.Duration
	now        func() time.Time
	met        func(ids ...string)   // called when a node joins the ring
	forget     func(*gocql.HostInfo) // called when a node leaves the ring

	mu    sync.Mutex
	known map[string]*host // by host id
	lost  time.Time        // when a node last became silent or went down
}

type host struct {
	inFlight int
	since    time.Time // time of the last answer, or when it became busy
	suspect  bool      // was silent, and has not answered since
	probed   bool      // a probe is in flight
	down     bool      // according to the driver
	slow     time.Time // until when reads avoid it, since another replica was faster
	kind     [kinds]struct {
		inFlight int
		pace     pace
	}
}

// newHosts returns a policy on top of a token-aware policy, which it creates itself in order to
// know which of its nodes are replicas.
func newHosts(below gocql.HostSelectionPolicy, config Config, now func() time.Time, met func(ids ...string), forget func(*gocql.HostInfo)) *hosts {
	return &hosts{
		HostSelectionPolicy: gocql.TokenAwareHostPolicy(others{below}, gocql.ShuffleReplicas()),
		stallAfter:          config.StallAfter,
		most:                [kinds]int{reads: config.ReadsInFlight, writes: config.WritesInFlight},
		goal:                config.LatencyGoal,
		now:                 now,
		met:                 met,
		forget:              forget,
		known:               make(map[string]*host),
	}
}

// others marks the nodes that the token-aware policy returns when it has no replica left: the
// statement has no single partition, or all replicas were tried.
type others struct{ gocql.HostSelectionPolicy }

type other struct{ gocql.SelectedHost }

func (p others) Pick(statement gocql.ExecutableStatement) gocql.NextHost {
	next := p.HostSelectionPolicy.Pick(statement)
	return func() gocql.SelectedHost {
		if h := next(); h != nil {
			return other{h}
		}
		return nil
	}
}

// Pick is called by the driver for each statement.
func (p *hosts) Pick(statement gocql.ExecutableStatement) gocql.NextHost {
	c := choice{hosts: p, next: p.HostSelectionPolicy.Pick(statement)}
	if s, ok := statement.(interface{ Context() context.Context }); ok {
		c.attempt = attemptOf(s.Context())
	}
	if c.attempt != nil {
		c.kind = c.attempt.kind
	}
	return c.host
}

// A choice is the order of nodes for one statement, as far as it was determined.
type choice struct {
	hosts   *hosts
	attempt *attempt
	kind    kind
	next    gocql.NextHost // nil after its end
	ahead   gocql.SelectedHost
	last    *tracked

	fullReplicas, fullOthers, silent []gocql.SelectedHost
}

// host returns the next node.
func (c *choice) host() gocql.SelectedHost {
	if c.last != nil {
		c.last.done() // the driver had no connection to that node
		c.last = nil
	}
	next := c.order
	if c.attempt != nil && c.attempt.hedge {
		next = c.spare
	}
	h := next()
	if h == nil {
		return nil
	}
	c.last = c.hosts.begin(h, c.kind, c.attempt)
	return c.last
}

func (c *choice) order() gocql.SelectedHost {
	for h := c.peek(); h != nil; h = c.peek() {
		_, isOther := h.(other)
		if isOther && len(c.fullReplicas) > 0 {
			break
		}
		c.ahead = nil
		info := h.Info()
		if info == nil || !info.IsUp() {
			continue
		}
		silent, full := c.hosts.look(info.HostID(), c.kind)
		full = full || c.attempt != nil && c.attempt.avoid == info.HostID()
		switch {
		case silent:
			c.silent = append(c.silent, h)
		case full && isOther:
			c.fullOthers = append(c.fullOthers, h)
		case full:
			c.fullReplicas = append(c.fullReplicas, h)
		default:
			return h
		}
	}
	for _, list := range []*[]gocql.SelectedHost{&c.fullReplicas, &c.fullOthers, &c.silent} {
		if len(*list) > 0 {
			return c.hosts.takeIdlest(list, c.kind)
		}
	}
	return nil
}

// spare returns the next replica that answers, is below its limit, and is not the one that the
// first run waits for.
func (c *choice) spare() gocql.SelectedHost {
	for h := c.peek(); h != nil; h = c.peek() {
		if _, isOther := h.(other); isOther {
			return nil
		}
		c.ahead = nil
		info := h.Info()
		if info == nil || !info.IsUp() || info.HostID() == c.attempt.avoid {
			continue
		}
		if silent, full := c.hosts.look(info.HostID(), c.kind); !silent && !full {
			return h
		}
	}
	return nil
}

func (c *choice) peek() gocql.SelectedHost {
	if c.ahead == nil && c.next != nil {
		if c.ahead = c.next(); c.ahead == nil {
			c.next = nil
		}
	}
	return c.ahead
}

// takeIdlest removes the node with the fewest statements in flight from list, and returns it.
func (p *hosts) takeIdlest(list *[]gocql.SelectedHost, k kind) gocql.SelectedHost {
	p.mu.Lock()
	defer p.mu.Unlock()
	best, fewest := 0, 0
	for i, h := range *list {
		n := 0
		if known := p.known[h.Info().HostID()]; known != nil {
			n = known.kind[k].inFlight
		}
		if i == 0 || n < fewest {
			best, fewest = i, n
		}
	}
	h := (*list)[best]
	*list = append((*list)[:best], (*list)[best+1:]...)
	return h
}

// look reports whether the node is silent, that is whether statements wait for it and it has answered
// nothing for stallAfter, and whether it is at its limit.
func (p *hosts) look(id string, k kind) (silent, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.known[id]
	if h == nil {
		return false, false
	}
	slow := k == reads && p.now().Before(h.slow)
	return p.silentLocked(h), slow || h.kind[k].pace.full(h.kind[k].inFlight)
}

// slow records that another replica has answered a read that was sent to this one first.
func (p *hosts) slow(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.known[id]; h != nil {
		h.slow = p.now().Add(slowFor)
	}
}

func (p *hosts) silentLocked(h *host) bool {
	return h.suspect || h.inFlight > 0 && p.now().Sub(h.since) > p.stallAfter
}

// others reports whether a node other than id is up and answers.
func (p *hosts) others(id string, all []*gocql.HostInfo) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range all {
		if h.HostID() == id || !h.IsUp() {
			continue
		}
		if known := p.known[h.HostID()]; known == nil || !p.silentLocked(known) {
			return true
		}
	}
	return false
}

// lastSign returns when a node last answered or became busy.
func (p *hosts) lastSign() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last time.Time
	for _, h := range p.known {
		if h.since.After(last) {
			last = h.since
		}
	}
	return last
}

func (p *hosts) hostLocked(id string) *host {
	h := p.known[id]
	if h == nil {
		h = new(host)
		for k := range h.kind {
			h.kind[k].pace = newPace(p.most[k], p.goal, p.now())
		}
		p.known[id] = h
	}
	return h
}

func (h *host) enter(now time.Time) {
	if h.inFlight == 0 {
		h.since = now
	}
	h.inFlight++
}

func (p *hosts) begin(selected gocql.SelectedHost, k kind, a *attempt) *tracked {
	id := selected.Info().HostID()
	_, isOther := selected.(other)
	p.mu.Lock()
	h := p.hostLocked(id)
	h.enter(p.now())
	of := &h.kind[k]
	of.inFlight++
	of.pace.sent(of.inFlight)
	p.mu.Unlock()
	if a != nil {
		a.sentTo(id, !isOther)
	}
	return &tracked{SelectedHost: selected, hosts: p, host: h, kind: k}
}

// beginProbe reports whether to send the node a probe: it has not answered for a time, and no
// probe is in flight.
func (p *hosts) beginProbe(id string, quiet time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hostLocked(id)
	if h.probed || p.now().Sub(h.since) < quiet {
		return false
	}
	h.probed = true
	h.enter(p.now())
	return true
}

func (p *hosts) endProbe(id string) {
	p.unanswered(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.known[id]; h != nil && h.probed {
		h.probed = false
		h.inFlight--
	}
}

// answered is called after any answer of the node.
func (p *hosts) answered(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.known[id]; h != nil {
		h.since, h.suspect = p.now(), false
	}
}

// unanswered is called when a statement was abandoned.
func (p *hosts) unanswered(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.known[id]; h != nil && !h.suspect && p.now().Sub(h.since) > p.stallAfter {
		h.suspect, p.lost = true, p.now()
	}
}

// lostFor is how long other nodes may still wait for a lost node: some 20 s until they notice,
// plus the statements in flight at that time.
const lostFor = 30 * time.Second

// lostLately reports whether a node was lost within lostFor.
func (p *hosts) lostLately() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.lost.IsZero() && p.now().Sub(p.lost) < lostFor
}

// HostDown is called by the driver when a node is lost, and at each failed attempt to
// connect to it.
func (p *hosts) HostDown(h *gocql.HostInfo) {
	p.setDown(h, true)
	p.HostSelectionPolicy.HostDown(h)
}

// HostUp is called by the driver when a node is up.
func (p *hosts) HostUp(h *gocql.HostInfo) {
	p.setDown(h, false)
	p.HostSelectionPolicy.HostUp(h)
}

func (p *hosts) setDown(h *gocql.HostInfo, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.hostLocked(h.HostID())
	if down && !known.down {
		p.lost = p.now()
	}
	known.down = down
}

// learn reports to the node's pace how long a statement took, or that it timed out. It returns
// the node's limit, why it was lowered, if it was, and whether it changed.
func (p *hosts) learn(id string, k kind, took time.Duration, timedOut bool) (limit int, why cause, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.known[id]
	if h == nil {
		return 0, uncut, false
	}
	of := &h.kind[k]
	if timedOut {
		why, changed = of.pace.timedOut(p.now(), of.inFlight)
	} else {
		why, changed = of.pace.answered(p.now(), took, of.inFlight)
	}
	return int(of.pace.limit), why, changed
}

// limit returns the sum of the limits of the nodes that are up and not silent, at least the
// limit of one slow node.
func (p *hosts) limit(k kind, all []*gocql.HostInfo) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0
	for _, h := range all {
		if !h.IsUp() {
			continue
		}
		switch known := p.known[h.HostID()]; {
		case known == nil:
			sum += p.most[k]
		case !known.suspect:
			sum += int(known.kind[k].pace.limit)
		}
	}
	return max(sum, min(paceFloor, p.most[k]))
}

func (p *hosts) suspects() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, h := range p.known {
		if h.suspect {
			n++
		}
	}
	return n
}

// AddHost is called by the driver when a node joins the ring.
func (p *hosts) AddHost(h *gocql.HostInfo) {
	p.met(h.HostID())
	p.HostSelectionPolicy.AddHost(h)
}

// RemoveHost is called by the driver when a node leaves the ring.
func (p *hosts) RemoveHost(h *gocql.HostInfo) {
	p.mu.Lock()
	delete(p.known, h.HostID())
	p.mu.Unlock()
	p.forget(h)
	p.HostSelectionPolicy.RemoveHost(h)
}

// tracked is a node that a statement was sent to.
type tracked struct {
	gocql.SelectedHost
	hosts *hosts
	host  *host
	kind  kind
	once  sync.Once
}

// Mark is called by the driver at the end of an attempt.
func (t *tracked) Mark(err error) {
	t.done()
	t.SelectedHost.Mark(err)
}

func (t *tracked) done() {
	t.once.Do(func() {
		t.hosts.mu.Lock()
		defer t.hosts.mu.Unlock()
		t.host.inFlight--
		t.host.kind[t.kind].inFlight--
	})
}

package cql

import (
	"context"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// hosts orders the nodes for each statement: as the policy below says (replicas
// of the partition first), but nodes that have stopped answering last.
//
// A node is silent when statements wait at it and it has answered none of them
// for stallAfter. This is how a paused process or a dead machine shows: its
// connections stay open, and the other nodes notice only after some 20 s. A
// silent node gets one statement at a time, to see whether it is back.
type hosts struct {
	gocql.HostSelectionPolicy
	stallAfter time.Duration
	now        func() time.Time

	mu    sync.Mutex
	known map[string]*host // by host id
}

type host struct {
	inFlight int
	since    time.Time // last answer, or when it became busy
	suspect  bool      // was silent, and has not answered since
}

func newHosts(below gocql.HostSelectionPolicy, stallAfter time.Duration, now func() time.Time) *hosts {
	return &hosts{HostSelectionPolicy: below, stallAfter: stallAfter, now: now, known: make(map[string]*host)}
}

// Pick is called by the driver for each statement.
func (p *hosts) Pick(statement gocql.ExecutableStatement) gocql.NextHost {
	next := p.HostSelectionPolicy.Pick(statement)
	var a *attempt
	if c, ok := statement.(interface{ Context() context.Context }); ok {
		a = attemptOf(c.Context())
	}
	var silent []gocql.SelectedHost
	var last *tracked
	return func() gocql.SelectedHost {
		if last != nil {
			last.done() // the driver had no connection to it
			last = nil
		}
		for next != nil {
			h := next()
			if h == nil {
				next = nil
				break
			}
			info := h.Info()
			if info == nil || !info.IsUp() {
				continue
			}
			if p.avoid(info.HostID()) {
				silent = append(silent, h)
				continue
			}
			last = p.begin(h, a)
			return last
		}
		if len(silent) == 0 {
			return nil
		}
		last = p.begin(silent[0], a)
		silent = silent[1:]
		return last
	}
}

// avoid says that the node is silent and is being tried already.
func (p *hosts) avoid(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.known[id]
	if h == nil || h.inFlight == 0 {
		return false
	}
	return h.suspect || p.now().Sub(h.since) > p.stallAfter
}

// silent says that nothing came from the node for stallAfter although it was
// asked.
func (p *hosts) silent(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.known[id]
	return h != nil && h.inFlight > 0 && p.now().Sub(h.since) > p.stallAfter
}

// others says that a node other than id is up and answers.
func (p *hosts) others(id string, all []*gocql.HostInfo) bool {
	for _, h := range all {
		if h.HostID() != id && h.IsUp() && !p.avoid(h.HostID()) {
			return true
		}
	}
	return false
}

func (p *hosts) begin(h gocql.SelectedHost, a *attempt) *tracked {
	id := h.Info().HostID()
	p.mu.Lock()
	k := p.known[id]
	if k == nil {
		k = new(host)
		p.known[id] = k
	}
	if k.inFlight == 0 {
		k.since = p.now()
	}
	k.inFlight++
	p.mu.Unlock()
	if a != nil {
		a.setHost(id)
	}
	return &tracked{SelectedHost: h, hosts: p, id: id}
}

// answered is called when the node gave an answer, of whatever kind.
func (p *hosts) answered(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.known[id]; h != nil {
		h.since, h.suspect = p.now(), false
	}
}

// unanswered is called when a statement was given up.
func (p *hosts) unanswered(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.known[id]; h != nil && p.now().Sub(h.since) > p.stallAfter {
		h.suspect = true
	}
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

// RemoveHost is called by the driver when a node left the ring.
func (p *hosts) RemoveHost(h *gocql.HostInfo) {
	p.mu.Lock()
	delete(p.known, h.HostID())
	p.mu.Unlock()
	p.HostSelectionPolicy.RemoveHost(h)
}

// tracked is a node that a statement was sent to.
type tracked struct {
	gocql.SelectedHost
	hosts *hosts
	id    string
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
		if h := t.hosts.known[t.id]; h != nil && h.inFlight > 0 {
			h.inFlight--
		}
	})
}

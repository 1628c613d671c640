package cql

import (
	"fmt"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// A simNode is a node that does so many statements in a second, one after the
// other, on a clock of its own.
type simNode struct {
	t      *testing.T
	perSec int
	pace   pace
	now    time.Time
	cuts   map[cause]int
}

const (
	simGoal = 500 * time.Millisecond
	simMax  = 64
)

func newSimNode(t *testing.T, perSec int) *simNode {
	now := time.Unix(0, 0)
	return &simNode{t: t, perSec: perSec, now: now, pace: newPace(simMax, simGoal, now), cuts: make(map[cause]int)}
}

// run gives the node as many statements as it may have, up to load, for a time.
// By Little's law each then takes inFlight / perSec.
func (n *simNode) run(d time.Duration, load int) {
	n.t.Helper()
	for end := n.now.Add(d); n.now.Before(end); {
		inFlight := min(load, int(n.pace.limit))
		n.pace.sent(inFlight)
		n.now = n.now.Add(time.Second / time.Duration(n.perSec))
		why, _ := n.pace.answered(n.now, time.Duration(inFlight)*time.Second/time.Duration(n.perSec), inFlight)
		n.cuts[why]++
		if n.pace.limit < paceFloor || n.pace.limit > simMax {
			n.t.Fatalf("limit %v is out of its bounds", n.pace.limit)
		}
	}
}

func (n *simNode) want(what string, least, most int) {
	n.t.Helper()
	if got := int(n.pace.limit); got < least || got > most {
		n.t.Errorf("%s: limit %d, want %d to %d", what, got, least, most)
	}
}

// TestPaceFollowsLatency: a node that does 10,000 statements in a second has all
// it may have; when it does 50 it is given what it does within the goal, 25; when
// it is quick again it has all again within a minute.
func TestPaceFollowsLatency(t *testing.T) {
	n := newSimNode(t, 10_000)
	n.run(10*time.Second, 1000)
	n.want("quick", simMax, simMax)
	n.perSec = 50
	n.run(30*time.Second, 1000)
	n.want("slow", 13, 28)
	if n.cuts[forLatency] == 0 || n.cuts[forTimeout] != 0 {
		t.Errorf("cuts: %v", n.cuts)
	}
	n.perSec = 4
	n.run(30*time.Second, 1000)
	n.want("very slow", simMax/paceEighth, simMax/paceEighth)
	n.perSec = 10_000
	n.run(time.Minute, 1000)
	n.want("quick again", simMax, simMax)
}

// TestPaceUnused: a limit that is not reached says nothing, and does not grow; one
// slow statement in a second is not held against the node.
func TestPaceUnused(t *testing.T) {
	n := newSimNode(t, 1000)
	n.pace.limit = 10
	n.run(20*time.Second, 3)
	n.want("3 of 10 in flight", 10, 10)
	for range 20 {
		n.pace.answered(n.now, time.Minute, 1)
		n.run(2*time.Second, 1)
	}
	n.want("one slow in a second", 10, 10)
	// A slow node is cut below what it had in flight, not below what it might
	// have had.
	n.pace.limit = simMax
	n.perSec = 10
	n.run(5*time.Second, 20)
	n.want("20 in flight, too slow", simMax/paceEighth, 15)
}

// TestPaceTimeouts: several of one bad moment count once.
func TestPaceTimeouts(t *testing.T) {
	n := newSimNode(t, 1000)
	n.run(time.Second, 1000)
	n.now = n.now.Add(time.Second)
	for range 5 {
		n.pace.sent(simMax)
		n.pace.timedOut(n.now, simMax)
	}
	n.want("one bad moment", simMax/2, simMax/2)
	for range 10 {
		n.now = n.now.Add(2 * time.Second)
		n.pace.timedOut(n.now, int(n.pace.limit))
	}
	n.want("ten bad moments", paceFloor, paceFloor)
	n.pace = newPace(2, simGoal, n.now)
	n.now = n.now.Add(2 * time.Second)
	n.pace.timedOut(n.now, 2)
	n.want("the floor is not above the bound", 2, 2)
}

// fixedPolicy offers nodes in a fixed order: replicas, then others.
type fixedPolicy struct {
	gocql.HostSelectionPolicy
	replicas, others []*gocql.HostInfo
}

func (p *fixedPolicy) Pick(gocql.ExecutableStatement) gocql.NextHost {
	var all []gocql.SelectedHost
	for _, h := range p.replicas {
		all = append(all, selected{h})
	}
	for _, h := range p.others {
		all = append(all, other{selected{h}})
	}
	return func() gocql.SelectedHost {
		if len(all) == 0 {
			return nil
		}
		h := all[0]
		all = all[1:]
		return h
	}
}

type selected struct{ host *gocql.HostInfo }

func (s selected) Info() *gocql.HostInfo { return s.host }
func (s selected) Mark(error)            {}

func testHost(t *testing.T, n int) *gocql.HostInfo {
	t.Helper()
	h, err := gocql.NewTestHostInfoFromRow(map[string]any{"host_id": gocql.UUID{15: byte(n)}, "rpc_address": fmt.Sprintf("127.0.0.%d", n)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestSlowNodesGetLess: of three replicas one does 20 statements in a second and
// the others 2,000, with up to 90 in flight. The slow one is soon given few; when it is
// as quick as the others it is given as many.
func TestSlowNodesGetLess(t *testing.T) {
	now := time.Unix(0, 0)
	config := DefaultConfig()
	config.ReadsInFlight = 32
	h := newHosts(nil, config, func() time.Time { return now }, func(...string) {}, func(*gocql.HostInfo) {})
	nodes := []*gocql.HostInfo{testHost(t, 1), testHost(t, 2), testHost(t, 3)}
	policy := &fixedPolicy{}
	h.HostSelectionPolicy = policy
	perSec := map[string]int{nodes[0].HostID(): 20, nodes[1].HostID(): 2000, nodes[2].HostID(): 2000}
	type sent struct {
		host gocql.SelectedHost
		at   time.Time
	}
	inFlight := make(map[string][]sent)
	credit := make(map[string]float64)
	total, turn := 0, 0
	run := func(d time.Duration) (done map[string]int) {
		done = make(map[string]int)
		for end := now.Add(d); now.Before(end); now = now.Add(time.Millisecond) {
			for ; total < min(90, h.limit(reads, nodes)); total++ {
				turn++
				policy.replicas = []*gocql.HostInfo{nodes[turn%3], nodes[(turn+1)%3], nodes[(turn+2)%3]}
				host := h.Pick(nil)()
				id := host.Info().HostID()
				inFlight[id] = append(inFlight[id], sent{host, now})
			}
			for id, waiting := range inFlight {
				credit[id] = min(credit[id]+float64(perSec[id])/1000, 10)
				for ; credit[id] >= 1 && len(waiting) > 0; credit[id]-- {
					h.answered(id)
					h.learn(id, reads, now.Sub(waiting[0].at), false)
					waiting[0].host.Mark(nil)
					waiting = waiting[1:]
					done[id]++
					total--
				}
				inFlight[id] = waiting
			}
		}
		return done
	}
	slow := nodes[0].HostID()
	run(10 * time.Second)
	if n := len(inFlight[slow]); n > 10 || n == 0 {
		t.Errorf("the slow node has %d in flight", n)
	}
	limit := h.limit(reads, nodes)
	if limit < 64+paceFloor || limit > 64+12 {
		t.Errorf("the limit of all is %d", limit)
	}
	if done := run(10 * time.Second); done[nodes[1].HostID()]+done[nodes[2].HostID()] < 35_000 {
		t.Errorf("beside the slow node the others did %v of 40,000", done)
	}
	perSec[slow] = 2000
	run(time.Minute)
	done := run(10 * time.Second)
	if limit := h.limit(reads, nodes); limit < 64+24 {
		t.Errorf("the limit of all is %d after the slow node is quick again", limit)
	}
	if done[slow] < 10_000 {
		t.Errorf("quick again, it did %v", done)
	}
}

// TestOrderOfNodes: replicas with room, replicas without in the order of their
// load, others, and the silent ones last.
func TestOrderOfNodes(t *testing.T) {
	now := time.Unix(0, 0)
	config := DefaultConfig()
	config.WritesInFlight = 2
	h := newHosts(nil, config, func() time.Time { return now }, func(...string) {}, func(*gocql.HostInfo) {})
	var nodes []*gocql.HostInfo
	for i := range 5 {
		nodes = append(nodes, testHost(t, i+1))
	}
	h.HostSelectionPolicy = &fixedPolicy{replicas: nodes[:4], others: nodes[4:]}
	begin := func(n, times int) {
		for range times {
			h.begin(selected{nodes[n]}, writes, nil)
		}
	}
	begin(3, 1) // will be silent
	now = now.Add(2 * config.StallAfter)
	begin(0, 3)
	begin(1, 2)
	c := &choice{hosts: h, kind: writes, next: h.HostSelectionPolicy.Pick(nil)}
	var order []string
	for {
		n := c.host()
		if n == nil {
			break
		}
		order = append(order, n.Info().ConnectAddress().String())
	}
	if want := "[127.0.0.3 127.0.0.2 127.0.0.1 127.0.0.5 127.0.0.4]"; fmt.Sprint(order) != want {
		t.Errorf("order %v, want %s", order, want)
	}
}

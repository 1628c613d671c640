package cql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// A Clock compares the time of a node with this machine's clock.
type Clock struct {
	Address string
	Up      bool
	Ahead   time.Duration // by how much the node's clock is ahead of this machine's; negative if it is behind
	Error   time.Duration // possible error of Ahead: half of the round trip
	Err     error         // why the node did not answer
}

var readClock = &Statement{Name: "read_clock", Text: "SELECT toUnixTimestamp(now()) FROM system.local WHERE key = 'local'"}

// maxClocks is how many nodes are asked for their time.
const maxClocks = 100

// Clocks asks all known nodes for their time, one after the other, at most maxClocks of them.
func (s *Session) Clocks(ctx context.Context) (clocks []Clock, err error) {
	err = s.do(ctx, call{st: readClock, kind: reads, timeout: s.config.ScanTimeout, pinned: true, run: func(ctx context.Context, d *gocql.Session) error {
		clocks = nil
		for _, h := range d.GetHosts() {
			if len(clocks) == maxClocks {
				return nil
			}
			c := Clock{Address: h.ConnectAddress().String(), Up: h.IsUp()}
			if c.Up {
				c.read(ctx, d, h)
			}
			clocks = append(clocks, c)
		}
		return ctx.Err()
	}})
	return clocks, err
}

func (c *Clock) read(ctx context.Context, d *gocql.Session, h *gocql.HostInfo) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	query := func() (at time.Time, err error) {
		q := d.Query(readClock.Text).Consistency(gocql.One).Idempotent(true).DefaultTimestamp(false).SetHostID(h.HostID())
		var ms int64
		err = q.ScanContext(ctx, &ms)
		return time.UnixMilli(ms), err
	}
	if _, c.Err = query(); c.Err != nil { // the first one prepares the statement
		return
	}
	before := time.Now()
	at, err := query()
	took := time.Since(before)
	c.Ahead, c.Error, c.Err = at.Sub(before.Add(took/2)), took/2+time.Millisecond, err
}

// ClockOff is by how much the clock of a machine must differ from those of the nodes to count as
// not set yet. It is as much as write timestamps may be ahead of the clock: see package spool.
const ClockOff = 2 * time.Minute

// A ClockError means that the clock of this machine is not set.
type ClockError struct {
	Off time.Duration // by how much it is ahead of those of most nodes; negative if it is behind
}

func (e *ClockError) Error() string {
	which := "ahead of"
	if e.Off < 0 {
		which = "behind"
	}
	return fmt.Sprintf("the clock of this machine is %v %s those of Cassandra's nodes", e.Off.Abs().Round(time.Second), which)
}

// CompareClocks compares the clock of this machine with those of the nodes that answer, with what
// [Session.Clocks] has returned. The error is a *ClockError if it differs from those of most by
// more than ClockOff. Any other error says why no node has reported its time.
func CompareClocks(clocks []Clock, err error) error {
	var ahead []time.Duration // of the nodes
	for _, node := range clocks {
		switch {
		case !node.Up:
		case node.Err != nil:
			err = node.Err
		default:
			ahead = append(ahead, node.Ahead)
		}
	}
	if len(ahead) == 0 {
		if err == nil {
			err = errors.New("no node is up")
		}
		return fmt.Errorf("cannot compare the clock of this machine: no Cassandra node reports its time: %w", err)
	}
	slices.Sort(ahead)
	if off := -ahead[len(ahead)/2]; off.Abs() > ClockOff {
		return &ClockError{off}
	}
	return nil
}

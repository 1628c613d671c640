package cql

import (
	"context"
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
	err = s.do(ctx, call{st: readClock, kind: reads, timeout: s.config.ScanTimeout, run: func(ctx context.Context, d *gocql.Session) error {
		attemptOf(ctx).pin()
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

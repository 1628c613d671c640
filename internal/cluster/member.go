package cluster

import (
	"context"
	"time"
)

// A Member is a process that has joined, or that holds a lease.
type Member struct {
	Node  string // id of the server
	Note  string // for people
	Until time.Time
}

func (r record) member() Member {
	return Member{Node: r.Node, Note: r.Note, Until: time.UnixMilli(r.UntilMS)}
}

// Join makes this process a member for so long. *HeldError: another process has the
// same id, as when a data directory was copied, or the server was just started again.
func (n *Node) Join(ctx context.Context, life time.Duration) (*Lease, error) {
	return n.acquire(ctx, nodes, n.ID, life, func(record) bool { return false })
}

// Members lists the processes that are there, or were until a moment ago.
func (n *Node) Members(ctx context.Context) ([]Member, error) {
	var all []Member
	now := n.now()
	err := n.registers.List(ctx, nodes, func(name string, v Value) error {
		r, err := parse(v.Data)
		if err != nil {
			all = append(all, Member{Node: name, Note: err.Error()})
			return nil
		}
		if n.heldAt(now, r) {
			all = append(all, r.member())
		}
		return nil
	})
	return all, err
}

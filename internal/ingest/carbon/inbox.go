package carbon

import (
	"net/netip"
	"slices"
	"sync"

	"varve/internal/ingest"
	"varve/internal/notify"
	"varve/internal/principal"
)

// An inbox holds datagrams that were received and are not stored yet: at most inboxBlocks times
// what a block holds. Senders with the same rights share blocks. With a block for each change of
// the sender, the datagrams of two senders that alternate would be stored one by one.
//
// A sender may hold at most as much as is free. So a single sender that sends more than the store takes
// holds half of the inbox, two such senders hold a third each, and there is always room for a sender with
// less.
type inbox struct {
	blockBytes int
	ready      chan struct{} // has an element after a put, and after the end

	mu struct {
		sync.Mutex
		blocks []*block                // none is empty
		all    share                   // of the datagrams in blocks
		shares map[netip.Prefix]*share // by network; none is empty
		spare  *block                  // for the next one
		ended  bool
	}
}

// A share is how much of an inbox is in use.
type share struct {
	bytes, datagrams int
}

// add adds a number of datagrams with a total size.
func (s *share) add(bytes, datagrams int) {
	s.bytes += bytes
	s.datagrams += datagrams
}

// A block is datagrams that are stored together, on behalf of senders with the same rights.
type block struct {
	by        principal.Principal // without a name
	data      []byte
	datagrams []datagram
}

// A datagram is a part of the data of its block. It begins where the previous one ends.
type datagram struct {
	end    int
	from   netip.AddrPort
	sender string // the name of its principal
	own    *share // of its sender
}

const (
	// maxDatagram is more than a UDP datagram can hold, in bytes.
	maxDatagram = 64 << 10

	// inboxBlocks bounds what waits, in full blocks. With blocks of 256 KiB, the half that a single
	// sender can have holds what arrives in about a second at 80,000 lines a second.
	inboxBlocks = 32
)

func newInbox(blockBytes int) *inbox {
	b := &inbox{blockBytes: max(blockBytes, maxDatagram), ready: make(chan struct{}, 1)}
	b.mu.shares = map[netip.Prefix]*share{}
	return b
}

// put adds a copy of a datagram. It reports false, and does nothing, if there is no room for one of this
// sender.
func (b *inbox) put(data []byte, from netip.AddrPort, by principal.Principal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	network := principal.Network(from.Addr())
	own := b.mu.shares[network]
	if own == nil {
		own = new(share)
	}
	if !b.hasRoomLocked(len(data), own) {
		return false
	}
	if own.datagrams == 0 {
		b.mu.shares[network] = own
	}
	sender := by.Name
	by.Name = ""
	to := b.blockLocked(len(data), by)
	to.data = append(to.data, data...)
	to.datagrams = append(to.datagrams, datagram{len(to.data), from, sender, own})
	b.mu.all.add(len(data), 1)
	own.add(len(data), 1)
	b.wake()
	return true
}

// hasRoomLocked reports whether there is room for a datagram of a sender that has a share: what it holds
// then must not exceed what was free. b.mu must be held.
func (b *inbox) hasRoomLocked(size int, own *share) bool {
	return own.bytes+size <= inboxBlocks*b.blockBytes-b.mu.all.bytes &&
		own.datagrams+1 <= inboxBlocks*ingest.BlockSamples-b.mu.all.datagrams
}

// blockLocked returns the block for size bytes of senders with the same rights as by. b.mu must be
// held.
func (b *inbox) blockLocked(size int, by principal.Principal) *block {
	for _, last := range slices.Backward(b.mu.blocks) {
		if last.by != by {
			continue
		}
		if len(last.data)+size <= b.blockBytes && len(last.datagrams) < ingest.BlockSamples {
			return last
		}
		break
	}
	last := b.mu.spare
	if last == nil {
		last = new(block)
	}
	b.mu.spare, last.by = nil, by
	b.mu.blocks = append(b.mu.blocks, last)
	return last
}

// take waits for a block. It returns nil after the end, once all blocks are taken.
func (b *inbox) take() *block {
	for {
		if first, ended := b.next(); first != nil || ended {
			return first
		}
		<-b.ready
	}
}

func (b *inbox) next() (first *block, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.blocks) == 0 {
		return nil, b.mu.ended
	}
	first = b.mu.blocks[0]
	b.mu.blocks[0] = nil
	b.mu.blocks = b.mu.blocks[1:]
	b.mu.all.add(-len(first.data), -len(first.datagrams))
	for data, d := range first.all {
		d.own.add(-len(data), -1)
		if d.own.datagrams == 0 {
			delete(b.mu.shares, principal.Network(d.from.Addr()))
		}
	}
	return first, false
}

// recycle makes a block that was stored available again.
func (b *inbox) recycle(used *block) {
	used.data, used.datagrams = used.data[:0], used.datagrams[:0]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.spare = used
}

// end lets take return nil once all blocks are taken.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.ended = true
	b.wake()
}

func (b *inbox) wake() { notify.Wake(b.ready) }

package carbon

import (
	"net/netip"
	"sync"

	"varve/internal/ingest"
	"varve/internal/notify"
	"varve/internal/principal"
)

// An inbox holds datagrams that were received and are not stored yet. Its memory is limited to
// inboxBlocks times the size of a block.
type inbox struct {
	blockBytes int
	ready      chan struct{} // has an element after a put, and after the end

	mu struct {
		sync.Mutex
		blocks []*block // none is empty
		spare  *block   // for the next one
		ended  bool
	}
}

// A block is datagrams that are stored together, on behalf of one sender.
type block struct {
	by        principal.Principal
	data      []byte
	datagrams []datagram
}

// A datagram is a part of the data of its block. It begins where the previous one ends.
type datagram struct {
	end  int
	from netip.AddrPort
}

const (
	// maxDatagram is more than a UDP datagram can hold, in bytes.
	maxDatagram = 64 << 10

	// inboxBlocks bounds the blocks that wait. With blocks of 256 KiB they hold what
	// arrives in about a second at 80,000 lines a second.
	inboxBlocks = 16
)

func newInbox(blockBytes int) *inbox {
	return &inbox{blockBytes: max(blockBytes, maxDatagram), ready: make(chan struct{}, 1)}
}

// put adds a copy of a datagram. It reports false, and does nothing, if there is no room.
func (b *inbox) put(data []byte, from netip.AddrPort, by principal.Principal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.lastLocked(len(data), by)
	if last == nil {
		return false
	}
	last.data = append(last.data, data...)
	last.datagrams = append(last.datagrams, datagram{len(last.data), from})
	b.wake()
	return true
}

// lastLocked returns a block of a sender that has room for size bytes, nil if all are full. b.mu
// must be held.
func (b *inbox) lastLocked(size int, by principal.Principal) *block {
	if n := len(b.mu.blocks); n > 0 {
		last := b.mu.blocks[n-1]
		if last.by == by && len(last.data)+size <= b.blockBytes && len(last.datagrams) < ingest.BlockSamples {
			return last
		}
	}
	if len(b.mu.blocks) == inboxBlocks {
		return nil
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

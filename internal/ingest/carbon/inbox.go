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
type inbox struct {
	blockBytes int
	ready      chan struct{} // has an element after a put, and after the end

	mu struct {
		sync.Mutex
		blocks    []*block // none is empty
		bytes     int      // of the data in blocks
		datagrams int      // in blocks
		spare     *block   // for the next one
		ended     bool
	}
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
}

const (
	// maxDatagram is more than a UDP datagram can hold, in bytes.
	maxDatagram = 64 << 10

	// inboxBlocks bounds what waits, in full blocks. With blocks of 256 KiB they hold what
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
	if b.mu.bytes+len(data) > inboxBlocks*b.blockBytes || b.mu.datagrams == inboxBlocks*ingest.BlockSamples {
		return false
	}
	sender := by.Name
	by.Name = ""
	to := b.blockLocked(len(data), by)
	to.data = append(to.data, data...)
	to.datagrams = append(to.datagrams, datagram{len(to.data), from, sender})
	b.mu.bytes += len(data)
	b.mu.datagrams++
	b.wake()
	return true
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
	b.mu.bytes -= len(first.data)
	b.mu.datagrams -= len(first.datagrams)
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

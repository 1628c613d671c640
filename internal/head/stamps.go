package head

import (
	"encoding/binary"

	"varve/internal/chunk"
)

// setStamp sets the stamp of the next samples. s.mu must be held.
func (s *shard) setStamp(stampMS int64) {
	if s.stampBase == 0 {
		s.stampBase = stampMS
	}
	s.stamp = uint32(stampMS - s.stampBase)
}

// blockBytes is the memory of a block with its stamps.
func (s *shard) blockBytes() int64 {
	if s.stamped {
		return blockBytes + stampBytes
	}
	return blockBytes
}

func (s *shard) stampsOf(ref uint32) *stampBlock {
	return &s.stamps[(ref-1)/slabBlocks][(ref-1)%slabBlocks]
}

// appendStamps encodes stamps as described in the package comment.
func appendStamps(dst []byte, stamps []int64, base int64) []byte {
	last, step := base, int64(0)
	for _, ms := range stamps {
		dst = binary.AppendVarint(dst, ms-last-step)
		last, step = ms, ms-last
	}
	return dst
}

// decodeStamps appends the stamps of a fragment to dst.
func (f Fragment) decodeStamps(dst []int64) []int64 {
	last, step := f.stampBase, int64(0)
	rest := f.codes
	for range chunk.Count(f.encoded) {
		change, n := binary.Varint(rest)
		if n <= 0 {
			panic("head: the stamps of a fragment end too soon")
		}
		rest = rest[n:]
		step += change
		last += step
		dst = append(dst, last)
	}
	return dst
}

package ingest

import "testing"

// Where memory is scarce, nothing of it is kept for small bodies: all bodies share it.
func TestMemoryOfSmallBodies(t *testing.T) {
	least := int64(bufferSizes[0]) * smallCount
	for memory, kept := range map[int64]int64{least - 1: 0, least: least / smallShare, 256 << 20: 32 << 20, 1 << 20: 0} {
		var p Pipeline
		p.splitBodies(memory)
		if p.smallBodies.Most() != kept || p.bodies.Most() != memory-kept || p.smallBody != memory/smallCount {
			t.Errorf("of %d bytes %d are for small bodies of up to %d, %d for others, want %d and %d", memory, p.smallBodies.Most(), p.smallBody, p.bodies.Most(), kept, memory-kept)
		}
	}
}

package model

import "slices"

// StaleMarker has the bits by which Prometheus marks the end of a series: those of one
// signalling NaN. A staleness marker is stored as a sample of a Double series, and does
// not count as a value: see store.ReadOptions.Stale. Other NaNs are values.
//
// Compare markers as bits: arithmetic turns a marker into a quiet NaN.
const StaleMarker uint64 = 0x7ff0000000000002

// HasStale reports whether at least one of the doubles is a StaleMarker.
func HasStale(bits []uint64) bool {
	for len(bits) >= 4 { // twice as fast as slices.Contains
		if bits[0] == StaleMarker || bits[1] == StaleMarker || bits[2] == StaleMarker || bits[3] == StaleMarker {
			return true
		}
		bits = bits[4:]
	}
	return slices.Contains(bits, StaleMarker)
}

// DropStale removes the samples of a Double series that are StaleMarkers, as Drop does.
func (c *Columns) DropStale(spare *Columns) {
	if HasStale(c.Values) {
		c.Drop(spare, func(i int) bool { return c.Values[i] == StaleMarker })
	}
}

package model

// StaleMarker is the value by which Prometheus says that a series has ended: the bits of
// one of all NaNs, a signalling one. It is a sample of a Double series like others, and
// no value: see store.ReadOptions.Stale. Other NaNs are values.
//
// It is compared as bits. Arithmetic makes a quiet NaN of it.
const StaleMarker uint64 = 0x7ff0000000000002

// HasStale reports whether one of some doubles is a StaleMarker.
func HasStale(bits []uint64) bool {
	for len(bits) >= 4 { // twice as fast as slices.Contains
		if bits[0] == StaleMarker || bits[1] == StaleMarker || bits[2] == StaleMarker || bits[3] == StaleMarker {
			return true
		}
		bits = bits[4:]
	}
	for _, b := range bits {
		if b == StaleMarker {
			return true
		}
	}
	return false
}

// DropStale removes the samples of a Double series that are StaleMarkers, as Drop does.
func (c *Columns) DropStale(spare *Columns) {
	if HasStale(c.Values) {
		c.Drop(spare, func(i int) bool { return c.Values[i] == StaleMarker })
	}
}

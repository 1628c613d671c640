package chunk

import (
	"encoding/binary"
	"hash/crc32"
)

// FindPage returns the length of the page that b begins with, for reading a
// file whose index is lost: a page does not say how long it is. It steps through
// entries until their checksum follows. It is false if b does not begin with a
// whole page.
func FindPage(b []byte) (length int, ok bool) {
	if len(b) < 1+checksumSize || b[0] != pageVersion {
		return 0, false
	}
	it := Page{b: b}.Iter()
	crc, summed := uint32(0), 0
	var e Entry
	for it.Next(&e) {
		end := it.r.pos
		crc = crc32.Update(crc, castagnoli, b[summed:end])
		summed = end
		if end+checksumSize <= len(b) && binary.LittleEndian.Uint32(b[end:]) == crc {
			return end + checksumSize, true
		}
	}
	return 0, false
}

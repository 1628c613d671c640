package chunk

import (
	"encoding/binary"
	"hash/crc32"
)

// FindPage returns the length of the page that b begins with, for reading a file whose
// index is lost: a page does not contain its length. It steps through entries until
// their checksum follows. The length is 0 if b does not begin with a whole page. walked
// is how many bytes it has read.
func FindPage(b []byte) (length, walked int) {
	if len(b) < 1+checksumSize || b[0] != pageVersion {
		return 0, 1
	}
	it := Page{b: b}.Iter()
	crc, summed := uint32(0), 0
	var e Entry
	for it.Next(&e) {
		end := it.r.pos
		crc = crc32.Update(crc, castagnoli, b[summed:end])
		summed = end
		if end+checksumSize <= len(b) && binary.LittleEndian.Uint32(b[end:]) == crc {
			return end + checksumSize, end
		}
	}
	return 0, summed + 1
}

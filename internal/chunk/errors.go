package chunk

import "fmt"

// A FormatError means that bytes are not a chunk or page that this build can
// read: they were damaged, cut off, or written by another version.
type FormatError struct {
	Offset int // in the input, where the fault was found
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("chunk: at offset %d: %s", e.Offset, e.Reason)
}

// A ChecksumError means that the bytes of a page changed since it was written.
type ChecksumError struct {
	Expected uint32 // stored in the page
	Got      uint32 // computed over its bytes
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("chunk: page checksum mismatch: expected %08x, got %08x", e.Expected, e.Got)
}

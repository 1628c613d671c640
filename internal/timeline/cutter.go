package timeline

import "encoding/binary"

// A Cutter reads numbers of variable length, and texts behind their length, from the front of Rest. It is Bad
// once one of them was invalid or cut off; all later reads return zero.
type Cutter struct {
	Rest []byte
	Bad  bool
}

// Varint reads a signed number.
func (c *Cutter) Varint() int64 {
	v, n := binary.Varint(c.Rest)
	c.cut(n)
	return v
}

// Uvarint reads a number that is not negative.
func (c *Cutter) Uvarint() uint64 {
	v, n := binary.Uvarint(c.Rest)
	c.cut(n)
	return v
}

func (c *Cutter) cut(n int) {
	if n <= 0 {
		c.Rest, c.Bad = nil, true
		return
	}
	c.Rest = c.Rest[n:]
}

// Text reads a text, which shares memory with Rest.
func (c *Cutter) Text() []byte {
	n := c.Uvarint()
	if n > uint64(len(c.Rest)) {
		c.Rest, c.Bad = nil, true
		return nil
	}
	text := c.Rest[:n]
	c.Rest = c.Rest[n:]
	return text
}

// AppendText appends what Text reads.
func AppendText[T ~string | ~[]byte](dst []byte, text T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

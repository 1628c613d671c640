package safefile

import (
	"bytes"
	"fmt"
	"hash/crc32"
)

// A sealed JSON object ends with the member "crc32c", the checksum of the object without it, in
// eight hexadecimal digits.
const (
	sealBegin = `,"crc32c":"`
	sealEnd   = `"}`
	sealBytes = len(sealBegin) + 8 + len(sealEnd)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sealOf(object []byte) string {
	return fmt.Sprintf("%s%08x%s", sealBegin, crc32.Checksum(object, castagnoli), sealEnd)
}

// Seal adds a checksum to the text of a JSON object, which must have a member. Otherwise a flipped
// bit in a number or a name would make another valid object. Builds that do not know the checksum
// ignore it. Seal may write to object.
func Seal(object []byte) []byte {
	seal := sealOf(object)
	return append(bytes.TrimSuffix(object, []byte("}")), seal...)
}

// CheckSeal returns an error if a text was sealed and is damaged. It accepts a text without a
// checksum, which an earlier build wrote.
func CheckSeal(text []byte) error {
	text = bytes.TrimSpace(text)
	end := len(text) - sealBytes
	if end < 0 || !bytes.HasPrefix(text[end:], []byte(sealBegin)) {
		return nil
	}
	object := append(bytes.Clone(text[:end]), '}')
	if want := sealOf(object); string(text[end:]) != want {
		return fmt.Errorf("the file is damaged: expected %s at its end, got %s", want, text[end:])
	}
	return nil
}

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

// sealOf returns what an object ends with instead of its "}".
func sealOf(objectWithoutEnd []byte) string {
	sum := crc32.Update(crc32.Checksum(objectWithoutEnd, castagnoli), castagnoli, []byte("}"))
	return fmt.Sprintf("%s%08x%s", sealBegin, sum, sealEnd)
}

// Seal adds a checksum to the text of a JSON object, which must have a member. Otherwise a flipped
// bit in a number or a name would make another valid object. Builds that do not know the checksum
// ignore it. Seal may write to object.
func Seal(object []byte) []byte {
	object = bytes.TrimSuffix(object, []byte("}"))
	return append(object, sealOf(object)...)
}

// CheckSeal returns an error if a text was sealed and is damaged. It accepts a text without a
// checksum, which an earlier build wrote.
func CheckSeal(text []byte) error {
	text = bytes.TrimSpace(text)
	end := len(text) - sealBytes
	if end < 0 || !bytes.HasPrefix(text[end:], []byte(sealBegin)) {
		return nil
	}
	if want := sealOf(text[:end]); string(text[end:]) != want {
		return fmt.Errorf("the file is damaged: expected %s at its end, got %s", want, text[end:])
	}
	return nil
}

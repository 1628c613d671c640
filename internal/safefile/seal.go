package safefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A sealed JSON object ends with the member "crc32c", the checksum of the object without it, in
// eight hexadecimal digits.
const (
	sealBegin = `,"crc32c":"`
	sealEnd   = `"}`
	sealBytes = len(sealBegin) + 8 + len(sealEnd)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealOf returns the text that replaces the final "}" of an object.
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

// ReplaceObject makes a sealed object, the JSON of v, the content of a file, as Replace does.
func ReplaceObject(fsys vfs.FS, path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Replace(fsys, path, append(Seal(text), '\n'))
}

// ReadObject reads a file that ReplaceObject has written. It may have at most limit bytes.
func ReadObject(fsys vfs.FS, path string, limit int64, into any) error {
	text, err := Read(fsys, path, limit)
	if err != nil {
		return err
	}
	if err := CheckSeal(text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// A text sealed by SealBlank ends with a line of blanks: the 32 bits of the checksum of the text before
// it, the highest first. A tab is 1, a space 0.
const blanksBytes = len("\n") + 32 + len("\n")

func blanksOf(text []byte) []byte {
	sum := crc32.Checksum(text, castagnoli)
	line := []byte{'\n'}
	for bit := 31; bit >= 0; bit-- {
		line = append(line, " \t"[sum>>bit&1])
	}
	return append(line, '\n')
}

// SealBlank adds a checksum to a JSON object whose members are data: builds that do not know the
// checksum would mistake another member for data, but ignore white space at the end. SealBlank may
// write to text.
func SealBlank(text []byte) []byte { return append(text, blanksOf(text)...) }

// CheckSealBlank is CheckSeal for a text that SealBlank has sealed.
func CheckSealBlank(text []byte) error {
	end := len(text) - blanksBytes
	if end < 0 || text[end] != '\n' || len(bytes.Trim(text[end:], " \t\n")) > 0 {
		return nil // without a checksum, or no JSON
	}
	if !bytes.Equal(text[end:], blanksOf(text[:end])) {
		return fmt.Errorf("the file is damaged: its checksum, the white space at its end, does not match")
	}
	return nil
}

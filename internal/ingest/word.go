package ingest

import "unsafe"

// CutWord splits the first word off b, which is empty if there is none. Words are
// separated by bytes up to and including the blank.
func CutWord(b []byte) (word, rest []byte) {
	i := 0
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	end := i
	for end < len(b) && b[end] > ' ' {
		end++
	}
	return b[i:end], b[end:]
}

// isWord reports whether b is one word that does not begin with a double quote.
func isWord(b []byte) bool {
	word, _ := CutWord(b)
	return len(b) > 0 && len(word) == len(b) && b[0] != '"'
}

// CutText is bytes.CutPrefix for a text.
func CutText(b []byte, text string) (rest []byte, ok bool) {
	if len(b) < len(text) || string(b[:len(text)]) != text {
		return b, false
	}
	return b[len(text):], true
}

// View is b as a string that shares its memory.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

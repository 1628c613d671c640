// Package clip cuts texts of clients for use in messages: answers, errors, log
// lines. A client decides how long its texts are, and may repeat them in each of a
// thousand faults.
package clip

import (
	"strings"
	"unicode/utf8"
)

// Text returns s as it is if it has at most n bytes, else what Cut leaves of it and
// "...".
func Text[T ~string | ~[]byte](s T, n int) string {
	if len(s) <= n {
		return string(s)
	}
	return Cut(s, n) + "..."
}

// Cut returns at most n bytes of s, and no part of a character. Bytes that are not
// UTF-8 become "�".
func Cut[T ~string | ~[]byte](s T, n int) string {
	if len(s) > n {
		end := n
		for end > 0 && end > n-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(string(s), "�")
}

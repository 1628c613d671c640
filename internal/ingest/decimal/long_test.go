package decimal

import (
	"strings"
	"testing"
)

// A number is one of JSON by its form, however many digits it has before the point and behind it.
func TestFormOfLongNumbers(t *testing.T) {
	for _, n := range []int{1, safeDigits - 1, safeDigits, safeDigits + 1, 3 * safeDigits} {
		whole := strings.Repeat("7", n)
		for text, want := range map[string]bool{
			whole: true, whole + ".": false, whole + ".5": true, whole + "." + whole: true, "0." + whole: true, "." + whole: false, "0" + whole: false, "0" + whole + ".5": false,
		} {
			got := Scan([]byte(text))
			if got.JSON != want || got.Len != len(text) {
				t.Errorf("%s: JSON %t, %d bytes, want %t, %d", text, got.JSON, got.Len, want, len(text))
			}
		}
	}
}

// Package suggest finds the known name that a misspelt name most likely stands for.
package suggest

// maxName is the length of the longest name that is compared: the cost grows with the length.
const maxName = 64

// Name returns the candidate with the least Distance from name, the first one of several. It
// returns "" if that distance is more than two, or more than a third of name's bytes.
func Name(name string, candidates []string) string {
	if len(name) > maxName {
		return ""
	}
	best, least := "", min(len(name)/3, 2)+1
	for _, c := range candidates {
		if n := Distance(name, c); n < least {
			best, least = c, n
		}
	}
	return best
}

// Hint returns the end of an error about an unknown name: a question, or "" if no candidate
// resembles it.
func Hint(name string, candidates []string) string {
	if n := Name(name, candidates); n != "" {
		return "; did you mean " + n + "?"
	}
	return ""
}

// Distance returns the number of edits that turn a into b: a byte inserted, removed or replaced,
// or two neighbours swapped (optimal string alignment).
func Distance(a, b string) int {
	rows := [3][]int{} // distances from a[:i-2], a[:i-1], a[:i] to each b[:j]
	for k := range rows {
		rows[k] = make([]int, len(b)+1)
	}
	for j := range rows[2] {
		rows[2][j] = j
	}
	for i := 1; i <= len(a); i++ {
		rows[0], rows[1], rows[2] = rows[1], rows[2], rows[0]
		before, above, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := above[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[2][len(b)]
}

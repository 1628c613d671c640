package config

import "strings"

// Nearest returns the candidate that name was most likely meant to be, or ""
// when none resembles it.
func Nearest(name string, candidates []string) string { return nearest(name, candidates, " ") }

// nearest returns the candidate that name was most likely meant to be, or ""
// when none resembles it: more than two letters, and more than half of them,
// would have to change.
// sep separates the parts of a name: one that lacks only its section is near,
// and where parts and words are told apart (".") also one in a wrong section.
func nearest(name string, candidates []string, sep string) string {
	best, bestDistance := "", max(2, len(name)/2)+1
	for _, c := range candidates {
		d := distance(name, c)
		if strings.HasSuffix(c, sep+name) || sep == "." && strings.HasSuffix(c, sep+lastPart(name)) {
			d = min(d, 1)
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// distance is the number of bytes to insert, remove or replace to turn a
// into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0] // a[:i] to b[:j]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// orNearest words the end of an error about an unknown name.
func orNearest(name string, candidates []string, sep, prefix string) string {
	if n := nearest(name, candidates, sep); n != "" {
		return "; did you mean " + prefix + n + "?"
	}
	return "; varve config lists what there is"
}

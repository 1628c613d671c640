package config

import (
	"strings"

	"varve/internal/suggest"
)

// Nearest returns the candidate that name was most likely meant to be, or ""
// when none resembles it.
func Nearest(name string, candidates []string) string { return nearestKey(name, candidates, " ") }

// nearestKey returns the candidate that name was most likely meant to be, or ""
// when none resembles it: more than two letters, and more than half of them,
// would have to change.
// sep separates the parts of a name: one that lacks only its section is near,
// and where parts and words are told apart (".") also one in a wrong section.
func nearestKey(name string, candidates []string, sep string) string {
	best, bestDistance := "", max(2, len(name)/2)+1
	for _, c := range candidates {
		d := suggest.Distance(name, c)
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

// orNearest returns the end of an error about an unknown name.
func orNearest(name string, candidates []string, sep, prefix string) string {
	if n := nearestKey(name, candidates, sep); n != "" {
		return "; did you mean " + prefix + n + "?"
	}
	return "; varve config lists what there is"
}

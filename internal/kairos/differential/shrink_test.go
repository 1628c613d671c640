package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// shrinkLimit bounds the search for a smaller example.
const shrinkLimit = 15 * time.Second

func mapKeys[V any](m map[string]V) func(func(string) bool) { return maps.Keys(m) }

// shrink drops parts of a trial as long as the two sides still differ in the
// same way, that is with the same statuses.
func (p *pair) shrink(tr trial, v verdict) (trial, verdict) {
	deadline := time.Now().Add(shrinkLimit)
	try := func(smaller trial) bool {
		if time.Now().After(deadline) {
			return false
		}
		found, err := p.replay(&smaller)
		if err != nil || !found.unexplained() || found.varve.status != v.varve.status || found.kairos.status != v.kairos.status {
			return false
		}
		tr, v = smaller, found
		return true
	}
	for again := true; again; {
		again = false
		for i := 0; i < len(tr.Deletes); i++ {
			smaller := tr
			smaller.Deletes = slices.Delete(slices.Clone(tr.Deletes), i, i+1)
			if try(smaller) {
				again, i = true, i-1
			}
		}
		again = dropSeries(&tr, try) || again
		again = dropParts(&tr, try) || again
		again = dropPoints(&tr, try) || again
	}
	return tr, v
}

func dropSeries(tr *trial, try func(trial) bool) bool {
	dropped := false
	series := map[string]bool{}
	for _, point := range tr.Points {
		series[point.series()] = true
	}
	for _, s := range slices.Sorted(mapKeys(series)) {
		smaller := *tr
		smaller.Points = slices.DeleteFunc(slices.Clone(tr.Points), func(p point) bool { return p.series() == s })
		if len(smaller.Points) > 0 && try(smaller) {
			dropped = true
		}
	}
	return dropped
}

// dropPoints removes halves, then quarters, down to single points.
func dropPoints(tr *trial, try func(trial) bool) bool {
	dropped := false
	for size := (len(tr.Points) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(tr.Points); {
			smaller := *tr
			smaller.Points = slices.Delete(slices.Clone(tr.Points), from, min(from+size, len(tr.Points)))
			if len(smaller.Points) > 0 && try(smaller) {
				dropped = true
			} else {
				from += size
			}
		}
	}
	return dropped
}

// dropParts removes members and elements of the question, the outer ones first.
func dropParts(tr *trial, try func(trial) bool) bool {
	dropped := false
	for i := 0; ; {
		body, ok := without(tr.Question.Body, i)
		if !ok {
			return dropped
		}
		smaller := *tr
		smaller.Question.Body = body
		if try(smaller) {
			dropped = true
		} else {
			i++
		}
	}
}

// without returns a copy of a JSON object without its i-th part, counted from
// outside to inside.
func without(body map[string]any, i int) (map[string]any, bool) {
	parts := partsOf(body)
	if i >= len(parts) {
		return nil, false
	}
	smaller, _ := copyWithout(body, "", parts[i]).(map[string]any)
	return smaller, true
}

// partsOf lists the paths of all parts.
func partsOf(v any) []string {
	var paths []string
	var walk func(v any, path string)
	walk = func(v any, path string) {
		if path != "" {
			paths = append(paths, path)
		}
		switch v := v.(type) {
		case map[string]any:
			for _, member := range slices.Sorted(mapKeys(v)) {
				walk(v[member], path+"\x00"+member)
			}
		case []any:
			for i := range v {
				walk(v[i], fmt.Sprintf("%s\x00%d", path, i))
			}
		}
	}
	walk(v, "")
	slices.SortStableFunc(paths, func(a, b string) int { return strings.Count(a, "\x00") - strings.Count(b, "\x00") })
	return paths
}

func copyWithout(v any, path, drop string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for member, value := range v {
			if at := path + "\x00" + member; at != drop {
				out[member] = copyWithout(value, at, drop)
			}
		}
		return out
	case []any:
		out := []any{}
		for i, value := range v {
			if at := fmt.Sprintf("%s\x00%d", path, i); at != drop {
				out = append(out, copyWithout(value, at, drop))
			}
		}
		return out
	default:
		return v
	}
}

package comparison

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
)

// An answer is KairosDB's answer to a query with one metric, or to one for its tags.
type answer struct {
	Queries []struct {
		Results []result `json:"results"`
	} `json:"queries"`
}

type result struct {
	GroupBy []struct {
		Name  string            `json:"name"`
		Type  string            `json:"type"`
		Group map[string]string `json:"group"`
	} `json:"group_by"`
	Tags   map[string][]string `json:"tags"`
	Values []point             `json:"values"`
}

// A point is a time and a value as JSON text.
type point struct {
	ms    int64
	value string
}

func (p *point) UnmarshalJSON(text []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	ms, err := strconv.ParseInt(string(bytes.TrimSpace(pair[0])), 10, 64)
	p.ms, p.value = ms, string(pair[1])
	return err
}

// groups returns the results that have values, by their id.
func (a *answer) groups() map[string]*result {
	groups := map[string]*result{}
	for i := range a.Queries {
		for k := range a.Queries[i].Results {
			r := &a.Queries[i].Results[k]
			if len(r.Values) == 0 {
				continue
			}
			id := r.id()
			if groups[id] != nil { // two results of one group: their points belong together
				groups[id].Values = append(groups[id].Values, r.Values...)
				continue
			}
			groups[id] = r
		}
	}
	return groups
}

// tags returns the tags of all results.
func (a *answer) tags() map[string][]string {
	all := map[string][]string{}
	for _, q := range a.Queries {
		for _, r := range q.Results {
			maps.Copy(all, r.Tags)
		}
	}
	return all
}

// id returns what identifies the group, as JSON: its tags and its type.
func (r *result) id() string {
	id := struct {
		Tags map[string]string `json:"tags,omitempty"`
		Type string            `json:"type,omitempty"`
	}{}
	for _, g := range r.GroupBy {
		switch g.Name {
		case "tag":
			id.Tags = g.Group
		case "type":
			id.Type = g.Type
		}
	}
	text, err := json.Marshal(id)
	if err != nil {
		panic(err) // texts always marshal
	}
	return string(text)
}

// A Pair is the values of both sides at a time, as JSON; null where there is no point.
type Pair struct {
	TimeMS int64           `json:"time"`
	A      json.RawMessage `json:"a"`
	B      json.RawMessage `json:"b"`
}

// maxPairs is the number of points of a group that are reported.
const maxPairs = 5

var null = json.RawMessage("null")

// compareValues counts the points that differ, and returns the first maxPairs of them.
// The order of points with the same time is ignored. Unless raw, values may differ by
// tolerance, relative to the largest value.
func compareValues(a, b []point, raw bool, tolerance float64) (differ int, pairs []Pair) {
	slack := 0.0
	if !raw {
		slack = tolerance * max(largest(a), largest(b))
	}
	inOrder := func(x, y point) int {
		return cmp.Or(cmp.Compare(x.ms, y.ms), cmp.Compare(magnitude(x.value), magnitude(y.value)), cmp.Compare(x.value, y.value))
	}
	slices.SortStableFunc(a, inOrder)
	slices.SortStableFunc(b, inOrder)
	report := func(ms int64, x, y json.RawMessage) {
		if differ++; len(pairs) < maxPairs {
			pairs = append(pairs, Pair{ms, x, y})
		}
	}
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].ms < b[0].ms:
			report(a[0].ms, json.RawMessage(a[0].value), null)
			a = a[1:]
		case len(a) == 0 || b[0].ms < a[0].ms:
			report(b[0].ms, null, json.RawMessage(b[0].value))
			b = b[1:]
		default:
			if !equal(a[0].value, b[0].value, raw, slack) {
				report(a[0].ms, json.RawMessage(a[0].value), json.RawMessage(b[0].value))
			}
			a, b = a[1:], b[1:]
		}
	}
	return differ, pairs
}

// rounding is the largest difference, relative to the largest value, between sums that
// were added up in different orders.
const rounding = 1e-9

// equal compares two values. Raw values, which are returned as stored, must have the same
// type and be exactly equal.
func equal(a, b string, raw bool, slack float64) bool {
	if a == b {
		return true
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX != nil || errY != nil {
		return errX != nil && errY != nil && sameText(a, b)
	}
	if raw {
		return x == y && whole(a) == whole(b) && !(whole(a) && math.Abs(x) >= 1<<53)
	}
	return x == y || math.Abs(x-y) <= slack
}

// whole reports whether a number is written without a fraction or exponent.
func whole(number string) bool { return !bytes.ContainsAny([]byte(number), ".eE") }

// sameText compares JSON values whose strings may be escaped differently.
func sameText(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	textX, _ := json.Marshal(x)
	textY, _ := json.Marshal(y)
	return bytes.Equal(textX, textY)
}

func largest(points []point) (most float64) {
	for _, p := range points {
		most = max(most, math.Abs(magnitude(p.value)))
	}
	return most
}

// magnitude parses a number. It returns 0 for anything else.
func magnitude(value string) float64 {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0
	}
	return v
}

// compareTags returns the tags and values that one side has and the other has not.
func compareTags(a, b map[string][]string) (onlyA, onlyB map[string][]string) {
	return without(a, b), without(b, a)
}

func without(a, b map[string][]string) map[string][]string {
	only := map[string][]string{}
	for name, values := range a {
		others := map[string]bool{}
		for _, v := range b[name] {
			others[v] = true
		}
		for _, v := range slices.Sorted(slices.Values(values)) {
			if !others[v] {
				only[name] = append(only[name], v)
			}
		}
	}
	return only
}

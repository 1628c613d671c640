package differential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// tolerance is that of the recorded cases, relative.
const tolerance = 1e-12

// An answer is the answer of one side.
type answer struct {
	status int
	body   any    // decoded JSON, numbers as json.Number; nil without a body
	text   string // the body as it came
}

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// A comparer finds the first difference of two decoded bodies.
type comparer struct {
	tolerance float64  // relative
	slack     float64  // absolute
	unordered []string // names of arrays that are sets
}

// compare describes the first difference, or returns an empty text. name is that
// of the nearest member.
func (c comparer) compare(path, name string, varve, kairos any) string {
	differ := func() string { return fmt.Sprintf("%s: Varve %v, KairosDB %v", path, brief(varve), brief(kairos)) }
	switch k := kairos.(type) {
	case json.Number:
		v, ok := varve.(json.Number)
		if !ok || !c.equalNumbers(string(v), string(k)) {
			return differ()
		}
	case map[string]any:
		v, ok := varve.(map[string]any)
		if !ok || len(v) != len(k) {
			return differ()
		}
		for member := range k {
			if _, ok := v[member]; !ok {
				return differ()
			}
			within := member
			if name == "tags" {
				within = "tags[]"
			}
			if d := c.compare(path+"."+member, within, v[member], k[member]); d != "" {
				return d
			}
		}
	case []any:
		v, ok := varve.([]any)
		if !ok {
			return differ()
		}
		if name == "tags[]" || slices.Contains(c.unordered, name) {
			v, k = sorted(v), sorted(k)
		}
		for i := range min(len(v), len(k)) {
			if d := c.compare(fmt.Sprintf("%s[%d]", path, i), name, v[i], k[i]); d != "" {
				return d
			}
		}
		if len(v) != len(k) {
			return fmt.Sprintf("%s: Varve has %d, KairosDB %d: %s and %s", path, len(v), len(k), brief(varve), brief(kairos))
		}
	default:
		if varve != kairos {
			return differ()
		}
	}
	return ""
}

func (c comparer) equalNumbers(varve, kairos string) bool {
	if varve == kairos {
		return true
	}
	if !strings.ContainsAny(varve+kairos, ".eE") && len(strings.TrimPrefix(kairos, "-")) > 15 {
		return false // long integers are compared exactly
	}
	v, err1 := strconv.ParseFloat(varve, 64)
	k, err2 := strconv.ParseFloat(kairos, 64)
	if err1 != nil || err2 != nil {
		return false
	}
	return v == k || math.Abs(v-k) <= max(c.slack, c.tolerance*math.Max(math.Abs(v), math.Abs(k)))
}

func brief(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(text) > 300 {
		return string(text[:300]) + "..."
	}
	return string(text)
}

func sorted(list []any) []any {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return list
}

// dropEmpty removes results without values from an answer.
func dropEmpty(body any) {
	for _, query := range queriesOf(body) {
		list, _ := query["results"].([]any)
		if list == nil {
			continue
		}
		query["results"] = slices.DeleteFunc(list, func(result any) bool {
			object, _ := result.(map[string]any)
			values, ok := object["values"].([]any)
			return ok && len(values) == 0
		})
	}
}

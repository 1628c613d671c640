package differential

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// question draws a question about a world.
func (g maker) question(w *world) question {
	switch {
	case g.chance(4):
		return namesOf(pick(g, stand, stand+".m1", stand+".x"))
	case g.chance(8):
		q := g.query(w)
		return question{Path: "datapoints/query/tags", Body: q}
	case g.chance(6):
		return question{Path: "datapoints/query", Body: g.spoil(g.query(w))}
	default:
		return question{Path: "datapoints/query", Body: g.query(w)}
	}
}

// delete draws a deletion.
func (g maker) delete(w *world) question {
	body := map[string]any{"metrics": []any{map[string]any{"name": pick(g, w.metrics...)}}}
	g.times(w, body)
	if g.chance(60) {
		body["metrics"].([]any)[0].(map[string]any)["tags"] = g.filter(w)
	}
	return question{Path: "datapoints/delete", Body: body}
}

func (g maker) query(w *world) map[string]any {
	q := map[string]any{}
	g.times(w, q)
	relative := q["start_relative"] != nil || q["end_relative"] != nil
	if g.chance(60) {
		q["time_zone"] = pick(g, w.zones...)
	}
	if g.chance(3) {
		q["cache_time"] = g.IntN(3)
	}
	metrics := []any{}
	for range pick(g, 1, 1, 1, 1, 2, 3) {
		metrics = append(metrics, g.metric(w, q, relative))
	}
	q["metrics"] = metrics
	if g.chance(3) && w.low >= 0 && q["end_absolute"] != nil && !anyMetric(question{Body: q}, endless) {
		q["start_absolute"], q["end_absolute"] = pick[int64](g, 0, 1, w.low), pick[int64](g, math.MaxInt64, math.MaxInt64-1)
	}
	return q
}

// endless reports whether a metric makes points as far as the question reaches, or
// writes any.
func endless(metric map[string]any) bool {
	return hasAggregator(metric, func(a map[string]any) bool { return a["name"] == "gaps" || a["name"] == "save_as" })
}

// times draws the range. Points of a world with a present are half a step away from the
// times of relative ranges.
func (g maker) times(w *world, q map[string]any) {
	if w.now != 0 && g.chance(70) {
		q["start_relative"] = map[string]any{"value": pick[any](g, 1, 2, 5, "7"), "unit": pick(g, "hours", "HOURS", "days", "weeks", "months", "years")}
		if g.chance(40) {
			q["end_relative"] = map[string]any{"value": pick(g, 10, 20, 30), "unit": "minutes"}
		}
		return
	}
	span := w.high - w.low + 1
	somewhere := func() int64 {
		switch g.IntN(4) {
		case 0:
			return w.points[g.IntN(len(w.points))].TimeMS
		case 1:
			return w.low - g.Int64N(span)/2
		default:
			return w.low + g.Int64N(span)
		}
	}
	start := pick(g, w.low, somewhere(), somewhere())
	end := pick(g, w.high, somewhere(), w.high+g.Int64N(span))
	if end < start {
		start, end = end, start
	}
	q["start_absolute"] = start
	if g.chance(88) {
		q["end_absolute"] = end
	}
}

func (g maker) metric(w *world, q map[string]any, relative bool) map[string]any {
	m := map[string]any{"name": pick(g, w.metrics...)}
	if g.chance(4) {
		m["name"] = stand + ".nothing"
	}
	if g.chance(35) {
		m["tags"] = g.filter(w)
	}
	if g.chance(10) {
		m["exclude_tags"] = pick[any](g, true, false, "true")
	}
	if g.chance(12) {
		m["limit"] = pick[any](g, 1, 2, 5, 20, "3", 0)
		if g.chance(5) {
			m["limit"] = -1
		}
	}
	if g.chance(30) {
		m["order"] = pick(g, "asc", "desc", "DESC", "desc")
	}
	if g.chance(5) {
		m["alias"] = "other"
	}
	if g.chance(45) {
		list := []any{}
		for range pick(g, 1, 1, 1, 2, 2, 3) {
			list = append(list, g.groupBy(w, relative))
		}
		m["group_by"] = list
	}
	if g.chance(75) {
		list := []any{}
		for range pick(g, 1, 1, 1, 1, 2, 2, 3) {
			list = append(list, g.aggregator(w, q, relative))
		}
		m["aggregators"] = list
	}
	// Rows before 1970 are not the subject here, and a null cannot be saved.
	_, absolute := q["start_absolute"]
	if g.chance(5) && absolute && w.low > 40*lengths["years"] && !hasAggregator(m, func(a map[string]any) bool { return a["name"] == "gaps" }) {
		list, _ := m["aggregators"].([]any)
		m["aggregators"] = append(list, g.saveAs(w))
	}
	return m
}

// saveAs draws a save_as to a metric of its own.
func (g maker) saveAs(w *world) map[string]any {
	a := map[string]any{"name": "save_as", "metric_name": fmt.Sprintf("%s.s%d", stand, g.IntN(1_000_000))}
	if g.chance(50) {
		a["tags"] = map[string]any{"by": pick(g, tagValues...)}
	}
	if g.chance(30) {
		a["add_saved_from"] = g.chance(50)
	}
	if a["tags"] == nil {
		delete(a, "add_saved_from") // a point needs a tag
	}
	return a
}

func (g maker) filter(w *world) map[string]any {
	filter := map[string]any{}
	for range pick(g, 1, 1, 2) {
		key := pick(g, sortedKeys(w.tags)...)
		if g.chance(5) {
			key = "absent"
		}
		values := append([]string{"absent"}, w.tags[key]...)
		regex := "regex:" + pick(g, ".*", "a.*", "[a-c]", ".", "(?i)A.*", "a|b", ".*[0-9]", "[^a]*", "", `\w+`, ".+ .+")
		switch g.IntN(6) {
		case 0:
			filter[key] = []any{pick(g, values...), pick(g, values...)}
		case 1:
			filter[key] = regex
		case 2:
			filter[key] = []any{regex, pick(g, values...)}
		case 3:
			filter[key] = pick[any](g, []any{}, []any{regex, "regex:b.*"}, pick(g, values...))
		default:
			filter[key] = pick(g, values...)
		}
	}
	return filter
}

var units = []string{"milliseconds", "seconds", "minutes", "hours", "days", "weeks", "months", "years"}

// lengths are approximate lengths of units.
var lengths = map[string]int64{
	"milliseconds": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000, "weeks": 7 * 86_400_000,
	"months": 30 * 86_400_000, "years": 365 * 86_400_000,
}

func (g maker) sampling(fine bool) map[string]any {
	unit := pick(g, units...)
	value := pick(g, 1, 1, 1, 2, 3, 5, 7, 10, 15, 30)
	if unit == "milliseconds" {
		value = pick(g, 1, 250, 1000, 2500, 60_000, 3_600_000)
	}
	if !fine && lengths[unit] < lengths["minutes"] {
		unit = pick(g, "minutes", "hours", "days")
	}
	if g.chance(20) {
		unit = strings.ToUpper(unit)
	}
	return map[string]any{"value": pick[any](g, value, value, value, fmt.Sprint(value)), "unit": unit}
}

var rangeAggregators = []string{"sum", "avg", "min", "max", "count", "first", "last", "dev", "percentile", "least_squares", "gaps"}

var otherAggregators = []string{"diff", "rate", "sampler", "scale", "div", "sma", "filter", "trim", "score"}

func (g maker) aggregator(w *world, q map[string]any, relative bool) map[string]any {
	name := pick(g, otherAggregators...)
	if g.chance(65) {
		name = pick(g, rangeAggregators...)
	}
	a := map[string]any{"name": name}
	if slices.Contains(rangeAggregators, name) {
		g.bucketing(w, q, a, relative)
	}
	switch name {
	case "dev":
		if g.chance(60) {
			a["return_type"] = pick(g, "value", "pos_sd", "neg_sd")
		}
		if g.chance(40) {
			a["dev_count"] = g.IntN(4)
		}
	case "percentile":
		a["percentile"] = pick[any](g, 0.5, 0.05, 0.95, 0.999, 1, "0.75", 0.333)
	case "gaps":
		g.widen(w, q, a)
		if g.chance(50) {
			a["trim"] = g.chance(60)
		}
	case "rate", "sampler":
		if name == "rate" && g.chance(60) {
			a["sampling"] = g.sampling(true)
		} else if g.chance(80) {
			a["unit"] = pick(g, units...)
		}
		if g.chance(30) {
			a["time_zone"] = pick(g, w.zones...)
		}
	case "scale":
		if g.chance(90) {
			a["factor"] = pick[any](g, 2, 0.5, -1, "1.5", 1e-3, 0)
		}
	case "div":
		a["divisor"] = pick[any](g, 2, 0.25, -3, "10")
	case "sma":
		a["size"] = pick[any](g, 1, 2, 3, 10, "4")
	case "filter":
		a["filter_op"] = pick(g, "lt", "lte", "gt", "gte", "equal", "ne", "GT")
		if g.chance(85) {
			a["threshold"] = pick[any](g, 0, 5, -3, 2.5, "up", "13", true)
		}
	case "trim":
		if g.chance(85) {
			a["trim"] = pick(g, "first", "last", "both", "FIRST")
		}
	case "score":
		list := []any{}
		for range 1 + g.IntN(3) {
			threshold := map[string]any{"value": pick[any](g, 0, 5, -3, 2.5, 1e6)}
			if g.chance(50) {
				threshold["boundary"] = pick(g, "superior", "inferior")
			}
			list = append(list, threshold)
		}
		a["thresholds"] = list
		if g.chance(50) {
			a["order"] = pick(g, "ascending", "descending")
		}
	}
	return a
}

// bucketing draws the common properties of range aggregators. If the question's start
// differs by milliseconds between the two sides, only buckets that start at a full
// second or more are comparable.
func (g maker) bucketing(w *world, q, a map[string]any, relative bool) {
	if g.chance(95) || relative {
		a["sampling"] = g.sampling(!relative)
	}
	if !relative && g.chance(40) {
		a["align_sampling"] = pick[any](g, true, false, false, "false")
	}
	if g.chance(30) {
		a["align_start_time"] = g.chance(70)
	}
	if g.chance(25) {
		a["align_end_time"] = g.chance(70)
	}
	if g.chance(15) {
		a["time_zone"] = pick(g, w.zones...)
	}
	if start, ok := q["start_absolute"].(int64); ok && g.chance(8) {
		a["start_time"] = start - g.Int64N(w.high-w.low+1)
	}
	if g.chance(4) {
		a["trim"] = g.chance(50)
	}
}

// widen makes the buckets of gaps so long that there are not too many.
func (g maker) widen(w *world, q, a map[string]any) {
	if q["start_absolute"] != nil && q["end_absolute"] == nil {
		q["end_absolute"] = w.high // not to the present
	}
	end, ok := q["end_absolute"].(int64)
	if !ok {
		end = 1_800_000_000_000
	}
	start, ok := q["start_absolute"].(int64)
	if !ok {
		start = end - 10*lengths["years"]
	}
	if from, ok := a["start_time"].(int64); ok {
		start = min(start, from)
	}
	for _, unit := range units[2:] {
		if (end-start)/lengths[unit] < 300 {
			a["sampling"] = map[string]any{"value": pick(g, 1, 1, 2, 3), "unit": unit}
			return
		}
	}
	a["sampling"] = map[string]any{"value": 1, "unit": "years"}
}

func (g maker) groupBy(w *world, relative bool) map[string]any {
	name := pick(g, "tag", "tag", "tag", "time", "value", "bin")
	if relative && name == "time" {
		name = "tag" // groups of time are counted from the question's start
	}
	switch name {
	case "tag":
		tags := []any{}
		for range pick(g, 1, 1, 2) {
			tags = append(tags, pick(g, append(sortedKeys(w.tags), "absent")...))
		}
		return map[string]any{"name": "tag", "tags": tags}
	case "time":
		return map[string]any{"name": "time", "group_count": pick[any](g, 1, 2, 7, 24, "3"),
			"range_size": map[string]any{"value": pick[any](g, 1, 1, 2, 6, "3"), "unit": pick(g, units...)}}
	case "value":
		return map[string]any{"name": "value", "range_size": pick[any](g, 1, 5, 100, "10")}
	default:
		return map[string]any{"name": "bin", "bins": pick(g, []any{0, 5}, []any{-3, 2.5, 10}, []any{"1", 7}, []any{10, 5}, []any{0})}
	}
}

package differential

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// A deviation is a deliberate difference. docs/compatibility.md lists them all; a
// deviation recognizes one.
type deviation struct {
	name    string
	reason  string
	page    string // words by which docs/compatibility.md tells of it
	matches func(tr *trial, varve, kairos answer) bool
}

func TestDeviationsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(slices.Clone(deviations), ofTagIndex) {
		if !strings.Contains(string(page), d.page) {
			t.Errorf("docs/compatibility.md does not say %q, of %s: %s", d.page, d.name, d.reason)
		}
	}
}

// TestLostDigits has an observed case: KairosDB's line through rates of 15 weeks,
// between points of some milliseconds.
func TestLostDigits(t *testing.T) {
	for _, c := range []struct {
		aggregators, varve, kairos string
		want                       bool
	}{
		{"rate least_squares", "9251941623500.686", "9251938369536.0", true},
		{"rate least_squares", "9251941623500.686", "9051938369536.0", false},
		{"rate sum", "9251941623500.686", "9251938369536.0", false},
		{"least_squares rate", "9251941623500.686", "1.0", true},
	} {
		list := []any{}
		for _, name := range strings.Fields(c.aggregators) {
			list = append(list, map[string]any{"name": name})
		}
		tr := &trial{
			Points:   []point{{Metric: "m", Type: "long", TimeMS: 1325264654907, Value: 618378}},
			Question: question{Path: "datapoints/query", Body: map[string]any{"metrics": []any{map[string]any{"name": "m", "aggregators": list}}}},
		}
		if got := lostDigits(tr, said(t, c.varve), said(t, c.kairos)); got != c.want {
			t.Errorf("%s, %s and %s: listed %t, want %t", c.aggregators, c.varve, c.kairos, got, c.want)
		}
	}
}

// TestSumOrder has an observed case: a sum of the largest doubles, which cancel out.
func TestSumOrder(t *testing.T) {
	points := []point{{Metric: "m", Value: math.MaxFloat64}, {Metric: "m", Value: 2e300}, {Metric: "m", Value: -math.MaxFloat64}, {Metric: "other", Value: 1}}
	for _, c := range []struct {
		metric, aggregator, varve, other string
		want                             bool
	}{
		{"m", "sum", "2.000000019953926E300", "1.999999999991046E300", true},
		{"m", "avg", "2.000000019953926E300", "1.999999999991046E300", true},
		{"m", "max", "2.000000019953926E300", "1.999999999991046E300", false},
		{"m", "sum", "2.000000019953926E300", "2.1E300", false}, // one unit of the largest in the last place is 2E292
		{"other", "sum", "1", "1.00000000001", false},
	} {
		tr := &trial{Points: points, Question: question{Path: "datapoints/query", Body: map[string]any{"metrics": []any{
			map[string]any{"name": c.metric, "aggregators": []any{map[string]any{"name": c.aggregator}}},
		}}}}
		if got := sumOrder(tr, said(t, c.varve), said(t, c.other)); got != c.want {
			t.Errorf("%s of %s, %s and %s: listed %t, want %t", c.aggregator, c.metric, c.varve, c.other, got, c.want)
		}
	}
}

// said is an answer of one value.
func said(t *testing.T, v string) answer {
	t.Helper()
	text := `{"queries": [{"results": [{"name": "m", "values": [[1325264654907, ` + v + `]]}]}]}`
	body, err := decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: 200, body: body, text: text}
}

// deviations are tried in order; the first one that matches explains a difference.
var deviations = []deviation{
	{
		"client-fault", "what is the client's fault is answered 400, not 500",
		"a limit or a member of the wrong type: 500",
		func(_ *trial, varve, kairos answer) bool { return varve.status == 400 && kairos.status == 500 },
	},
	{
		"limits", "a question that needs too much is refused by the name of the limit",
		"only the time of a query is limited",
		func(_ *trial, varve, _ answer) bool {
			return varve.status == 400 && strings.Contains(varve.text, "limit query.")
		},
	},
	{
		"no-bins", "bins, or a size, that are not given are a fault where there are points; KairosDB notices when it meets a number",
		"empty `bins`",
		func(_ *trial, varve, kairos answer) bool {
			return varve.status == 400 && kairos.status == 200 &&
				(strings.Contains(varve.text, "bins may not be empty") || strings.Contains(varve.text, "size must be greater than or equal to 1"))
		},
	},
	{
		"hint-after-text", "KairosDB's text goes on with where the fault is and what belongs there",
		"the same texts, with the path in the header",
		func(_ *trial, varve, kairos answer) bool {
			return varve.status == 400 && kairos.status == 400 && strings.HasPrefix(varve.text, strings.TrimSuffix(strings.TrimSpace(kairos.text), `"]}`))
		},
	},
	{
		"text-of-500", "the text of a fault that is answered 500 is our own",
		"of a Java exception, of a 500",
		func(_ *trial, varve, kairos answer) bool { return varve.status == 500 && kairos.status == 500 },
	},
	{
		"names-after-delete", "names and tags go with the last sample; in KairosDB on Cassandra they stay when a row is deleted in part",
		"a delete of part of a row leaves names and tags",
		func(tr *trial, varve, kairos answer) bool {
			return len(tr.Deletes) > 0 && tr.Question.Path != "datapoints/query" && varve.status == 200 && kairos.status == 200
		},
	},
	{
		"zone-list", "the zones in the text about an unknown one are those of newer zone data",
		"zone data of 2020",
		func(_ *trial, varve, kairos answer) bool {
			before, _, long := strings.Cut(varve.text, "must be one of [")
			return long && varve.status == 400 && kairos.status == 400 && strings.HasPrefix(kairos.text, before)
		},
	},
	{
		"zone-rules", "a bucket of years may end after 2020, when some zones got other rules",
		"zone data of 2020",
		func(tr *trial, varve, kairos answer) bool {
			text := encode(tr.Question.Body)
			return varve.status == kairos.status && strings.Contains(strings.ToLower(text), `"unit":"years"`) &&
				slices.ContainsFunc(oldZones, func(zone string) bool { return strings.Contains(text, zone) })
		},
	},
	{
		"before-1970", "every point is found; KairosDB on Cassandra counts rows before 1970 from both ends and misses some",
		"points before 1970: on Cassandra some are not found",
		func(tr *trial, varve, kairos answer) bool {
			refused := varve.status == 500 && kairos.status == 200 // for points that KairosDB has not seen
			return (varve.status == kairos.status || refused) && missedBefore1970(tr)
		},
	},
	{
		"fit-of-one-time", "least_squares of points of one time only is their mean; KairosDB divides by zero, and another aggregator makes 0 of that",
		"`least_squares` of three or more points of one time: 500",
		func(tr *trial, varve, kairos answer) bool {
			failed := kairos.status == 500 && strings.Contains(kairos.text, "NaN or Infinity:NaN")
			return varve.status == 200 && anyMetric(tr.Question, func(m map[string]any) bool {
				fits, goesOn := fit(m)
				return fits && (failed || goesOn && kairos.status == 200 && meet(m["name"], tr.Points, 3))
			})
		},
	},
	{
		"saved-ties", "of points that save_as writes to one series and time the last stays; in KairosDB on Cassandra it depends",
		"save_as: of merged points of one time",
		func(tr *trial, varve, kairos answer) bool {
			return savedBy(tr.Question) != nil && varve.status == kairos.status && timesMeet(varve)
		},
	},
	{
		"mean-of-nothing", "avg of nulls only is refused; KairosDB makes NaN of it, and fails if that is to be shown",
		"`avg` of nulls only",
		func(tr *trial, varve, kairos answer) bool {
			return varve.status == 500 && kairos.status == 200 && strings.Contains(varve.text, "a point without a value") &&
				anyMetric(tr.Question, func(m map[string]any) bool {
					return hasAggregator(m, func(a map[string]any) bool { return a["name"] == "avg" })
				})
		},
	},
	{
		"partial-sums", "a sum, mean or deviation that fits a double is given, although the sum of some of the values does not; KairosDB fails with 500",
		"of values whose partial sums or differences do not fit a double: 500",
		func(tr *trial, varve, kairos answer) bool {
			return varve.status == 200 && kairos.status == 500 && strings.Contains(kairos.text, "NaN or Infinity:") &&
				anyMetric(tr.Question, func(m map[string]any) bool {
					return hasAggregator(m, func(a map[string]any) bool { return a["name"] == "sum" || a["name"] == "avg" || a["name"] == "dev" })
				})
		},
	},
	{
		"swallowed-infinity", "a sum or mean that fits a double is given, although the sum of some of the values does not; KairosDB's min takes the largest double for it",
		"500, and the largest double if `min` follows",
		func(tr *trial, varve, kairos answer) bool {
			return varve.status == 200 && kairos.status == 200 && strings.Contains(kairos.text, "1.7976931348623157E308") &&
				anyMetric(tr.Question, func(m map[string]any) bool {
					has := func(name string) bool {
						return hasAggregator(m, func(a map[string]any) bool { return a["name"] == name })
					}
					return has("min") && (has("sum") || has("avg"))
				})
		},
	},
	{
		"deviation-overflows", "a deviation that does not fit a double is refused, as a sum is, and one that fits is given; KairosDB says 0",
		"`dev` of values whose squares do not fit a double",
		func(tr *trial, varve, kairos answer) bool {
			return varve.status == 500 && kairos.status == 200 && strings.Contains(varve.text, "NaN or Infinity") &&
				anyMetric(tr.Question, func(m map[string]any) bool {
					return hasAggregator(m, func(a map[string]any) bool { return a["name"] == "dev" })
				})
		},
	},
	{
		"strict-delete", "a delete is read more strictly than a query",
		"a delete is as lenient as a query",
		func(tr *trial, varve, kairos answer) bool {
			return tr.Question.Path == "datapoints/delete" && varve.status == 400 && kairos.status == 204
		},
	},
	{
		"negative-limit", "a negative limit is none; KairosDB fails with 500 on Cassandra",
		"negative `limit`: 500 on Cassandra",
		func(tr *trial, varve, kairos answer) bool {
			return varve.status == 200 && kairos.status == 500 && (strings.Contains(kairos.text, "LIMIT must be strictly positive") ||
				strings.Contains(kairos.text, "Task was cancelled") && anyMetric(tr.Question, func(m map[string]any) bool { return encode(m["limit"]) == "-1" }))
		},
	},
	{
		"skipped-midnight", "a bucket may begin at a midnight that daylight saving skips; KairosDB fails with 500",
		"a bucket that begins at a midnight that daylight saving skips",
		func(_ *trial, varve, kairos answer) bool {
			return varve.status == 200 && kairos.status == 500 && strings.Contains(kairos.text, "Illegal instant due to time zone offset transition")
		},
	},
	{
		"two-regexes", "all regular expressions of a tag work; KairosDB keeps one of them on Cassandra",
		"regular expressions: on Cassandra one per tag works",
		func(tr *trial, varve, kairos answer) bool {
			return anyMetric(tr.Question, func(m map[string]any) bool {
				tags, _ := m["tags"].(map[string]any)
				for _, values := range tags {
					if regexes(values) > 1 {
						return true
					}
				}
				return false
			})
		},
	},
	{
		"limit-per-row", "a limit is per series; KairosDB applies it to each row of three weeks on Cassandra",
		"`limit` on Cassandra: per series and row of three weeks",
		func(tr *trial, varve, kairos answer) bool {
			return varve.status == kairos.status && severalRows(tr) && anyMetric(tr.Question, limits)
		},
	},
	{
		"limit-desc-range", "samples are chosen newest first and then aggregated ascending; KairosDB lets the newest bucket swallow all",
		"`desc` with a range aggregator",
		func(tr *trial, varve, kairos answer) bool {
			return varve.status == kairos.status && anyMetric(tr.Question, func(m map[string]any) bool {
				return descends(m) && hasRange(m) && limits(m)
			})
		},
	},
	{
		"gaps-trim", "gaps trims the start of every group; KairosDB that of the first only",
		"`gaps` with `trim`",
		func(tr *trial, varve, kairos answer) bool {
			return (severalResults(kairos) || kairos.status == 500) && anyMetric(tr.Question, func(m map[string]any) bool {
				return hasAggregator(m, func(a map[string]any) bool { return a["name"] == "gaps" && a["trim"] == true })
			})
		},
	},
	{
		"colliding-groups", "groups whose tag values joined are the same text are two; KairosDB merges them",
		"groups whose tag values joined are the same text are merged",
		func(tr *trial, varve, kairos answer) bool {
			return varve.status == kairos.status && collide(tr)
		},
	},
	{
		"sum-order", "sum and avg add up in another order; the last bits of the largest partial sum may differ",
		"in another order; the result may differ by the last bits of the largest partial sum",
		sumOrder,
	},
	{
		"lost-digits", "dev, least_squares and sma are computed so that no digits are lost; KairosDB loses many on large values and times",
		"`dev` loses all digits",
		func(tr *trial, varve, kairos answer) bool { return lostDigits(tr, varve, kairos) },
	},
}

// ofTagIndex is a deviation of a KairosDB that has an index of tags.
var ofTagIndex = deviation{
	"regex-beside-literal", "all regular expressions of a tag work; KairosDB's index of tags looks for the plain values beside them only",
	"its tag index ignores it beside plain values",
	func(tr *trial, _, _ answer) bool { return anyMetric(tr.Question, mixesRegex) },
}

// listed returns the name of the deviation that explains a difference; those in but are
// skipped.
func listed(tr *trial, varve, kairos answer, but ...string) string {
	for _, d := range deviations {
		if !slices.Contains(but, d.name) && d.matches(tr, varve, kairos) {
			return d.name
		}
	}
	return ""
}

// rewrite returns what to ask the original so that its answer means the same,
// and what to do to the answers then:
//
//   - Range aggregators over a descending stream are asked for ascending, and the
//     values turned round.
//   - An alias is in Varve's answers only.
func rewrite(q question) (theirs question, undo func(varve, kairos *answer)) {
	if q.Path != "datapoints/query" || q.Body == nil {
		return q, func(*answer, *answer) {}
	}
	turned := map[int]bool{}
	body := copyWithout(q.Body, "", "-").(map[string]any)
	metrics, _ := body["metrics"].([]any)
	for i, m := range metrics {
		m, _ := m.(map[string]any)
		if descends(m) && hasRange(m) && !limits(m) {
			turned[i] = true
			m["order"] = "asc"
		}
	}
	return question{Path: q.Path, Body: body}, func(varve, kairos *answer) {
		each(varve.body, func(_ int, r map[string]any) { delete(r, "alias") })
		each(kairos.body, func(i int, r map[string]any) {
			if values, ok := r["values"].([]any); ok && turned[i] {
				slices.Reverse(values)
			}
		})
		// Groups of buckets stand in the order in which they were met.
		for i := range turned {
			sortResults(varve.body, i)
			sortResults(kairos.body, i)
		}
	}
}

// each calls f for every result of an answer, with the index of its query.
func each(body any, f func(query int, result map[string]any)) {
	for i, q := range queriesOf(body) {
		list, _ := q["results"].([]any)
		for _, r := range list {
			if r, ok := r.(map[string]any); ok {
				f(i, r)
			}
		}
	}
}

func queriesOf(body any) []map[string]any {
	object, _ := body.(map[string]any)
	list, _ := object["queries"].([]any)
	queries := make([]map[string]any, len(list))
	for i, q := range list {
		queries[i], _ = q.(map[string]any)
	}
	return queries
}

func sortResults(body any, query int) {
	if queries := queriesOf(body); query < len(queries) {
		if list, ok := queries[query]["results"].([]any); ok {
			slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(groupText(a), groupText(b)) })
		}
	}
}

func groupText(result any) string {
	r, _ := result.(map[string]any)
	return encode(r["group_by"])
}

// fit reports whether a line is fitted, and whether another aggregator processes the
// line.
func fit(metric map[string]any) (fits, goesOn bool) {
	hasAggregator(metric, func(a map[string]any) bool {
		goesOn = fits
		fits = fits || a["name"] == "least_squares"
		return false
	})
	return fits, goesOn
}

// meet reports whether at least so many series of a metric have points of the same
// time.
func meet(metric any, points []point, atLeast int) bool {
	at := map[int64]int{}
	for _, p := range points {
		if p.Metric == metric && p.Round == 0 {
			at[p.TimeMS]++
		}
		if at[p.TimeMS] == atLeast {
			return true
		}
	}
	return false
}

// timesMeet reports whether an answer has two points of one time.
func timesMeet(a answer) bool {
	seen, meet := map[string]bool{}, false
	each(a.body, func(_ int, r map[string]any) {
		values, _ := r["values"].([]any)
		for _, v := range values {
			if pair, ok := v.([]any); ok && len(pair) == 2 {
				ms := encode(pair[0])
				meet = meet || seen[ms]
				seen[ms] = true
			}
		}
	})
	return meet
}

func severalResults(a answer) bool {
	n := 0
	each(a.body, func(int, map[string]any) { n++ })
	return n > 1
}

func anyMetric(q question, f func(map[string]any) bool) bool {
	list, _ := q.Body["metrics"].([]any)
	return slices.ContainsFunc(list, func(m any) bool {
		metric, _ := m.(map[string]any)
		return f(metric)
	})
}

func hasAggregator(metric map[string]any, f func(map[string]any) bool) bool {
	list, _ := metric["aggregators"].([]any)
	return slices.ContainsFunc(list, func(a any) bool {
		aggregator, _ := a.(map[string]any)
		return f(aggregator)
	})
}

func hasRange(metric map[string]any) bool {
	return hasAggregator(metric, func(a map[string]any) bool {
		name, _ := a["name"].(string)
		return slices.Contains(rangeAggregators, name)
	})
}

func descends(metric map[string]any) bool {
	order, _ := metric["order"].(string)
	return strings.EqualFold(order, "desc")
}

func limits(metric map[string]any) bool {
	limit, ok := metric["limit"]
	return ok && encode(limit) != "0"
}

func regexes(values any) int {
	n := 0
	list, _ := values.([]any)
	for _, v := range list {
		if text, _ := v.(string); strings.HasPrefix(text, "regex:") {
			n++
		}
	}
	return n
}

// rowMS is the width of KairosDB's rows.
const rowMS = 1_814_400_000

func severalRows(tr *trial) bool {
	rows := map[int64]bool{}
	for _, p := range tr.Points {
		rows[rowOf(p.TimeMS)] = true
	}
	return len(rows) > 1
}

// rowOf is the row in which KairosDB looks for a time. Before 1970 the remainder
// is subtracted although it is negative.
func rowOf(ms int64) int64 {
	rest := ms % rowMS
	return ms - max(rest, -rest)
}

// missedBefore1970 reports whether a point in the range of a question or a delete lies
// in a row that KairosDB does not read. A question for tags depends on rows alone.
func missedBefore1970(tr *trial) bool {
	for _, q := range append(slices.Clone(tr.Deletes), tr.Question) {
		start, ok := q.Body["start_absolute"].(int64)
		if !ok {
			continue
		}
		for _, p := range tr.Points {
			if p.TimeMS < 0 && q.Path == "datapoints/query/tags" {
				return true
			}
			if p.TimeMS < 0 && p.TimeMS >= start && rowOf(p.TimeMS) < rowOf(start) {
				return true
			}
		}
	}
	return false
}

// collide reports whether two series differ in their group-by tags, but not in the text
// that KairosDB makes of them.
func collide(tr *trial) bool {
	return anyMetric(tr.Question, func(m map[string]any) bool {
		groups, _ := m["group_by"].([]any)
		for _, group := range groups {
			group, _ := group.(map[string]any)
			tags, ok := group["tags"].([]any)
			if !ok {
				continue
			}
			values := map[string]string{}
			for _, p := range tr.Points {
				text, exact := "", []string{}
				for _, tag := range tags {
					tag, _ := tag.(string)
					text += tag + p.Tags[tag]
					exact = append(exact, p.Tags[tag])
				}
				if known, ok := values[text]; ok && known != encode(exact) {
					return true
				}
				values[text] = encode(exact)
			}
			return false // only the first counts
		}
		return false
	})
}

// lostDigits reports whether answers differ only by the digits that the original's
// computation loses.
func lostDigits(tr *trial, varve, kairos answer) bool {
	return within(tr, varve, kairos, func(i int, metric map[string]any) float64 {
		loss := lossOf(metric, tr.Points)
		if math.IsInf(loss, 1) {
			return loss
		}
		return loss * max(largest(varve.body, i), largest(kairos.body, i), largestOf(tr.Points))
	})
}

// sumOrder reports whether answers differ only as sums do whose values are added in
// another order. If large values cancel out, that is more than the last digits.
func sumOrder(tr *trial, varve, other answer) bool {
	return within(tr, varve, other, func(_ int, metric map[string]any) float64 {
		if !hasAggregator(metric, func(a map[string]any) bool { return a["name"] == "sum" || a["name"] == "avg" }) {
			return 0
		}
		return orderLoss(metric["name"], tr.Points)
	})
}

// orderLoss bounds the error of a sum of a metric's points, in whatever order they are
// added: each addition rounds a partial sum to 53 bits.
func orderLoss(metric any, points []point) float64 {
	const half = 0x1p-53
	n, loss := 0.0, 0.0
	for _, p := range points {
		if p.Metric == metric {
			n++
			loss += half * magnitude(p.Value)
		}
	}
	return n * loss
}

// within reports whether the numbers of all answers differ by at most slackOf of the
// metric; infinity allows anything.
func within(tr *trial, varve, kairos answer, slackOf func(i int, metric map[string]any) float64) bool {
	if varve.status != 200 || kairos.status != 200 {
		return false
	}
	mine, theirs := queriesOf(varve.body), queriesOf(kairos.body)
	metrics, _ := tr.Question.Body["metrics"].([]any)
	if len(mine) != len(metrics) || len(theirs) != len(metrics) {
		return false
	}
	for i, m := range metrics {
		metric, _ := m.(map[string]any)
		slack := slackOf(i, metric)
		if math.IsInf(slack, 1) {
			continue
		}
		if (comparer{tolerance: tolerance, slack: slack, unordered: []string{"results"}}).compare("", "", mine[i], theirs[i]) != "" {
			return false
		}
	}
	return true
}

// lossOf bounds the error of the original's numbers, relative to the largest number.
func lossOf(metric map[string]any, points []point) float64 {
	lossy, enlarged := false, false
	hasAggregator(metric, func(a map[string]any) bool {
		switch a["name"] {
		case "dev", "least_squares", "sma":
			lossy = true
		case "rate", "sampler", "filter", "score", "percentile", "diff", "scale", "div":
			enlarged = enlarged || lossy // these make any difference large
		}
		return false
	})
	if !lossy {
		return 0
	}
	if enlarged || largestOf(points) > squareFits {
		return math.Inf(1)
	}
	loss := 1e-6
	for _, p := range points {
		loss = max(loss, 1e-15*math.Abs(float64(p.TimeMS))) // a line is followed from the year 1970 up to now
	}
	return loss
}

// squareFits is about the largest number whose square fits a double. Beyond it
// KairosDB's dev is 0.
const squareFits = 1e154

func largestOf(points []point) float64 {
	n := 0.0
	for _, p := range points {
		n = max(n, magnitude(p.Value))
	}
	return n
}

// largest is the largest number of an answer. The rates of points may be much larger
// than the points.
func largest(body any, query int) float64 {
	n := 0.0
	each(body, func(i int, r map[string]any) {
		values, _ := r["values"].([]any)
		for _, v := range values {
			if pair, ok := v.([]any); ok && len(pair) == 2 && i == query {
				n = max(n, magnitude(pair[1]))
			}
		}
	})
	return n
}

// magnitude is the absolute size of a value, 0 if it is not a number.
func magnitude(value any) float64 {
	v, err := json.Number(encode(value)).Float64()
	if err != nil {
		return 0
	}
	return math.Abs(v)
}

package graphite

import (
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"varve/internal/graphite/graphitetest"
)

// unasked says why a question is not asked, "" if it is.
func unasked(q *question) string {
	target := strings.Join(slices.Concat(q.form["target"], q.form["target[]"]), " ")
	switch {
	case namesOnly.MatchString(target):
		return "arguments by name only"
	case noDelay.MatchString(target):
		return "delay by no step"
	case strings.Contains(target, "|") && fetchesAgain.MatchString(target):
		return "a function that fetches again, after a pipe"
	}
	return ""
}

var (
	noDelay      = regexp.MustCompile(`delay\(.*,\s*(steps\s*=\s*)?["']?[-+]?[0.]+([eE]-?\d+)?\.?["']?\s*\)`)
	namesOnly    = regexp.MustCompile(`\(\s*\w+\s*=`)
	fetchesAgain = regexp.MustCompile(`(moving|exponentialM|timeS|holtWinters|smartS|hitcount|integralByI|applyByNode|useSeriesAbove|linearR|stdev|delay|template|summarize)`)
)

// many are queries that find nodes with the same name at several places.
var many = regexp.MustCompile(`[*?\[{].*\.|\*\*`)

// prepare removes from graphite-web's answer what cannot be compared.
func prepare(q *question, c *graphitetest.Case) {
	if strings.HasPrefix(q.path, "/metrics/find") {
		c.Ignore = []string{"intervals"}
		switch q.form.Get("format") {
		case "pickle", "msgpack", "completer":
			c.Order = "any" // of nodes with the same name
		case "treejson", "":
			if many.MatchString(q.form.Get("query")) { // of nodes with the same name, graphite-web returns any
				c.Order, c.Ignore = "any", []string{"allowChildren", "expandable", "leaf"}
			}
		}
	}
	if q.path == "/metrics/index.json" {
		c.Response = slices.DeleteFunc(c.Response.([]any), func(path any) bool { return strings.HasPrefix(path.(string), "_tagged.") })
	}
	if strings.HasPrefix(q.path, "/tags") || strings.HasPrefix(q.path, "/events") {
		c.Ignore = []string{"id"}
	}
	if q.path == "/render" {
		c.Response = withoutNaN(c.Response)
	}
	graphitetest.Drop(c.Response, c.Ignore)
	if strings.HasPrefix(q.path, "/metrics") {
		c.Response = withoutHashes(c.Response)
	}
}

// makers are functions that generate series, whose first argument is a text or a number.
// If the argument is a series that does not exist, graphite-web names the result "[]".
const makers = `(identity|time|timeFunction|sin|sinFunction|constantLine|threshold)`

// withoutNaN replaces NaN by null, as Varve does: see docs/graphite-functions.md.
func withoutNaN(v any) any {
	switch x := v.(type) {
	case string: // raw and csv
		return strings.ReplaceAll(nanInRaw.ReplaceAllString(x, "${1}None"), ",nan\r\n", ",\r\n")
	case float64:
		if math.IsNaN(x) {
			return nil
		}
	case map[string]any:
		for k, one := range x {
			if _, text := one.(string); !text {
				x[k] = withoutNaN(one)
			}
		}
	case []any:
		for i, one := range x {
			if _, text := one.(string); !text {
				x[i] = withoutNaN(one)
			}
		}
	}
	return v
}

var nanInRaw = regexp.MustCompile(`([|,])nan\b`)

// A known is a difference that docs/graphite.md, docs/graphite-functions.md or this file
// explains.
type known struct {
	path     string         // of the requests, or the beginning of it
	question *regexp.Regexp // of their form
	fault    *regexp.Regexp // of what differs; any if nil
	why      string
}

var differences = []known{
	{"/render", regexp.MustCompile(`.`), regexp.MustCompile(`^status 400: (Invalid parameters \()?target.* at byte `), "what follows a part of a target that can be read is ignored"},
	{"/render", regexp.MustCompile(`.`), regexp.MustCompile(`^status 400: Invalid parameters \(the (parameter "\w+"|first argument) must be`), "arguments of the wrong type"},
	{"/render", regexp.MustCompile(`.`), regexp.MustCompile(`^status 400: .*(unsupported aggregation function|the regular expression .* cannot be used|a replacement refers to the group|the place of a character)`), "an argument is wrong, but there are no series"},
	{"/render", regexp.MustCompile(`stdev\(`), regexp.MustCompile(`^status 400: .*points must be positive`), "arguments of the wrong type"},
	{"/render", regexp.MustCompile(`alias\(`), regexp.MustCompile(`target: got "[-0-9.]+"; want "[-0-9.]+"$`), "a number as a name"},
	{"/render", regexp.MustCompile(`(^|[^"'])\|\s*` + makers + `\(|` + makers + `\(\s*[^"'0-9\s-]`), regexp.MustCompile(`got \d+ elements, want \d+:|^status 200: `), "arguments of the wrong type"},
	{"/render", regexp.MustCompile(`(?i)nan`), regexp.MustCompile(`got "None"; want "nan"`), "NaN is null"},
	{"/render", regexp.MustCompile(`SeriesLists\([^,]*,\s*["']`), regexp.MustCompile(`^status 200: \[\]; want 400`), "an argument is wrong, but there are no series"},
	{"/render", regexp.MustCompile(`template\(.*` + fetchesAgain.String()), regexp.MustCompile(`got \d+ elements, want \d+:`), "the variables of a template hold in what is fetched again"},
	{"/render", regexp.MustCompile(`odd\.a\\\\b`), nil, "graphite-web removes backslashes"},
	{"/render", regexp.MustCompile(`zürich|日本`), nil, "letters outside of ASCII in a path"},
	{"/render", regexp.MustCompile(`seriesByTag\([^)]*name=~?srv`), nil, "series without tags have the tag name"},
	{"/metrics", regexp.MustCompile(`query=[^&]*;`), nil, "the tree of paths does not contain series with tags"},
	{"/metrics", regexp.MustCompile(`query=([^&]*[.,{])?([.,}]|&|$)`), nil, "graphite-web lists nodes without a name as directories of its files"},
	{"/metrics", regexp.MustCompile(`query=[^&]*\\`), nil, "graphite-web removes backslashes"},
	{"/metrics", regexp.MustCompile(`query=(\*\*\.|.*&query=\*\*\.)`), nil, "** as the first node"},
	{"/metrics", regexp.MustCompile(`.`), regexp.MustCompile(`text: got "a(%20|\+)b"; want "a b"`), "graphite-web decodes names as if they were part of an address"},
	{"/events", regexp.MustCompile(`set=intersection&tags=( |[^&]* ( |&|$))`), regexp.MustCompile(`want 0:`), "an empty tag, which no event has"},
	{"/tags", regexp.MustCompile(`limit=(-1|x)?(&|$)`), nil, "limits that are no number"},
	{"/tags", regexp.MustCompile(`filter=\(`), nil, "a filter that is no regular expression"},
}

// excuse returns why two answers may differ, "" if they may not.
func excuse(q *question, want, got answer, fault string) string {
	if got.status == http.StatusBadRequest && len(want.body) < 7 && q.path == "/render" {
		return "an argument is wrong, but there are no series"
	}
	for _, k := range differences {
		if strings.HasPrefix(q.path, k.path) && k.question.MatchString(q.String()) && (k.fault == nil || k.fault.MatchString(fault)) {
			return k.why
		}
	}
	return ""
}

// withoutHashes removes the nodes by which graphite-web shows series with tags:
// hexadecimal digits.
func withoutHashes(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, one := range x {
			x[k] = withoutHashes(one)
		}
	case []any:
		return slices.DeleteFunc(x, func(one any) bool {
			withoutHashes(one)
			switch n := one.(type) {
			case string:
				return hashed.MatchString(n)
			case map[string]any:
				for _, k := range []string{"id", "path", "text"} {
					if s, ok := n[k].(string); ok && hashed.MatchString(s) {
						return true
					}
				}
			}
			return false
		})
	}
	return v
}

var hashed = regexp.MustCompile(`^_tagged|(^|\.)([0-9a-f]{3}|[0-9a-f]{64})\.?$`)

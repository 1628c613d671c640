package graphite

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A question is a request that both servers can answer.
type question struct {
	path string
	post bool
	half bool // from and format are in the URL although the request is a POST
	many bool // the form is multipart/form-data
	form url.Values
	root *node // of the target, if it is a tree
}

// format is the format of the answer.
func (q *question) format() string {
	switch f := q.form.Get("format"); {
	case f == "" && q.form.Has("rawData"):
		return "text"
	case f == "" && q.form.Has("pickle"):
		return "pickle"
	case f == "csv" || f == "raw":
		return "text"
	case f == "pickle" || f == "msgpack":
		return f
	case q.form.Has("jsonp"):
		return "jsonp"
	}
	return "json"
}

// nested is the question without pipes, if it is a tree.
func (q *question) nested() *question {
	if q.root == nil {
		return q
	}
	c := *q
	c.root = q.root.nested()
	c.form = maps.Clone(q.form)
	c.form.Set("target", c.root.String())
	return &c
}

func (q *question) method() string {
	if q.post {
		return http.MethodPost
	}
	return http.MethodGet
}

func (q *question) String() string {
	form := url.Values{}
	for k, v := range q.form {
		if k != "noCache" && (k != "now" || v[0] != strconv.Itoa(sampleNow)) {
			form[k] = v
		}
	}
	text, _ := url.QueryUnescape(strings.ReplaceAll(form.Encode(), "%25", "%2525"))
	return q.method() + " " + q.path + " " + text
}

// A node is a call with arguments, or a literal text.
type node struct {
	name string // of a function, or the text
	call bool
	pipe bool   // the first argument is written before the call, with a | between them
	gap  string // around the arguments
	args []argument
}

type argument struct {
	name string // "" for a positional argument
	*node
}

func (n *node) String() string {
	if !n.call {
		return n.name
	}
	args := n.args
	before := ""
	if n.pipe && len(args) > 0 && args[0].name == "" {
		before, args = args[0].String()+"|", args[1:]
	}
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = a.node.String()
		if a.name != "" {
			texts[i] = a.name + n.gap + "=" + n.gap + texts[i]
		}
	}
	return before + n.name + "(" + n.gap + strings.Join(texts, n.gap+","+n.gap) + n.gap + ")"
}

// nested is an equivalent tree without pipes.
func (n *node) nested() *node {
	c := *n
	c.pipe = false
	c.args = slices.Clone(n.args)
	for i, a := range n.args {
		c.args[i].node = a.nested()
	}
	return &c
}

// simpler yields simpler trees. It returns false if yield stopped it.
func (n *node) simpler(yield func(*node) bool) bool {
	if !n.call {
		return true
	}
	for _, a := range n.args {
		if a.call && !yield(a.node) {
			return false
		}
	}
	if (n.pipe || n.gap != "") && !yield(&node{name: n.name, call: true, args: n.args}) {
		return false
	}
	for i := len(n.args) - 1; i > 0; i-- {
		c := *n
		c.args = slices.Delete(slices.Clone(n.args), i, i+1)
		if !yield(&c) {
			return false
		}
	}
	for i, a := range n.args {
		if !a.call {
			continue
		}
		replace := func(with *node) bool {
			c := *n
			c.args = slices.Clone(n.args)
			c.args[i].node = with
			return yield(&c)
		}
		if !replace(leaf("srv.web01.cpu.user")) || !replace(leaf("srv.*.cpu.user")) || !a.simpler(replace) {
			return false
		}
	}
	return true
}

func leaf(text string) *node { return &node{name: text} }

// A parameter is a parameter of a function, as in /functions.
type parameter struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Required bool   `json:"required"`
	Multiple bool   `json:"multiple"`
	Options  []any  `json:"options"`
}

type function struct {
	Name   string      `json:"name"`
	Params []parameter `json:"params"`
}

// takesSeries reports whether a function takes series rather than generating its
// own.
func takesSeries(f function) bool {
	return slices.ContainsFunc(f.Params, func(p parameter) bool { return strings.HasPrefix(p.Type, "series") || p.Name == "tagExpressions" })
}

// An asker draws questions.
type asker struct {
	*rand.Rand
	functions []function
	awkward   float64 // share of the arguments that are unusual
	odd       float64 // share of the series with characters that have a meaning in some syntax
}

func pick[T any](a *asker, from []T) T { return from[a.IntN(len(from))] }

func (a *asker) chance(p float64) bool { return a.Float64() < p }

// askedPaths select series.
var askedPaths = []string{
	"srv.web01.cpu.user", "srv.web01.cpu.user", "srv.web02.cpu.system", "srv.*.cpu.user", "srv.*.cpu.*", "srv.web0?.requests", "srv.{web01,db01}.cpu.{user,system}",
	"srv.web[01][0-9].cpu.user", "srv.web01.cpu", "srv.web02.mem", "srv.*.requests", "srv.w*.cpu.system", "fast.a.req", "fast.*.req", "slow.a.size", "slow.*.size", "seven.a",
	"multi.full.sum", "multi.full.*", "multi.gaps.avg", "multi.gaps.*", "multi.*.{max,min}", "multi.gaps.zero", "multi.full.absmax", "const.zero", "const.one", "const.*", "edge.single", "edge.first",
	"edge.sparse", "edge.negative", "edge.signs", "edge.huge", "edge.tiny", "edge.fraction", "edge.future", "edge.denormal", "edge.counter64", "edge.alternating", "edge.*", "often.a", "often.b", "each.second", "{edge,often}.*", "nothing.here", "nothing.*", "disk.used;datacenter=dc1;rack=a0;server=web01",
	"{srv,edge}.{web01,first}", "srv.web{01,10,77}.cpu.user", "srv.web0[!1].cpu.user",
}

var tagQueries = []string{
	`seriesByTag("name=disk.used")`, `seriesByTag("name=~disk.*","datacenter=dc1")`, `seriesByTag("server=~^web","name=disk.total")`, `seriesByTag("name=disk.used","rack!=a1")`,
	`seriesByTag("if=eth0")`, `seriesByTag("name=nope")`, `seriesByTag("server=~.*ü.*")`, `seriesByTag("datacenter=dc2","server!=~db")`,
}

var aggregations = []string{
	"average", "avg", "avg_zero", "median", "sum", "total", "min", "max", "diff", "stddev", "count", "range", "rangeOf", "multiply", "last", "current",
	"averageSeries", "sumSeries", "stddevSeries", "countSeries", "maxSeries",
}

var intervals = []string{"1min", "5min", "10min", "1h", "90s", "7min", "30s", "2h", "1d", "-5min", "-1h", "1hour", "3minutes", "17min", "1h30min", "1week"}

var seriesExtras = []string{"None", "inf", "5", `"srv.web01.cpu.user"`, "true", "-1", `""`}

var oddNumbers = []string{"0", "-1", "1e300", "-0.0", "1e-300", "inf", "None", `"5"`, `"x"`, "true", "99999999999", "0.5", "-7", `""`, "1.5", "100", "-100.5", `" 5 "`, `"inf"`, `"nan"`, "1e2", "0.1", "50", "1000000",
	`"0x10"`, `"1_0"`, `"1e400"`, "1e400", "-1e400", `"infinity"`, `"5."`, `".5"`, ".5", "5.", "INF", "-inf", "nan", `"-0"`, "-0", "1E2", "9007199254740993", "9223372036854775808", `"99999999999999999999"`, `"٣"`, "5e-324", "false", "FALSE", `'3'`, "2.0"}

var oddTexts = []string{`""`, "None", "5", "1.5", "true", `'a\'b'`, `"ü"`, `"a b"`, `"%d"`, `"\1"`, `"\\"`, `"("`, `"*"`, `","`, `"-1"`, `"None"`, `"[x"`, `"a|b"`, `" "`, `"1d"`, `'"'`}

var patterns = []string{`"web"`, `"web0(\d)"`, `"^srv\."`, `"cpu"`, `"(\w+)\.(\w+)"`, `"[0-9]+"`, `".*"`, `"$"`, `"nope"`, `"\."`, `"^(.*)$"`, `"(?i)WEB"`, `"\bcpu\b"`, `""`, `"a|b"`, `"user|system"`}

var replacements = []string{`"\1"`, `"X"`, `"\2-\1"`, `""`, `"\g<1>"`, `"\0"`, `"srv.web02.cpu.user"`, `"%d"`, `"a\\b"`, `"\1 A"`}

// often are functions that are drawn more often than others: functions that merge points or
// read names.
var often = strings.Fields("consolidateBy setXFilesFactor cumulative alias aliasSub aliasByNode aliasByTags aliasByMetric groupByNode groupByNodes groupByTags substr " +
	"reduceSeries sumSeriesWithWildcards aggregateWithWildcards applyByNode sortByName exclude grep legendValue asPercent aliasQuery summarize smartSummarize movingWindow")

func (a *asker) function() function {
	if a.chance(0.25) {
		name := pick(a, often)
		return a.functions[slices.IndexFunc(a.functions, func(f function) bool { return f.Name == name })]
	}
	return pick(a, a.functions)
}

// tree draws an expression that yields series.
func (a *asker) tree(depth int) *node {
	if depth == 0 || a.chance(0.25) {
		return a.series()
	}
	f := a.function()
	n := &node{name: f.Name, call: true, pipe: a.chance(0.1)}
	if a.chance(0.1) {
		n.gap = pick(a, []string{" ", "\t", "\n", "  "})
	}
	named := false
	for i, p := range f.Params {
		if !p.Required && a.chance(0.45) || i > 0 && a.chance(a.awkward/4) {
			if named = true; a.chance(0.6) || len(n.args) == 0 {
				break
			}
			continue // later arguments can be given by name
		}
		list := strings.HasPrefix(p.Type, "series") || p.Type == "any"
		if named && list {
			break // graphite-web treats a list that is given by name as empty
		}
		count := 1
		if p.Multiple {
			count = a.IntN(3) + 1
			if !p.Required && a.chance(0.2) {
				count = 0
			}
		}
		for range count {
			arg := argument{node: a.argument(f, p, depth-1)}
			if !arg.call && a.chance(a.awkward/2) {
				arg.node = leaf(a.respell(arg.node.name))
			}
			if i == 0 && a.chance(0.5) && strings.HasSuffix(f.Name, "Tags") {
				arg.node = leaf(pick(a, tagQueries))
			}
			if named || !p.Multiple && i > 0 && !list && a.chance(0.1) {
				arg.name, named = p.Name, true
			}
			if i == 0 && slices.Contains(seriesExtras, arg.node.name) {
				n.pipe = false // a value before a | is not a target
			}
			n.args = append(n.args, arg)
			if named && p.Multiple {
				break
			}
		}
	}
	if a.chance(a.awkward/6) && takesSeries(f) { // else it may be a step that never ends
		n.args = append(n.args, argument{node: leaf(pick(a, append(oddNumbers, oddTexts...)))})
	}
	return n
}

func (a *asker) series() *node {
	switch {
	case a.chance(0.1):
		return leaf(pick(a, tagQueries))
	case a.chance(a.odd):
		return leaf("odd." + a.escape(pick(a, odd)))
	case a.chance(0.03):
		return leaf(pick(a, []string{`constantLine(5)`, `time("t")`, `sin("s",2,30)`, `threshold(5,"x","red")`, `identity("id")`}))
	}
	return leaf(pick(a, askedPaths))
}

// escape adds the backslashes that the grammar of targets requires, mostly.
func (a *asker) escape(name string) string {
	if a.chance(0.3) {
		return name
	}
	var out strings.Builder
	for _, c := range name {
		if strings.ContainsRune(`(){},.'"\|=`, c) {
			out.WriteByte('\\')
		}
		out.WriteRune(c)
	}
	return out.String()
}

func (a *asker) argument(f function, p parameter, depth int) *node {
	odd := a.chance(a.awkward)
	if p.Name == "step" && !takesSeries(f) { // with a value that is not positive, graphite-web never ends the request
		return leaf(pick(a, []string{"1", "7", "60", "3600", "100000", `"60"`, "1.5", "60.0", "None"}))
	}
	if len(p.Options) > 0 && !odd && !strings.HasPrefix(p.Type, "agg") {
		return leaf(quoted(pick(a, p.Options)))
	}
	switch p.Type {
	case "series", "seriesList", "seriesLists":
		if odd && a.chance(0.5) {
			return leaf(pick(a, seriesExtras))
		}
		return a.tree(depth)
	case "any":
		if a.chance(0.5) {
			return a.tree(depth)
		}
		return leaf(pick(a, oddNumbers))
	case "float", "integer", "intOrInf", "node":
		if odd {
			return leaf(pick(a, oddNumbers))
		}
		if p.Type == "float" && a.chance(0.4) {
			return leaf(pick(a, []string{"0.5", "1.5", "2.5", "-0.25", "90.5", "33.3", "0.01"}))
		}
		if p.Type == "node" {
			return leaf(pick(a, []string{"0", "1", "2", "3", "-1", "-2"}))
		}
		return leaf(pick(a, []string{"0", "1", "2", "3", "5", "10", "20", "50", "95", "99", "100", "-1", "7"}))
	case "nodeOrTag":
		return leaf(pick(a, []string{"0", "1", "2", "3", "-1", "-3", `"server"`, `"name"`, `"datacenter"`, `"nope"`, "7", "None", `""`}))
	case "tag":
		return leaf(pick(a, []string{`"server"`, `"name"`, `"datacenter"`, `"rack"`, `"nope"`}))
	case "boolean":
		return leaf(pick(a, []string{"true", "false", "true", "false", "True", "None", "1", "0", `"true"`}))
	case "aggFunc", "aggOrSeriesFunc":
		if odd {
			return leaf(pick(a, []string{`"nope"`, `"SUM"`, `"p95"`, `""`, `"sumSeries()"`, "None", `" "`, `"avg "`, `"percentile"`, `"ü"`}))
		}
		return leaf(`"` + pick(a, aggregations) + `"`)
	case "interval":
		if odd {
			text := pick(a, []string{`"5m"`, `""`, "5", "None", `"x"`, `"1mon"`, `"1y"`, `"5"`, `"min"`, `"1.5h"`})
			if text == `""` && f.Name == "smartSummarize" { // graphite-web does not end such a request
				text = `"x"`
			}
			return leaf(text)
		}
		return leaf(`"` + a.interval(f) + `"`)
	case "intOrInterval":
		if odd {
			return leaf(pick(a, append([]string{`"0min"`, `"5m"`, `"x"`, `"-5"`}, oddNumbers...)))
		}
		if a.chance(0.5) {
			return leaf(`"` + pick(a, intervals[:12]) + `"`)
		}
		return leaf(pick(a, []string{"1", "2", "3", "5", "10", "30", "4"}))
	case "date":
		return leaf(`"` + pick(a, []string{"-1h", "-30min", "now", "-10min", "12:00", "midnight", "today", "yesterday", "20240331", "16:00_20240331", strconv.Itoa(sampleNow - 3000), "noon"}) + `"`)
	case "string":
		return leaf(a.text(f, p, odd))
	}
	panic("no arguments for the type " + p.Type)
}

// respell writes a literal in another way, which may be equivalent.
func (a *asker) respell(literal string) string {
	switch c := literal[len(literal)-1]; {
	case c == '"' || c == '\'':
		if inner := literal[1 : len(literal)-1]; !strings.ContainsAny(inner, `"'`) {
			return pick(a, []string{"'" + inner + "'", inner, `"` + strings.ToUpper(inner) + `"`, `" ` + inner + `"`, `"` + inner + ` "`})
		}
	case '0' <= c && c <= '9' && strings.Trim(literal, "-.0123456789") == "":
		return pick(a, []string{`"` + literal + `"`, literal + ".0", literal + "e0", "0" + literal, "+" + literal, literal + "0E-1", literal + ".", `"+` + literal + `"`, "'" + literal + ".0'"})
	case strings.EqualFold(literal, "true") || strings.EqualFold(literal, "false") || literal == "None":
		return pick(a, []string{strings.ToUpper(literal), strings.ToLower(literal), `"` + literal + `"`, "'" + strings.ToUpper(literal) + "'", literal[:1] + strings.ToUpper(literal[1:])})
	}
	return literal
}

// misspell changes a character or two of a target that belong to its grammar.
func (a *asker) misspell(text string) string {
	const grammar = "(){},.'\"\\| ="
	for range 1 + a.IntN(2) {
		var places []int
		for i := range len(text) {
			if strings.IndexByte(grammar, text[i]) >= 0 {
				places = append(places, i)
			}
		}
		if len(places) == 0 {
			return text
		}
		i, c := pick(a, places), string(grammar[a.IntN(len(grammar))])
		text = text[:i] + pick(a, []string{"", c, c + text[i:i+1], text[i:i+1] + c, text[i:i+1] + text[i:i+1]}) + text[i+1:]
	}
	return text
}

// interval draws an interval. For some functions, graphite-web never ends a request with
// an interval that is not positive.
func (a *asker) interval(f function) string {
	text := pick(a, intervals)
	if strings.HasPrefix(f.Name, "timeS") {
		return text
	}
	return strings.TrimPrefix(text, "-")
}

func (a *asker) text(f function, p parameter, odd bool) string {
	switch {
	case odd:
		return pick(a, oddTexts)
	case p.Name == "tagExpressions":
		return `"` + pick(a, tagExpressions) + `"`
	case p.Name == "pattern" || p.Name == "search":
		return pick(a, patterns)
	case p.Name == "replace":
		return pick(a, replacements)
	case p.Name == "templateFunction":
		return `"` + pick(a, []string{"%.cpu.user", "sumSeries(%.cpu.*)", "scale(%.requests,2)", "movingAverage(%.cpu.user,3)", "%", "asPercent(%.cpu.user,%.cpu.system)", "nope(%)", "group(%.cpu.user,srv.db01.cpu.user)"}) + `"`
	case p.Name == "reduceFunction":
		return pick(a, []string{`"asPercent"`, `"divideSeries"`, `"diffSeries"`, `"sumSeries"`, `"nope"`})
	case p.Name == "reduceMatchers":
		return pick(a, []string{`"user"`, `"system"`, `"max"`, `"min"`})
	case p.Name == "valuesTypes":
		return pick(a, []string{`"avg"`, `"max"`, `"last"`, `"si"`, `"binary"`, `"count"`, `"total"`, `"nope"`, `"stddev"`})
	case p.Name == "theColor" || p.Name == "color":
		return pick(a, []string{`"red"`, `"#00ff00"`, `"00ff00"`})
	case p.Name == "alignTo":
		return pick(a, []string{`"hours"`, `"minutes"`, `"days"`, `"weeks"`, `"months"`, `"years"`, `"1h"`, `"nope"`, "true"})
	case p.Name == "intervalUnit":
		return `"` + a.interval(f) + `"`
	case p.Name == "operator":
		return pick(a, []string{`">"`, `"<"`, `"="`, `"!="`, `">="`, `"<="`, `"=="`})
	}
	return pick(a, []string{`"name"`, `"a.b"`, `"a b (c)"`, `"x,y"`, `'it"s'`, `"50%"`, `"n=1"`, `"ü"`, `"srv.web01"`, `"{a}"`, `"a;b=c"`, `"<b>"`})
}

func quoted(option any) string {
	if s, ok := option.(string); ok {
		return `"` + s + `"`
	}
	if option == nil {
		return "None"
	}
	if m, ok := option.(map[string]any); ok {
		return quoted(m["value"])
	}
	return fmt.Sprint(option)
}

// render draws a request of /render.
func (a *asker) render() *question {
	q := &question{path: "/render", post: a.chance(0.2), half: a.chance(0.3), many: a.chance(0.3), form: url.Values{"now": {strconv.Itoa(sampleNow)}, "noCache": {"1"}, "format": {"json"}}}
	q.root = a.tree(a.IntN(5))
	q.form.Set("target", q.root.String())
	for a.chance(0.1) {
		q.root = nil
		q.form.Add("target", a.tree(a.IntN(2)).String())
	}
	a.span(q)
	switch {
	case a.chance(0.05):
		a.wrap(q)
	case a.chance(0.04):
		q.root = nil
		q.form.Set("target", "template("+strings.ReplaceAll(strings.ReplaceAll(q.form.Get("target"), "web01", "$host"), "cpu", "$1")+pick(a, []string{`,"cpu"`, `,"cpu",host="web02"`, `,host="web01"`, ""})+")")
		if a.chance(0.5) {
			q.form.Set("template[host]", pick(a, []string{"web01", "*", "web0?", "5"}))
			q.form.Set("template[1]", pick(a, []string{"cpu", "c*"}))
		}
	case a.chance(0.05):
		q.root = nil
		q.form.Set("target", a.misspell(q.form.Get("target")))
	case a.chance(0.03):
		q.form["target[]"] = q.form["target"]
		q.form.Del("target")
		q.root = nil
	}
	if a.chance(0.3) {
		q.form.Set("maxDataPoints", pick(a, []string{"1", "2", "3", "7", "10", "50", "100", "333", "1000", "5000", "-1", "x", "1.5", ""}))
	}
	if a.chance(0.1) {
		q.form.Set("noNullPoints", pick(a, []string{"1", "0", "", "false"}))
	}
	if a.chance(0.07) {
		q.form.Set("xFilesFactor", pick(a, []string{"0.5", "1", "0", "0.3", "2", "-1", "x", ""}))
	}
	if a.chance(0.1) {
		q.form.Set("tz", pick(a, zones))
	}
	if a.chance(0.25 + a.odd/2) {
		q.form.Set("format", pick(a, []string{"csv", "raw", "pickle", "msgpack", "dygraph", "rickshaw"}))
	}
	if a.chance(0.03) {
		q.form.Set("jsonp", "cb")
	}
	if a.chance(0.02) {
		q.form.Set("pretty", "1")
	}
	if a.chance(0.04) { // of several values the last counts
		name := pick(a, []string{"from", "until", "maxDataPoints", "tz", "xFilesFactor"})
		if last, ok := q.form[name]; ok {
			q.form[name] = append([]string{pick(a, []string{"-7min", "5", "Asia/Kolkata", "x"})}, last...)
		}
	}
	if a.chance(0.02) {
		q.form.Del("format")
		q.form.Set(pick(a, []string{"rawData", "pickle"}), pick(a, []string{"1", "", "true"}))
	}
	return q
}

// wrap changes a question as Grafana does: several targets, each in an
// aliasSub.
func (a *asker) wrap(q *question) {
	q.root = nil
	q.form.Add("target", a.tree(1).String())
	for i, text := range q.form["target"] {
		q.form["target"][i] = `aliasSub(` + text + `, "(^.*$)", "\1 ` + string(rune('A'+i)) + `")`
	}
}

var zones = []string{"Europe/Paris", "America/New_York", "Asia/Kolkata", "UTC", "nope", "", "europe/paris", "Australia/Lord_Howe", "Pacific/Apia", "EST"}

// span draws times that both servers are known to read alike; times draws
// others.
func (a *asker) span(q *question) {
	if a.chance(0.5) {
		q.form.Set("from", pick(a, []string{"-5min", "-17min", "-1h", "-2h", "-90min", "-3h", "-13h", "-26h", "-1d", "-2d", "-7min", "-61s"}))
	} else if a.chance(0.3) { // where an archive begins, or a step
		q.form.Set("from", strconv.Itoa(sampleNow-pick(a, []int{7200, 12 * hour, hour, 86400, 2 * 86400, 37, 60 * 86400})+pick(a, []int{-1, 0, 1, 23, -37})))
	} else {
		q.form.Set("from", strconv.Itoa(sampleNow-a.IntN(1<<(6+a.IntN(12)))-1))
	}
	switch {
	case a.chance(0.3):
		q.form.Set("until", pick(a, []string{"now", "-3min", "-59s", "-2h", "-1h", "+1h"}))
	case a.chance(0.3):
		q.form.Set("until", strconv.Itoa(sampleNow-a.IntN(1<<(3+a.IntN(13)))))
	}
}

// times draws a question about the language of times.
func (a *asker) times() *question {
	q := a.render()
	q.root = nil
	q.form.Del("target[]")
	if a.chance(0.3) {
		q.form.Set("now", pick(a, []string{"20240330", "noon 20240331", "1711846799", "1711846800", "1711850400", "1698541200", "1710054000"}))
		q.form["target"] = []string{pick(a, []string{"srv.web01.cpu.user", "slow.a.size", `time("t",86400)`})} // of one archive
	} else {
		q.form["target"] = []string{pick(a, []string{
			"multi.full.avg", "srv.web01.cpu.user", "constantLine(1)", `timeSlice(multi.full.avg,"` + a.time() + `","` + a.time() + `")`, `verticalLine("` + a.time() + `")`,
			`timeShift(multi.full.avg,"` + a.offset() + `")`, `linearRegression(slow.a.size,"` + a.time() + `")`, `timeStack(slow.a.size,"` + a.offset() + `",0,3)`,
			`summarize(slow.a.size,"1d","max")`, `smartSummarize(slow.a.size,"1d","max","days")`, `timeShift(slow.a.size,"1d",true,true)`, `integralByInterval(slow.a.size,"1d")`, `hitcount(slow.a.size,"1d",true)`,
			`smartSummarize(slow.a.size,"1h","max","` + pick(a, []string{"weeks", "months", "years", "hours"}) + `")`,
		})}
	}
	q.form.Set("from", a.time())
	if a.chance(0.5) {
		q.form.Set("until", a.time())
	} else {
		q.form.Del("until")
	}
	if a.chance(0.5) {
		q.form.Set("tz", pick(a, zones))
	}
	return q
}

// time draws a time, most often one that is valid.
func (a *asker) time() string {
	if a.chance(0.15) {
		return pick(a, []string{strconv.Itoa(sampleNow - a.IntN(200000)), "0", "-1", "1711846799", "1711846801", "1711900837000", "1.5", "20240330", "99999999", "19710101", "20261101", "x", ""})
	}
	text := ""
	if a.chance(0.5) {
		text = pick(a, []string{"", "now", "midnight", "noon", "teatime", "6pm", "12am", "12pm", "04:00", "9:5", "2:30", "02:30", "03:00am", "11:59pm", "6am", "13pm", "0:00", "6:00pm"})
	}
	if a.chance(0.5) && text != "now" {
		text += pick(a, []string{"", "_", " ", ","}) + pick(a, []string{"today", "yesterday", "tomorrow", "20240331", "20240330", "03/31/24", "3/30/2024", "march 31", "mar30", "monday", "sunday", "sat", "Saturday", "tuesday", "20240310", "mar 10"})
	}
	if a.chance(0.1) {
		text += pick(a, []string{"25:00", "24:00", "july", "2024-03-31", "20241301", "02/30/24", "feb 29", "20230229", "31/12/24", "january 1", "1/1/70", "1/1/69", "dec 31", "x"})
	}
	if text == "" || a.chance(0.4) {
		text += a.offset()
	}
	return text
}

func (a *asker) offset() string {
	if a.chance(0.15) {
		return pick(a, []string{"-", "+", "--1h", "-1m", "-1mo", "-1.5h", "-h", "1h", "-1_0min", "-1dx", "-1 M", "-1h+1h", "- 1 h"})
	}
	out := pick(a, []string{"-", "-", "-", "+"})
	for range 1 + a.IntN(2) {
		out += pick(a, []string{"1", "2", "3", "15", "24", "90", "0", "007"}) + pick(a, []string{"s", "min", "h", "d", "seconds", "minutes", "hours", "days", "min", "h", "w", "mon", "weeks", "months", "H", "hr", "sec"})
	}
	return out
}

// globs are queries of the tree of paths.
func (a *asker) glob() string {
	nodes := []string{}
	whole := strings.Split(pick(a, sample).path, ".")
	if a.chance(0.25) {
		whole = []string{"odd", pick(a, odd)}
	}
	for _, n := range whole {
		switch r := []rune(n); a.IntN(12) {
		case 0, 1:
			n = "*"
		case 2:
			n = string(r[:a.IntN(len(r)+1)]) + "*"
		case 3:
			i := a.IntN(len(r))
			n = string(r[:i]) + "?" + string(r[i+1:])
		case 4:
			i := a.IntN(len(r))
			n = string(r[:i]) + pick(a, []string{"[a-z]", "[!a-z]", "[0-9]", "[" + string(r[i]) + "]", "[^a]", "[]a]", "[a-]", "[", "[!]", "[]", "[z-a]", `[\d]`, "[a,b]"}) + string(r[i+1:])
		case 5:
			n = "{" + n + "," + pick(a, []string{"web01", "b*", "", "x,y", "{web02,web10}", "a.b", "cpu"}) + "}"
		case 6:
			i := a.IntN(len(r) + 1)
			n = string(r[:i]) + "{" + string(r[i:]) + "," + pick(a, []string{"01", "", "*", "?", "{1,2}"}) + "}"
		case 7:
			n = pick(a, []string{"**", "***", "", "w*b??", "*[0-9]", "{a", "b}", "~", "a,b", "*.*", "[*]", `\*`, "{*}", "{}", "{,}", "%", "*{1,2}", "w{eb{01,02},x}"})
		}
		nodes = append(nodes, n)
	}
	q := strings.Join(nodes, ".")
	if a.chance(0.1) {
		q += pick(a, []string{".", "*", ".*", "..", ".**", ","})
	}
	if a.chance(0.03) {
		q = pick(a, []string{"*", "**", "", ".", "*.*", "*.*.*", "**.user", "srv.**", "srv.**.user", "*.**", "..", "srv", "srv.", "srv.*.", " ", "srv .*", "SRV.*", "srv.web01.cpu", "srv.web01.c*"})
	}
	return q
}

// request is the question for a server.
func (q *question) request(ctx context.Context, base string) (*http.Request, error) {
	address, body := url.Values{}, url.Values{}
	for name, values := range q.form {
		if !q.post || q.half && (name == "from" || name == "format") {
			address[name] = values
		} else {
			body[name] = values
			if q.half && name == "until" {
				address[name] = []string{"-7min"} // the value in the form counts
			}
		}
	}
	text, kind := body.Encode(), "application/x-www-form-urlencoded"
	if q.many {
		var out strings.Builder
		parts := multipart.NewWriter(&out)
		for name, values := range body {
			for _, v := range values {
				if err := parts.WriteField(name, v); err != nil {
					return nil, err
				}
			}
		}
		if err := parts.Close(); err != nil {
			return nil, err
		}
		text, kind = out.String(), parts.FormDataContentType()
	}
	if !q.post {
		text = ""
	}
	r, err := http.NewRequestWithContext(ctx, q.method(), base+q.path+"?"+address.Encode(), strings.NewReader(text))
	if err == nil && q.post {
		r.Header.Set("Content-Type", kind)
	}
	return r, err
}

// find draws a question about the tree of paths.
func (a *asker) find() *question {
	if a.chance(0.01) {
		return &question{path: "/metrics/index.json", form: url.Values{}}
	}
	q := &question{path: pick(a, []string{"/metrics/find", "/metrics/find/", "/metrics/expand", "/metrics/find"}), many: a.chance(0.3), post: a.chance(0.2), form: url.Values{"query": {a.glob()}}}
	if q.path == "/metrics/expand" {
		if a.chance(0.3) {
			q.form.Add("query", a.glob())
		}
		if a.chance(0.3) {
			q.form.Set("groupByExpr", pick(a, []string{"1", "0", "x"}))
		}
	} else {
		q.form.Set("format", pick(a, []string{"treejson", "treejson", "treejson", "completer", "nodelist", "json", "msgpack", "pickle", "nope", ""}))
		if a.chance(0.2) {
			q.form.Set("wildcards", pick(a, []string{"1", "0", "x"}))
		}
		if a.chance(0.2) {
			q.form.Set("position", pick(a, []string{"0", "1", "2", "-1", "7", "-5", "x"}))
		}
		if a.chance(0.1) {
			q.form.Set("automatic_variants", "1")
		}
		if a.chance(0.1) {
			q.form.Set("from", pick(a, []string{"-1h", "-1", "0", "x", strconv.Itoa(sampleNow)}))
		}
	}
	if a.chance(0.2) {
		q.form.Set("leavesOnly", pick(a, []string{"1", "0", "x", ""}))
	}
	if a.chance(0.05) {
		q.form.Set("jsonp", "cb")
	}
	return q
}

// tagExpressions select series with tags.
var tagExpressions = []string{
	"name=disk.used", "name=disk.total", "name=~disk", "name=~^disk.*$", "name!=disk.used", "name=~.*", "server=web01", "server=~web", "server=~eb0", "server=~^web0[12]$", "server!=web01", "server!=~web", "server=",
	"server!=", "rack=", "rack!=", "rack=~", "rack=~.*", "rack=~^$", "rack!=~.*", "rack!=~", "rack=a1", "rack!=a1", "datacenter=dc1", "datacenter=~dc[12]", "nope=", "nope!=x", "nope=x", "nope=~.*", "nope!=~x", "if=eth0",
	"note=a=b!c^d", "note=~a=b", "zone=x{y},z", "server=zürich", "server=~z.rich", "name=srv.web01.cpu.user", "bad", "=x", "a==b", "a=~(", "server=~(web01|db.01)", "server=~web01|db", "name=~(?i)DISK", "server=~db\\.01", "name=*", "name=net.in",
	"a;b=c", "server =web01", "~server=web01", "!=x",
}

// tags draws a question about tags.
func (a *asker) tags() *question {
	q := &question{post: a.chance(0.2), form: url.Values{}}
	q.path = pick(a, []string{"/tags/findSeries", "/tags/findSeries", "/tags/autoComplete/tags", "/tags/autoComplete/values", "/tags", "/tags/" + url.PathEscape(pick(a, []string{"server", "name", "nope", "rack", "note", "if"}))})
	switch {
	case q.path == "/tags" || strings.Count(q.path, "/") == 2 && q.path != "/tags/findSeries":
		q.post = false
		if a.chance(0.5) {
			q.form.Set("filter", pick(a, []string{"s", "^s", "e", ".*", "(", "", "server", "da|na", "$", "web", "[d-z]"}))
		}
	default:
		name := pick(a, []string{"expr", "expr[]", "expr"})
		for range a.IntN(4) {
			q.form.Add(name, pick(a, tagExpressions))
		}
		if strings.HasSuffix(q.path, "values") && a.chance(0.95) {
			q.form.Set("tag", pick(a, []string{"server", "name", "nope", "rack", "datacenter", ""}))
		}
		if a.chance(0.4) {
			q.form.Set(pick(a, []string{"tagPrefix", "valuePrefix"}), pick(a, []string{"", "s", "d", "web", "n", "%", "_", "da", "S", "z", "a*"}))
		}
	}
	if a.chance(0.2) {
		q.form.Set("limit", pick(a, []string{"1", "2", "0", "-1", "x", "10000", ""}))
	}
	if a.chance(0.1) {
		q.form.Set("pretty", "1")
	}
	return q
}

// eventTags are tags of events; no event has the last two.
var eventTags = []string{"deploy", "web", "db", "alarm", "Web", "ü", "a=b", "nope", ""}

// sampleEvents are bodies that add events, each in a different second.
func sampleEvents() (all []string) {
	a := &asker{Rand: rand.New(rand.NewPCG(1, 1))}
	for i := range 60 {
		tags := quoted(strings.Join(a.eventTags(7), pick(a, []string{" ", "  "})))
		if a.chance(0.3) {
			tags = `["` + strings.Join(a.eventTags(7), `","`) + `"]`
		}
		all = append(all, fmt.Sprintf(`{"what":%s,"data":%s,"tags":%s,"when":%d}`, pick(a, []string{`"deployed"`, `"ü <b>"`, `""`, `"a\nb"`}), pick(a, []string{`""`, `"x"`, `"{}"`}), tags, sampleNow-(i*i*17+a.IntN(17))))
	}
	return all
}

// eventTags draws some of the first n tags, each once.
func (a *asker) eventTags(n int) (tags []string) {
	for _, i := range a.Perm(n)[:1+a.IntN(3)] {
		tags = append(tags, eventTags[i])
	}
	return tags
}

// events draws a question about events.
func (a *asker) events() *question {
	if a.chance(0.5) {
		q := a.render()
		q.root = nil
		q.form.Del("target[]")
		tags := `"` + strings.Join(a.eventTags(len(eventTags)), `","`) + `"`
		q.form["target"] = []string{pick(a, []string{
			"events(" + tags + ")", "events(" + tags + ")", `events("*")`, `events("*",` + tags + ")", `summarize(events(` + tags + `),"10min","sum")`, `drawAsInfinite(events("*"))`, "sumSeries(events(" + tags + `),events("deploy"))`,
			`keepLastValue(events(` + tags + `),100)`, `timeShift(events("*"),"1h")`, `movingSum(events(` + tags + `),"10min")`, "integral(events(" + tags + "))", `summarize(events("*"),"1h","max",true)`,
		})}
		return q
	}
	q := &question{path: "/events/get_data", form: url.Values{}}
	for _, name := range []string{"from", "until"} {
		if a.chance(0.6) {
			q.form.Set(name, pick(a, []string{strconv.Itoa(sampleNow - a.IntN(60000)), "20240331", "12:00_20240331", "0", "20240330", "6pm 20240330", "x", strconv.Itoa(sampleNow)}))
		}
	}
	if a.chance(0.8) {
		q.form.Set("tags", strings.Join(a.eventTags(len(eventTags)), " "))
	}
	if a.chance(0.5) {
		q.form.Set("set", pick(a, []string{"union", "intersection", "nope", ""}))
	}
	if a.chance(0.1) {
		q.form.Set("jsonp", "cb")
	}
	return q
}

package function

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
	"varve/internal/graphite/target"
)

func init() {
	const group = "Alias"
	define(group, "alias(seriesList, newName:string)", "Names all series alike.", alias)
	define(group, "aliasByMetric(seriesList)", "Names each series by the last node of its path.", aliasByMetric)
	define(group, "aliasByNode(seriesList, nodes:nodeOrTag...)", "Names each series by nodes of its path and by tags.", aliasByNode)
	define(group, "aliasByTags(seriesList, tags:nodeOrTag...)", "Names each series by tags and by nodes of its path.", aliasByNode)
	define(group, "aliasQuery(seriesList, search:string, replace:string, newName:string)", "Makes a path of each name by a regular expression, and puts the last value found there into a format such as \"now %d\".", aliasQuery)
	define(group, "aliasSub(seriesList, search:string, replace:string)", "Replaces what matches a regular expression in each name; \\1 stands for the first group.", aliasSub)
	define(group, "legendValue(seriesList, [valuesTypes:string...])", "Appends aggregated values to each name; si or binary as the last argument prints them with a unit.", legendValue)
	define(group, "lower(seriesList, [pos:integer...])", "Turns names, or characters at some places, to lower case.", func(c *call) (any, error) { return changeCase(c, unicode.ToLower) })
	define(group, "upper(seriesList, [pos:integer...])", "Turns names, or characters at some places, to upper case.", func(c *call) (any, error) { return changeCase(c, unicode.ToUpper) })

	define("Special", "substr(seriesList, [start:node=0], [stop:node=0])", "Names each series by some nodes of its path, from start to before stop.", substr)
	define("Special", "cactiStyle(seriesList, [system:string], [units:string])", "Appends the last, greatest and least value to each name, in columns.", cactiStyle)
}

func alias(c *call) (any, error) {
	list, name := c.list(0), pytext.Text(c.args[1])
	return c.each(list, func(s *Series) error {
		s.Name, s.noLabel = name, false
		return nil
	})
}

// nodeOrTag returns one of the nodes of a path, which may be counted from the end, or
// else the tag of that name; both may be missing.
func nodeOrTag(s *Series, key any, nodes []string) (string, error) {
	if n, ok := wholeNumber(key); ok {
		if n < 0 {
			n += int64(len(nodes))
		}
		if n >= 0 && n < int64(len(nodes)) {
			return nodes[n], nil
		}
		return s.Tags[pytext.Text(key)], nil
	}
	switch key.(type) {
	case string, float64:
		return s.Tags[pytext.Text(key)], nil
	}
	return "", badParam("a node must be a number, or the name of a tag in quotes")
}

// wholeNumber reads the place of a node, which may also be written as 1.0 or
// true.
func wholeNumber(v any) (int64, bool) {
	switch x := v.(type) {
	case int64:
		return x, true
	case float64:
		return int64(x), x == math.Trunc(x) && math.Abs(x) < 1e6
	case bool:
		return ofBool(x), true
	}
	return 0, false
}

// key joins nodes and tags of a series. If the name is a call, its first path
// counts.
func (c *call) key(s *Series, nodes []any) (string, error) {
	if s.Name == "" {
		return "", badParam("a series has an empty name")
	}
	path := s.Name
	if strings.HasSuffix(s.Name, ")") {
		if first, ok := target.FirstPath(s.Name); ok {
			path = first
		}
	}
	path, _, _ = strings.Cut(path, ";")
	there := strings.Split(path, ".")
	parts := make([]string, len(nodes))
	for i, n := range nodes {
		var err error
		if parts[i], err = nodeOrTag(s, n, there); err != nil {
			return "", err
		}
	}
	return c.joined(parts, ".")
}

// joined joins texts, and charges the result before: a call may name a long text many times.
func (c *call) joined(parts []string, separator string) (string, error) {
	size := 0
	for _, part := range parts {
		size += len(part) + len(separator)
	}
	if err := c.reserve(int64(size)); err != nil {
		return "", err
	}
	return strings.Join(parts, separator), nil
}

func aliasByNode(c *call) (any, error) {
	return c.each(c.list(0), func(s *Series) (err error) {
		s.Name, err = c.key(s, c.rest)
		return err
	})
}

func aliasByMetric(c *call) (any, error) {
	return c.each(c.list(0), func(s *Series) error {
		s.Name = nodesOf(s.Name, -1, 0)
		return nil
	})
}

func substr(c *call) (any, error) {
	list, start, stop := c.list(0), c.truncated(1, 0), c.truncated(2, 0)
	return c.each(list, func(s *Series) error {
		s.Name = nodesOf(s.Name, start, stop)
		return nil
	})
}

// nodesOf returns nodes of the innermost path of a name, up to its first
// comma. A stop of 0 means all.
func nodesOf(name string, start, stop int64) string {
	left, right := strings.LastIndexByte(name, '(')+1, strings.IndexByte(name, ')')
	if right < 0 {
		right = len(name)
	}
	nodes := strings.Split(name[left:max(left, right)], ".")
	if stop == 0 {
		stop = int64(len(nodes))
	}
	first, _, _ := strings.Cut(strings.Join(cut(nodes, start, stop), "."), ",")
	return first
}

// cut returns the elements from start to before stop, both counted from the
// end if negative.
func cut[T any](list []T, start, stop int64) []T {
	n := int64(len(list))
	place := func(i int64) int64 {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	from, to := place(start), place(stop)
	return list[from:max(from, to)]
}

func aliasSub(c *call) (any, error) {
	list, p, replace := c.list(0), c.pattern(1), c.str(2, "")
	if c.err != nil || len(list) == 0 {
		return list, c.err
	}
	r, err := p.NewReplacement(replace)
	if err != nil {
		return nil, asParam(err)
	}
	return c.each(list, func(s *Series) (err error) {
		s.Name, err = p.Replace(s.Name, r)
		return asParam(err)
	})
}

func aliasQuery(c *call) (any, error) {
	list, p, replace, layout := c.list(0), c.pattern(1), c.str(2, ""), c.str(3, "")
	if c.err != nil || len(list) == 0 {
		return list, c.err
	}
	r, err := p.NewReplacement(replace)
	if err != nil {
		return nil, asParam(err)
	}
	return c.each(list, func(s *Series) error {
		query, err := p.Replace(s.Name, r)
		if err != nil {
			return asParam(err)
		}
		found, err := c.evalText(query)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return badParam("no series found with query: %.200s", query)
		}
		last := numeric.Last(found[0].Values)
		if numeric.IsNull(last) {
			return badParam("the series %.200s has no value", found[0].Name)
		}
		s.Name, err = pytext.Format(layout, last)
		return asParam(err)
	})
}

func legendValue(c *call) (any, error) {
	list := c.list(0)
	if len(c.rest) == 0 {
		return nil, badParam("an aggregation function is missing")
	}
	names := make([]string, len(c.rest))
	for i, v := range c.rest {
		if _, ok := v.([]*Series); ok {
			return nil, badParam("an aggregation function must be in quotes")
		}
		names[i] = pytext.Text(v)
	}
	system := ""
	if last := names[len(names)-1]; last == "si" || last == "binary" {
		system, names = last, names[:len(names)-1]
	}
	return c.each(list, func(s *Series) error {
		for _, name := range names {
			s.Name += legend(s, name, system)
			if err := c.reserve(int64(len(s.Name))); err != nil {
				return err
			}
		}
		return nil
	})
}

// legend is what one aggregation appends to the name of a series.
func legend(s *Series, name, system string) string {
	aggregate, known := numeric.Named(name)
	value := numeric.Null
	if known {
		value = aggregate(s.Values)
	}
	shown := pytext.FormatFloat(value)
	switch {
	case !known:
		shown = "(?)"
	case name == "count" && system == "":
		shown = pytext.Whole(value)
	case system != "" && !numeric.IsNull(value):
		v, prefix := numeric.Scaled(value, system)
		shown = fmt.Sprintf("%.2f%s", v, prefix)
	}
	if system == "" {
		return fmt.Sprintf(" (%s: %s)", name, shown)
	}
	return blanks(s.Name, 20) + pad(name, 5) + pad(shown, 10)
}

// pad fills a text with blanks to a number of characters.
func pad(s string, width int) string { return s + blanks(s, width) }

// blanks returns what fills a text to a number of characters.
func blanks(s string, width int) string {
	return strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

// cactiStyle appends values in columns that are as wide as the widest of all
// series.
func cactiStyle(c *call) (any, error) {
	list := c.list(0)
	system, units := "", ""
	if c.given(1) {
		system = c.str(1, "")
	}
	if c.given(2) {
		units = c.str(2, "")
	}
	if c.err == nil && system != "" && system != "si" && system != "binary" && len(list) > 0 {
		return nil, badParam("unknown system %.64q: it is si or binary", system)
	}
	show := func(v float64) string {
		prefix := ""
		if system != "" {
			v, prefix = numeric.Scaled(v, system)
		}
		if units == "" {
			return fmt.Sprintf("%.2f%s", v, prefix)
		}
		return fmt.Sprintf("%.2f %s%s", v, prefix, units)
	}
	columns := [...]struct {
		title string
		of    numeric.Aggregation
		width int
	}{{"Current", numeric.Last, 0}, {"Max", numeric.Max, 0}, {"Min", numeric.Min, 0}}
	width := 0
	for _, s := range list {
		width = max(width, len([]rune(s.Name)))
		for i := range columns {
			v := columns[i].of(s.Values)
			if numeric.IsNull(v) || v == 0 {
				v = 3 // so does Graphite
			}
			columns[i].width = max(columns[i].width, len([]rune(show(math.Trunc(v)+0)))+3)
		}
	}
	return c.each(list, func(s *Series) error {
		name := pad(s.Name, width)
		for _, column := range columns {
			shown := "nan"
			if v := column.of(s.Values); !numeric.IsNull(v) {
				shown = show(v)
			}
			name += " " + column.title + ":" + pad(shown, column.width)
		}
		s.Name = name + " "
		return nil
	})
}

// changeCase changes all characters of names, or those at some places.
func changeCase(c *call, change func(rune) rune) (any, error) {
	list := c.list(0)
	places := make([]int64, len(c.rest))
	for i, v := range c.rest {
		n, ok := v.(int64)
		if !ok {
			return nil, badParam("the place of a character must be an integer")
		}
		places[i] = n
	}
	return c.each(list, func(s *Series) error {
		if len(places) == 0 {
			s.Name = strings.Map(change, s.Name)
			return nil
		}
		runes := []rune(s.Name)
		for _, at := range places {
			if at < 0 {
				at += int64(len(runes))
			}
			if at >= 0 && at < int64(len(runes)) {
				runes[at] = change(runes[at])
			}
		}
		s.Name = string(runes)
		return nil
	})
}

package function

import (
	"fmt"
	"maps"
	"strings"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
)

// A Series is a name, tags, and values on a grid.
type Series struct {
	Name    string
	Tags    Tags
	Start   int64 // time of the first value, in seconds since 1970
	End     int64 // exclusive; there may be fewer or more values than fit into the range
	Step    int64 // in seconds
	Values  []float64
	Options Options

	// PathExpression represents the series in the names that functions make
	// when they combine it with others.
	PathExpression string
	// Consolidation is the function that merges values to a wider step, and
	// XFilesFactor the fraction of them that must not be null.
	Consolidation string
	XFilesFactor  float64

	perPoint int  // number of values that form one row; 0 means 1
	noLabel  bool // it was made by a function that gave it no name
}

// Options are what functions say about drawing.
type Options struct {
	Color          string
	Alpha          *float64
	LineWidth      *float64
	Dashed         *float64
	Stacked        bool
	Invisible      bool
	SecondYAxis    bool
	DrawAsInfinite bool
}

// newSeries returns a series for a function that generates data or combines
// series. Its tags are parsed from its name.
func newSeries(name string, start, end, step int64, values []float64, xFilesFactor float64) *Series {
	return &Series{Name: name, Tags: tagsOf(name), Start: start, End: end, Step: step, Values: values,
		PathExpression: name, Consolidation: "average", XFilesFactor: xFilesFactor}
}

// made is newSeries, but charges the name, which may contain the names of many
// other series.
func (c *call) made(name string, start, end, step int64, values []float64) (*Series, error) {
	if err := c.reserve(int64(len(name))); err != nil {
		return nil, err
	}
	return newSeries(name, start, end, step, values, c.xFilesFactor), nil
}

// derive returns a series on the same grid. It shares the tags of s, so later
// changes of the tags affect both.
func (s *Series) derive(name string, values []float64) *Series {
	return &Series{Name: name, Tags: s.Tags, Start: s.Start, End: s.End, Step: s.Step, Values: values,
		PathExpression: name, Consolidation: s.Consolidation, XFilesFactor: s.XFilesFactor}
}

// rename sets the name and the PathExpression of the series.
func (s *Series) rename(name string) {
	s.Name, s.PathExpression = name, name
}

// unlabelled is how a line without a label is called in the names that functions make.
const unlabelled = "None"

// Nameless reports whether the name is null in answers: the series is a line without a
// label, and no function has named it since.
func (s *Series) Nameless() bool { return s.noLabel && s.Name == unlabelled }

// Tags are the tags of a series; "name" always is one of them.
type Tags map[string]string

func (t Tags) set(tag string, value any) { t[tag] = pytext.Text(value) }

// tagsOf reads the tags of a series name. A name that is a call, or cannot be
// read, is its own tag "name".
func tagsOf(name string) Tags {
	if !isCall(name) {
		if t, err := ParseTags(name); err == nil {
			return t
		}
	}
	return Tags{"name": name}
}

// isCall reports whether a name is letters and something in parentheses.
func isCall(name string) bool {
	letters := strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
	return letters > 0 && name[letters] == '(' && strings.HasSuffix(name, ")") && len(name) > letters+2
}

// ParseTags reads a series name of the form path;tag=value;tag=value. The tag
// "name" is the path without the tildes that it begins with. Of a repeated tag
// the last value counts.
func ParseTags(name string) (Tags, error) {
	path, rest, tagged := strings.Cut(name, ";")
	value := strings.TrimLeft(path, "~")
	if value == "" {
		return nil, fmt.Errorf("the series %.200q has no name", name)
	}
	tags := Tags{}
	for tagged {
		var pair string
		pair, rest, tagged = strings.Cut(rest, ";")
		tag, value, ok := strings.Cut(pair, "=")
		if !ok || tag == "" || value == "" || strings.ContainsAny(tag, "!^") || value[0] == '~' {
			return nil, fmt.Errorf("the series %.200q has the invalid tag %.200q", name, pair)
		}
		tags[tag] = value
	}
	tags["name"] = value
	return tags, nil
}

// common returns the tags that all series share.
func common(list []*Series) Tags {
	tags := maps.Clone(list[0].Tags)
	for _, s := range list[1:] {
		for tag, value := range tags {
			if other, ok := s.Tags[tag]; !ok || other != value {
				delete(tags, tag)
			}
		}
	}
	return tags
}

// Consolidate makes n values one from now on, in Rows.
func (s *Series) Consolidate(n int) { s.perPoint = n }

// PerPoint returns how many values form a row.
func (s *Series) PerPoint() int { return max(s.perPoint, 1) }

// Rows returns the values, merged as Consolidate said. The last row may have
// fewer values; XFilesFactor still applies to the full number.
func (s *Series) Rows() ([]float64, error) {
	if s.perPoint <= 1 {
		return s.Values, nil
	}
	merge, ok := consolidations[s.Consolidation]
	if !ok {
		return nil, badParam("consolidateBy: unknown function %.64q; use sum, average, avg_zero, min, max, first or last", s.Consolidation)
	}
	out := make([]float64, (len(s.Values)+s.perPoint-1)/s.perPoint)
	numeric.Consolidate(out, s.Values, s.perPoint, merge, s.XFilesFactor)
	return out, nil
}

// consolidations merge values, at least one of which is not null.
var consolidations = map[string]numeric.Aggregation{
	"sum": numeric.Sum, "average": numeric.Average, "avg": numeric.Average, "avg_zero": numeric.AverageZero,
	"max": numeric.Max, "min": numeric.Min, "first": numeric.First, "last": numeric.Last,
}

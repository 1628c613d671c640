// Package function evaluates Graphite's functions: it takes parsed targets,
// asks a Source for the series that their paths select, and returns the
// resulting series.
//
// # Data
//
// A Series has a step and one value per step; null is NaN. Values of several
// series are matched by index, not by time: the series are brought to the least
// common multiple of their steps, each with its own consolidation, and then all
// first values belong together, all second values, and so on. Graphite does the
// same, and dashboards depend on it.
//
// # Evaluation
//
// The paths of all targets are fetched at once for the range of the request.
// Functions that need another range (moving windows, timeShift) evaluate their
// first argument once more with that range, which fetches again. Arguments that
// do not depend on each other are evaluated in parallel.
//
// # Bounds
//
// Every array is charged to the Budget before it is made, the number of
// evaluated expressions is bounded, and loops look at the context.
//
// # Names
//
// Names of results are part of the interface: people match them with regular
// expressions. Each function's spacing and quoting is that of graphite-web
// 1.1.10.
package function

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
)

// A Function is one entry of the registry, with what /functions tells about it.
type Function struct {
	Name        string
	Group       string
	Description string
	Params      []Param

	// combines marks functions that combine many series into one. Their names
	// may be used wherever a parameter is the name of an aggregation.
	combines bool
	// reads marks functions that neither change nor return the series they are
	// given. They get the series of the source, not copies.
	reads bool
	run   func(*call) (any, error)
}

// A Param is a parameter of a function.
type Param struct {
	Name     string
	Type     Type
	Required bool
	// A Multiple parameter comes last and takes all remaining arguments.
	Multiple bool
	// Default is shown to clients: nil, int64, float64, string or bool.
	Default     any
	Options     []any
	Suggestions []any
}

// AllOptions returns all values that the parameter accepts, including names of
// functions if it accepts those, or nil if the values are not limited to a
// list.
func (p *Param) AllOptions() []any {
	if p.Type != typeAggOrSeriesFunc {
		return p.Options
	}
	out := aggregationNames()
	for _, f := range All() {
		if f.combines {
			out = append(out, f.Name)
		}
	}
	return out
}

// aggregationNames are the names that clients offer.
func aggregationNames() []any {
	var out []any
	for _, name := range numeric.Names() {
		out = append(out, name)
	}
	return out
}

// A Type is the type of a parameter, by Graphite's names.
type Type string

// The types of parameters.
const (
	typeAny             Type = "any"
	typeAggFunc         Type = "aggFunc"
	typeAggOrSeriesFunc Type = "aggOrSeriesFunc"
	typeBoolean         Type = "boolean"
	typeDate            Type = "date"
	typeFloat           Type = "float"
	typeInteger         Type = "integer"
	typeInterval        Type = "interval"
	typeIntOrInf        Type = "intOrInf"
	typeIntOrInterval   Type = "intOrInterval"
	typeNode            Type = "node"
	typeNodeOrTag       Type = "nodeOrTag"
	typeSeriesList      Type = "seriesList"
	typeSeriesLists     Type = "seriesLists"
	typeString          Type = "string"
	typeTag             Type = "tag"
)

var registry = map[string]*Function{}

// Lookup returns the function of a name.
func Lookup(name string) (*Function, bool) {
	f, ok := registry[name]
	return f, ok
}

// All returns all functions, sorted by name. Functions with several names are
// listed under each.
func All() []*Function {
	return slices.SortedFunc(maps.Values(registry), func(a, b *Function) int { return strings.Compare(a.Name, b.Name) })
}

// Signature returns the call as text, for example
// "movingAverage(seriesList, windowSize, xFilesFactor=None)".
func (f *Function) Signature() string {
	params := make([]string, len(f.Params))
	for i, p := range f.Params {
		switch {
		case p.Multiple:
			params[i] = "*" + p.Name
		case p.Default != nil:
			params[i] = p.Name + "=" + literal(p.Default)
		case !p.Required:
			params[i] = p.Name + "=None"
		default:
			params[i] = p.Name
		}
	}
	return f.Name + "(" + strings.Join(params, ", ") + ")"
}

func literal(v any) string {
	if s, ok := v.(string); ok {
		return "'" + s + "'"
	}
	return pytext.Text(v)
}

// define registers a function under the name in its signature and under others.
// The signature has the form
//
//	movingAverage(seriesList, windowSize:intOrInterval, [xFilesFactor:float])
//
// where brackets enclose optional parameters, with or without a default, three
// dots mark a parameter that takes all further arguments, and a parameter
// without a type is a list of series. An invalid signature is a bug in the
// program.
func define(group, signature, description string, run func(*call) (any, error), others ...string) *Function {
	name, rest, ok := strings.Cut(strings.TrimSuffix(signature, ")"), "(")
	if !ok {
		panic("function: signature " + signature)
	}
	f := &Function{Name: name, Group: group, Description: description, run: run}
	if rest != "" {
		for text := range strings.SplitSeq(rest, ", ") {
			f.Params = append(f.Params, newParam(name, text))
		}
	}
	enter(f)
	for _, other := range others {
		alias := *f
		alias.Name = other
		enter(&alias)
	}
	return f
}

func enter(f *Function) {
	if registry[f.Name] != nil {
		panic("function: " + f.Name + " is defined twice")
	}
	registry[f.Name] = f
}

// defineCombining is define for functions that may be named as aggregations.
func defineCombining(signature, description string, run func(*call) (any, error), others ...string) {
	f := define("Combine", signature, description, run, others...)
	for _, name := range append(others, f.Name) {
		registry[name].combines = true
	}
}

func newParam(function, text string) Param {
	p := Param{Type: typeSeriesList, Required: true}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text, p.Required = strings.TrimSuffix(inner, "]"), false
	}
	if head, ok := strings.CutSuffix(text, "..."); ok {
		text, p.Multiple = head, true
	}
	if head, value, ok := strings.Cut(text, "="); ok {
		text, p.Default = head, parseDefault(value)
	}
	if name, kind, ok := strings.Cut(text, ":"); ok {
		text, p.Type = name, Type(kind)
	}
	p.Name = text
	p.Options = options[function+"."+p.Name]
	if p.Type == typeAggFunc {
		p.Options = aggregationNames()
	}
	p.Suggestions = suggestions[p.Type]
	if own, ok := suggestions[Type(p.Name)]; ok {
		p.Suggestions = own
	}
	return p
}

func parseDefault(value string) any {
	var i int64
	var f float64
	switch {
	case strings.HasPrefix(value, `"`):
		return strings.Trim(value, `"`)
	case value == "true" || value == "false":
		return value == "true"
	case value == "Infinity":
		return numeric.Infinity
	case !strings.Contains(value, "."):
		if _, err := fmt.Sscan(value, &i); err == nil {
			return i
		}
	default:
		if _, err := fmt.Sscan(value, &f); err == nil {
			return f
		}
	}
	panic("function: default " + value)
}

var shifts = []any{"1h", "6h", "12h", "1d", "2d", "7d", "14d", "30d"}

// suggestions are the values that clients offer, by type or by name of the
// parameter.
var suggestions = map[Type][]any{
	typeIntOrInterval:   {int64(5), int64(7), int64(10), "1min", "5min", "10min", "30min", "1hour"},
	"bootstrapInterval": {"7d", "30d"},
	"seasonality":       {"1d", "7d"},
	"intervalString":    {"10min", "1h", "1d"},
	"timeShift":         shifts,
	"timeShiftUnit":     shifts,
}

// options are all values that a parameter accepts, by function and parameter.
var options = map[string][]any{
	"cactiStyle.system":               {"binary", "si"},
	"consolidateBy.consolidationFunc": {"average", "avg", "avg_zero", "first", "last", "max", "min", "sum"},
	"filterSeries.operator":           {"!=", "<", "<=", "=", ">", ">="},
	"smartSummarize.alignTo":          {false, nil, true, "days", "hours", "minutes", "months", "seconds", "weeks", "years"},
}

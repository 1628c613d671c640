package function

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
	"varve/internal/graphite/target"
	"varve/internal/graphite/timespec"
)

// A call is one evaluation of a function. Its accessors return an argument in the type
// that the function needs. If the argument has another type, they return a zero and set
// err. The call then ends with err, whatever the function returns. The function checks
// err itself only before it fetches, and where a zero would mislead it.
type call struct {
	*scope
	expr *target.Call
	vars []Variable

	function *Function
	args     []any // one for each parameter that is not multiple; absent if not given
	rest     []any // of the multiple parameter
	err      error
	mistyped bool // err is about the type of an argument
}

// absent marks an optional argument that was not given.
type absent struct{}

func (sc *scope) evalCall(x *target.Call, vars []Variable) (any, error) {
	if x.Name == "seriesByTag" {
		return sc.fetch(tagQuery(x), false)
	}
	if x.Name == "template" {
		return nil, badParam("invalid template() syntax, only string and numeric arguments are allowed")
	}
	f, ok := Lookup(x.Name)
	if !ok {
		return nil, badParam("Received request for unknown function: %.200s", x.Name)
	}
	args := make([]any, len(x.Args)+len(x.Named))
	err := sc.parallel(len(args), func(i int) (err error) {
		if i < len(x.Args) {
			args[i], err = sc.evalArgument(f, x.Args[i], vars)
		} else {
			args[i], err = sc.eval(x.Named[i-len(x.Args)].Value, vars)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &call{scope: sc, expr: x, vars: vars, function: f}
	named := map[string]any{}
	for i, n := range x.Named {
		named[n.Name] = args[len(x.Args)+i]
	}
	return c.invoke(args[:len(x.Args)], named)
}

// invoke binds arguments to the parameters and runs the function.
func (c *call) invoke(args []any, named map[string]any) (any, error) {
	err := c.bind(args, named)
	var out any
	if err == nil {
		out, err = c.function.run(c)
	}
	if c.err != nil {
		out, err = nil, c.err
	}
	if errors.Is(err, errNothing) || err != nil && c.mistyped && c.withoutSeries() {
		return []*Series(nil), nil
	}
	if p, ok := errors.AsType[*ParamError](err); ok && p.Function == "" {
		p.Function = c.function.Name
	}
	return out, err
}

// withoutSeries reports whether the first argument is an empty list. Functions
// do not look at further arguments then.
func (c *call) withoutSeries() bool {
	if len(c.args) == 0 {
		return false
	}
	list, ok := c.args[0].([]*Series)
	return ok && len(list) == 0
}

// errNothing ends a function that combines series when there are none.
var errNothing = errors.New("no series")

// apply runs another function on values, as part of this one.
func (c *call) apply(name string, args ...any) ([]*Series, error) {
	f, ok := Lookup(name)
	if !ok {
		return nil, badParam("unknown function: %.64s", name)
	}
	if err := c.step(); err != nil {
		return nil, err
	}
	inner := &call{scope: c.scope, expr: c.expr, vars: c.vars, function: f}
	v, err := inner.invoke(args, nil)
	if err != nil {
		return nil, err
	}
	return asSeries(v)
}

// argument evaluates the first argument once more, for another range. Its
// series are new ones.
func (c *call) argument(sc *scope) ([]*Series, error) {
	switch {
	case len(c.expr.Args) > 0:
		return sc.again(c.expr.Args[0], c.vars)
	case len(c.expr.Named) > 0:
		return sc.again(c.expr.Named[0].Value, c.vars)
	}
	return nil, badParam("the list of series is missing")
}

// bind checks arguments and brings them to the types of the parameters. If one does not
// fit, Graphite logs that and continues with all arguments unchanged: each function finds
// out which ones it cannot work with.
func (c *call) bind(args []any, named map[string]any) error {
	params := c.function.Params
	multiple := len(params) > 0 && params[len(params)-1].Multiple
	if len(args) > len(params) && !multiple {
		return badParam("takes %d arguments at most, not %d", len(params), len(args))
	}
	values, fits := convertAll(params, args)
	c.args = make([]any, len(params))
	for i := range c.args {
		c.args[i] = absent{}
	}
	for i, v := range values {
		if multiple && i >= len(params)-1 {
			c.rest = append(c.rest, v)
		} else {
			c.args[i] = v
		}
	}
	for name, v := range named {
		i := c.parameter(name)
		switch {
		case i < 0:
			return badParam("there is no parameter %.64q", name)
		case i < len(args):
			return badParam("the parameter %q is given twice", name)
		}
		converted, err := params[i].convert(v)
		if err != nil || !fits {
			converted = v
		}
		if params[i].Multiple {
			c.rest = append(c.rest, converted)
		} else if converted != nil || params[i].Required {
			c.args[i] = converted
		}
	}
	c.refuseSeries()
	for i, p := range params {
		if _, missing := c.args[i].(absent); missing && p.Required && !p.Multiple && !lenient[c.function.Name] {
			return badParam("the parameter %q is missing", p.Name)
		}
	}
	return nil
}

// refuseSeries refuses series as arguments that must be texts. Graphite would put
// the Python representation of its objects into names, which helps nobody.
func (c *call) refuseSeries() {
	for i, p := range c.function.Params {
		if !p.Type.isText() {
			continue
		}
		values := c.args[i : i+1]
		if p.Multiple {
			values = c.rest
		}
		for _, v := range values {
			if _, series := v.([]*Series); series {
				c.fail(i, "a text in quotes, not series")
			}
		}
	}
}

// isText reports whether values of the type go into names and tags, or are compared with them.
func (t Type) isText() bool {
	switch t {
	case typeNode, typeNodeOrTag, typeString, typeTag:
		return true
	}
	return false
}

// lenient lists functions whose required parameters have a default nevertheless.
var lenient = map[string]bool{"highest": true, "lowest": true}

// parameter finds a parameter by name. alignDST is how timeShift's source
// spells alignDst.
func (c *call) parameter(name string) int {
	for i, p := range c.function.Params {
		if p.Name == name || name == "alignDST" && p.Name == "alignDst" || name == "stackName" && p.Name == "stack" {
			return i
		}
	}
	return -1
}

func convertAll(params []Param, args []any) (values []any, fits bool) {
	values = make([]any, len(args))
	for i, v := range args {
		converted, err := params[min(i, len(params)-1)].convert(v)
		if err != nil {
			return args, false
		}
		values[i] = converted
	}
	return values, true
}

var errType = errors.New("the argument has another type")

// convert brings a value to the type of the parameter.
func (p *Param) convert(v any) (any, error) {
	if v == nil && (p.Default != nil || !p.Required) {
		return nil, nil
	}
	switch p.Type {
	case typeFloat:
		return toFloat(v)
	case typeInteger, typeNode:
		return toInteger(v)
	case typeIntOrInf:
		if f, err := toFloat(v); err == nil && math.IsInf(f.(float64), 1) {
			return f, nil
		}
		return toInteger(v)
	case typeBoolean:
		return toBool(v)
	case typeInterval:
		s, ok := v.(string)
		if !ok {
			return nil, errType
		}
		_, err := timespec.ParseOffset(s)
		return s, err
	}
	return v, nil
}

func toFloat(v any) (any, error) {
	switch x := v.(type) {
	case float64:
		return x, nil
	case int64:
		return float64(x), nil
	case bool:
		return float64(ofBool(x)), nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(x), 64)
		if errors.Is(err, strconv.ErrRange) { // f is infinite, as in Python
			err = nil
		}
		return f, err
	}
	return nil, errType
}

func toInteger(v any) (any, error) {
	switch x := v.(type) {
	case int64:
		return x, nil
	case bool:
		return ofBool(x), nil
	case string:
		return strconv.ParseInt(strings.TrimSpace(x), 10, 64)
	}
	return nil, errType
}

// ofBool returns the number that equals a boolean in Python.
func ofBool(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func toBool(v any) (any, error) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case int64:
		if x == 0 || x == 1 {
			return x == 1, nil
		}
	case float64:
		if x == 0 || x == 1 {
			return x == 1, nil
		}
	case string:
		switch strings.ToLower(x) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	default:
		return truth(v), nil
	}
	return nil, errType
}

// truth reports whether a value counts as true for a parameter that should be a
// boolean.
func truth(v any) bool {
	switch x := v.(type) {
	case nil, absent:
		return false
	case bool:
		return x
	case int64:
		return x != 0
	case float64:
		return x != 0
	case string:
		return x != ""
	case []*Series:
		return len(x) > 0
	}
	return true
}

func (c *call) fail(i int, what string) {
	c.mistyped = true
	c.invalid(i, what)
}

// invalid reports an argument that has the right type but no meaning.
func (c *call) invalid(i int, what string) {
	if c.err == nil {
		c.err = badParam("the parameter %q must be %s", c.function.Params[i].Name, what)
	}
}

// given reports whether an argument was given, and was not none.
func (c *call) given(i int) bool {
	_, missing := c.args[i].(absent)
	return !missing && c.args[i] != nil
}

func (c *call) list(i int) []*Series {
	list, ok := c.args[i].([]*Series)
	if !ok {
		c.fail(i, "a list of series")
	}
	return list
}

// lists returns all lists of a multiple parameter.
func (c *call) lists() [][]*Series {
	out := make([][]*Series, len(c.rest))
	for i, v := range c.rest {
		list, ok := v.([]*Series)
		if !ok {
			c.fail(len(c.args)-1, "a list of series")
		}
		out[i] = list
	}
	return out
}

func (c *call) float(i int, without float64) float64 {
	if _, missing := c.args[i].(absent); missing {
		return without
	}
	switch x := c.args[i].(type) {
	case float64:
		return x
	case int64:
		return float64(x)
	case bool:
		return float64(ofBool(x))
	}
	c.fail(i, "a number")
	return 0
}

func (c *call) integer(i int, without int64) int64 { return typed(c, i, without, "an integer") }

// typed returns an argument of a type, or the value without if the argument is
// missing.
func typed[T any](c *call, i int, without T, what string) T {
	if _, missing := c.args[i].(absent); missing {
		return without
	}
	v, ok := c.args[i].(T)
	if !ok {
		c.fail(i, what)
	}
	return v
}

// truncated is integer for functions that drop a fraction.
func (c *call) truncated(i int, without int64) int64 {
	switch x := c.args[i].(type) {
	case float64:
		if math.Abs(x) < 1e15 {
			return int64(x)
		}
	case string:
		if n, err := toInteger(x); err == nil {
			return n.(int64)
		}
	}
	return c.integer(i, without)
}

func (c *call) str(i int, without string) string { return typed(c, i, without, "a text") }

func (c *call) boolean(i int) bool { return truth(c.args[i]) }

// interval returns an interval in seconds.
func (c *call) interval(i int, without string) (text string, seconds int64) {
	text = c.str(i, without)
	seconds, err := timespec.ParseOffset(text)
	if err != nil {
		c.invalid(i, "an interval such as 10min: "+err.Error())
	}
	return text, seconds
}

// date returns a point in time, read in the zone of the server.
func (c *call) date(i int) time.Time {
	t, err := timespec.Parse(c.str(i, ""), c.request.Now, c.serverZone())
	if err != nil {
		c.invalid(i, "a time: "+err.Error())
	}
	return t
}

// duration is interval for intervals that must be longer than zero.
func (c *call) duration(i int, without string) (text string, seconds int64) {
	text, seconds = c.interval(i, without)
	if seconds <= 0 && c.err == nil {
		c.invalid(i, "an interval of one second at least")
	}
	return text, seconds
}

func (c *call) pattern(i int) pytext.Pattern {
	s := c.str(i, "")
	if c.err != nil {
		return pytext.Pattern{}
	}
	p, err := pytext.NewPattern(s)
	if err != nil {
		c.err = asParam(err)
	}
	return p
}

func aggregationOf(name string) (numeric.Aggregation, error) {
	a, ok := numeric.Named(name)
	if !ok {
		return nil, badParam("unsupported aggregation function: %.64s", name)
	}
	return a, nil
}

func (c *call) aggregation(i int, without string) (string, numeric.Aggregation) {
	name := c.str(i, without)
	if c.err != nil {
		return "", nil
	}
	a, err := aggregationOf(name)
	if err != nil {
		c.err = err
	}
	return name, a
}

// each calls f for all series in turn, which it may change, and returns them.
func (c *call) each(list []*Series, f func(s *Series) error) (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	for _, s := range list {
		if err := f(s); err != nil {
			return nil, err
		}
		if err := c.reserve(int64(len(s.Name))); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// mapped calls f for all series in turn, and returns the resulting series. f may return
// nil for no series.
func (c *call) mapped(list []*Series, f func(s *Series) (*Series, error)) (any, error) {
	out := make([]*Series, 0, len(list))
	_, err := c.each(list, func(s *Series) error {
		made, err := f(s)
		if err == nil && made != nil {
			out = append(out, made)
		}
		return err
	})
	return out, err
}

// derive calls f for all series, with a slice for the same number of values,
// and returns a new series for each.
func (c *call) derive(list []*Series, f func(s *Series, values []float64) (name string)) (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	out := make([]*Series, 0, len(list))
	for _, s := range list {
		values, err := c.array(int64(len(s.Values)))
		if err != nil {
			return nil, err
		}
		name := f(s, values)
		if err := c.reserve(int64(len(name))); err != nil {
			return nil, err
		}
		out = append(out, s.derive(name, values))
	}
	return out, nil
}

// change changes all values that are not null.
func (c *call) change(values []float64, f func(float64) float64) error {
	for part := range slices.Chunk(values, valuesPerLook) {
		for i, v := range part {
			if !numeric.IsNull(v) {
				part[i] = f(v)
			}
		}
		if err := c.look(); err != nil {
			return err
		}
	}
	return nil
}

// valuesPerLook is how many values are changed between two looks. Rounding one takes up to some
// microseconds.
const valuesPerLook = 1 << 12

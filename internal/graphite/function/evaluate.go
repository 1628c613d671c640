package function

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
	"varve/internal/graphite/target"
	"varve/internal/work"
)

// MaxEvaluations bounds how many expressions one request evaluates. Functions
// that fetch again evaluate their argument twice or more, so nesting them
// multiplies.
const MaxEvaluations = 500_000

// A Request has the parameters with which targets are evaluated.
type Request struct {
	// From and Until are the range, in the zone of the request. That zone
	// matters where functions align to days.
	From, Until time.Time
	Now         time.Time
	// ServerZone is the zone in which functions read dates (timeSlice,
	// linearRegression), whatever the zone of the request is; UTC if nil.
	ServerZone *time.Location
	// XFilesFactor is the share of values that must not be null for a result,
	// unless a function says otherwise.
	XFilesFactor float64
	// Variables replace those of the same name in templates.
	Variables []Variable
}

// A Variable is $name in a template.
type Variable struct {
	Name  string
	Value any // string, int64 or float64
}

// A ParamError is the client's fault: an argument that a function cannot work
// with, or an unknown function.
type ParamError struct {
	Function string // "" outside of functions
	Reason   string
}

func (e *ParamError) Error() string {
	if e.Function == "" {
		return e.Reason
	}
	return e.Function + ": " + e.Reason
}

func badParam(layout string, args ...any) error {
	return &ParamError{Reason: fmt.Sprintf(layout, args...)}
}

// asParam turns an error of another package into a *ParamError.
func asParam(err error) error {
	if err == nil {
		return nil
	}
	return badParam("%v", err)
}

// Evaluate returns the series that the targets stand for, in their order.
func Evaluate(ctx context.Context, source Source, budget Budget, request *Request, targets []target.Expr) ([]*Series, error) {
	e := &evaluation{
		ctx: ctx, source: source, budget: budget, request: request,
		workers: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 0)),
		ordered: slices.ContainsFunc(targets, keepsState),
		fetched: map[fetchKey]*found{},
		stacks:  map[string][]float64{},
	}
	sc := &scope{evaluation: e, from: request.From, until: request.Until, xFilesFactor: request.XFilesFactor}
	results := make([][]*Series, len(targets))
	err := work.Do("evaluate Graphite targets", func() error {
		if err := sc.prefetch(targets, nil); err != nil {
			return err
		}
		return sc.parallel(len(targets), func(i int) error {
			v, err := sc.eval(targets[i], nil)
			if err == nil {
				results[i], err = asSeries(v)
			}
			return err
		})
	})
	return slices.Concat(results...), err
}

// An evaluation is the state of one request.
type evaluation struct {
	ctx     context.Context
	source  Source
	budget  Budget
	request *Request
	workers chan struct{} // slots for further goroutines
	ordered bool          // some function affects expressions that follow it
	steps   atomic.Int64

	mu      sync.Mutex
	fetched map[fetchKey]*found // mu

	stacks map[string][]float64 // of stacked; only if ordered
}

// A found is what a query selected.
type found struct {
	done chan struct{} // closed once list or err is set
	list []Fetched
	err  error
	used atomic.Bool // an expression has used the values without a copy
}

type fetchKey struct {
	from, until int64
	text        string
}

// A scope is the range for which an expression is evaluated.
type scope struct {
	*evaluation
	from, until  time.Time
	xFilesFactor float64 // setXFilesFactor changes it for expressions that are evaluated later
}

// within returns a scope with another range.
func (sc *scope) within(from, until time.Time) *scope {
	inner := *sc
	inner.from, inner.until = from, until
	return &inner
}

func (sc *scope) bounds() (from, until int64) { return sc.from.Unix(), sc.until.Unix() }

// wall returns the seconds at which clocks of the server show what clocks of
// t's zone show at t. Graphite's functions mix the two. They also keep the
// daylight saving flag of t's zone. If the zone of the server differs in that,
// the time shifts by an hour.
func (sc *scope) wall(t time.Time) int64 {
	there := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, sc.serverZone())
	switch {
	case t.IsDST() && !there.IsDST():
		return there.Unix() - 3600
	case !t.IsDST() && there.IsDST():
		return there.Unix() + 3600
	}
	return there.Unix()
}

func (e *evaluation) serverZone() *time.Location {
	if e.request.ServerZone == nil {
		return time.UTC
	}
	return e.request.ServerZone
}

// look returns an error if the request has ended, and otherwise lets other requests have
// their turn.
func (e *evaluation) look() error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	return e.source.Yield()
}

// reserve charges memory, after a look.
func (e *evaluation) reserve(bytes int64) error {
	if err := e.look(); err != nil {
		return err
	}
	return e.budget.Reserve(bytes)
}

// SeriesBytes is the memory of a series without its values and names.
const SeriesBytes = 512

// array charges and allocates memory for values.
func (e *evaluation) array(n int64) ([]float64, error) {
	n = max(n, 0)
	if err := e.reserve(SeriesBytes + 8*n); err != nil {
		return nil, err
	}
	return make([]float64, n), nil
}

// parallel calls f for 0 to n-1, in goroutines as far as slots are free, and
// returns the first error in this order.
func (sc *scope) parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var group work.Group
	for i := range n {
		if sc.ordered || i == n-1 {
			if errs[i] = f(i); errs[i] != nil {
				break
			}
			continue
		}
		select {
		case sc.workers <- struct{}{}:
			group.Go("evaluate a Graphite function", func() error {
				defer func() { <-sc.workers }()
				errs[i] = f(i)
				return errs[i]
			})
		default:
			errs[i] = f(i)
		}
	}
	fault := group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return fault
}

// stateful are the functions whose effect goes beyond their result, so that
// the order of evaluation matters.
var stateful = regexp.MustCompile(`(?i)xFilesFactor|stacked`)

// keepsState reports whether a target names such a function, or holds it in a
// text that is evaluated later.
func keepsState(e target.Expr) bool {
	switch x := e.(type) {
	case *target.Call:
		return x.Name == "stacked" || x.Name == "setXFilesFactor" || x.Name == "xFilesFactor" ||
			slices.ContainsFunc(x.Args, keepsState) || slices.ContainsFunc(x.Named, namedKeepsState)
	case *target.Template:
		return keepsState(x.Body)
	case target.String:
		return stateful.MatchString(string(x))
	}
	return false
}

func namedKeepsState(n target.Named) bool { return keepsState(n.Value) }

// A result is what an expression evaluates to: []*Series, [][]*Series (of
// mapSeries), string, int64, float64, bool or nil.

func asSeries(v any) ([]*Series, error) {
	switch x := v.(type) {
	case []*Series:
		return x, nil
	case nil:
		return nil, nil
	case [][]*Series:
		if len(x) == 0 { // of no series; so does Graphite
			return nil, nil
		}
		return nil, badParam("lists of series cannot be rendered: mapSeries needs reduceSeries around it")
	}
	return nil, badParam("the target is a value, not series")
}

// again evaluates an expression in another scope, and fetches its series for
// that scope.
func (sc *scope) again(e target.Expr, vars []Variable) ([]*Series, error) {
	if err := sc.prefetch([]target.Expr{e}, vars); err != nil {
		return nil, err
	}
	v, err := sc.eval(e, vars)
	if err != nil {
		return nil, err
	}
	return asSeries(v)
}

// evalText evaluates a target that a function put together.
func (sc *scope) evalText(s string) ([]*Series, error) {
	e, err := target.Parse(s)
	if err != nil {
		return nil, badParam("%v", err)
	}
	return sc.again(e, nil)
}

func (sc *scope) eval(e target.Expr, vars []Variable) (any, error) {
	if err := sc.step(); err != nil {
		return nil, err
	}
	switch x := e.(type) {
	case *target.Path:
		return sc.evalPath(x, vars, false)
	case *target.Call:
		return sc.evalCall(x, vars)
	case *target.Template:
		return sc.eval(x.Body, sc.variables(x))
	}
	return constant(e), nil
}

func (sc *scope) step() error {
	if sc.steps.Add(1) > MaxEvaluations {
		return badParam("the targets take more than %d evaluations; functions that fetch again are nested too deep", MaxEvaluations)
	}
	return sc.look()
}

func constant(e target.Expr) any {
	switch x := e.(type) {
	case target.Number:
		return int64(x)
	case target.Float:
		return float64(x)
	case target.String:
		return string(x)
	case target.Bool:
		return bool(x)
	case target.Infinity:
		return numeric.Infinity
	}
	return nil
}

// variables returns the variables of a template, in the order of replacement.
// Variables of the request come last, but a variable of the request replaces
// one of the template with the same name in its place.
func (sc *scope) variables(t *target.Template) []Variable {
	if len(t.Named)+len(t.Args) == 0 {
		return sc.request.Variables
	}
	var out []Variable
	place := map[string]int{}
	set := func(v Variable) {
		i, there := place[v.Name]
		if !there {
			place[v.Name] = len(out)
			out = append(out, v)
			return
		}
		out[i].Value = v.Value
	}
	for _, n := range t.Named {
		set(Variable{n.Name, constant(n.Value)})
	}
	for i, a := range t.Args {
		set(Variable{strconv.Itoa(i + 1), constant(a)})
	}
	for _, v := range sc.request.Variables {
		set(v)
	}
	return out
}

var numberPattern = regexp.MustCompile(`^-?[\d.]+$`)

// substitute replaces the variables in a path by their values, and charges the resulting
// text. A path that is nothing but a variable becomes its value.
func (sc *scope) substitute(path string, vars []Variable) (string, any, error) {
	for _, v := range vars {
		if path == "$"+v.Name {
			s, ok := v.Value.(string)
			if !ok {
				return "", v.Value, nil
			}
			if numberPattern.MatchString(s) {
				f, err := strconv.ParseFloat(s, 64)
				if err != nil {
					return "", nil, badParam("the variable %.64s is not a number: %.64q", v.Name, s)
				}
				return "", f, nil
			}
			return "", s, nil
		}
		if err := sc.look(); err != nil {
			return "", nil, err
		}
		var err error
		if path, err = pytext.ReplaceAll(path, "$"+v.Name, pytext.Text(v.Value)); err != nil {
			return "", nil, asParam(err)
		}
	}
	if len(vars) > 0 {
		return path, nil, sc.reserve(int64(len(path)))
	}
	return path, nil, nil
}

func (sc *scope) evalPath(p *target.Path, vars []Variable, shared bool) (any, error) {
	path, value, err := sc.substitute(p.Text, vars)
	if err != nil || value != nil {
		return value, err
	}
	return sc.fetch(Query{Text: path}, shared)
}

// evalArgument evaluates an argument of a function. If the function only reads
// its series, series that a path or tags select are passed without copying
// their values.
func (sc *scope) evalArgument(f *Function, e target.Expr, vars []Variable) (any, error) {
	if !f.reads {
		return sc.eval(e, vars)
	}
	if err := sc.step(); err != nil {
		return nil, err
	}
	switch x := e.(type) {
	case *target.Path:
		return sc.evalPath(x, vars, true)
	case *target.Call:
		if x.Name == "seriesByTag" {
			return sc.fetch(tagQuery(x), true)
		}
	}
	return sc.eval(e, vars)
}

func tagQuery(c *target.Call) Query {
	q := Query{Text: c.Raw, ByTag: true}
	for _, a := range c.Args {
		if s, ok := a.(target.String); ok {
			q.Expressions = append(q.Expressions, string(s))
		}
	}
	return q
}

// fetch returns the series that a query selects, sorted by name. Their values
// are copies unless shared.
func (sc *scope) fetch(q Query, shared bool) ([]*Series, error) {
	if err := sc.load([]Query{q}); err != nil {
		return nil, err
	}
	from, until := sc.bounds()
	sc.mu.Lock()
	result := sc.fetched[fetchKey{from, until, q.Text}]
	sc.mu.Unlock()
	// Sharing values needs no memory, but is charged from the second time on,
	// so that naming a path a thousand times is not free.
	free := shared && result.used.CompareAndSwap(false, true)
	out := make([]*Series, 0, len(result.list))
	for i := range result.list {
		f := &result.list[i]
		values := f.Values
		if shared {
			size := int64(SeriesBytes)
			if !free {
				size += 8 * int64(len(values))
			}
			if err := sc.reserve(size); err != nil {
				return nil, err
			}
		} else {
			var err error
			if values, err = sc.array(int64(len(f.Values))); err != nil {
				return nil, err
			}
			copy(values, f.Values)
		}
		s := newSeries(f.Name, f.Start, f.Start+int64(len(values))*f.Step, f.Step, values, sc.xFilesFactor)
		s.PathExpression = q.Text
		out = append(out, s)
	}
	return out, nil
}

// errUnfinished is the error that other goroutines get from a fetch that panicked.
var errUnfinished = errors.New("the store failed while the series were read")

// load fetches queries that were not fetched for this range, each once: targets that
// are evaluated in parallel wait for each other's.
func (sc *scope) load(queries []Query) error {
	from, until := sc.bounds()
	mine := map[string]*found{}
	var missing []Query
	var others []*found
	sc.mu.Lock()
	for _, q := range queries {
		key := fetchKey{from, until, q.Text}
		if f, ok := sc.fetched[key]; !ok {
			f = &found{done: make(chan struct{})}
			sc.fetched[key], mine[q.Text] = f, f
			missing = append(missing, q)
		} else if mine[q.Text] == nil {
			others = append(others, f)
		}
	}
	sc.mu.Unlock()
	if err := sc.fill(missing, mine, Range{From: from, Until: until, Now: sc.request.Now.Unix()}); err != nil {
		return err
	}
	for _, f := range others {
		select {
		case <-f.done:
		case <-sc.ctx.Done():
			return sc.ctx.Err()
		}
		if f.err != nil {
			return f.err
		}
	}
	return nil
}

// fill fetches what is missing. A failure ends the request, so it is kept.
func (sc *scope) fill(missing []Query, founds map[string]*found, r Range) (err error) {
	if len(missing) == 0 {
		return nil
	}
	err = errUnfinished // remains if the source panics
	defer func() {
		for _, f := range founds {
			f.err = err
			close(f.done)
		}
	}()
	lists, err := sc.source.Fetch(sc.ctx, missing, r)
	if err != nil {
		return err
	}
	for i, q := range missing {
		list := slices.Clone(lists[i])
		slices.SortStableFunc(list, func(a, b Fetched) int { return strings.Compare(a.Name, b.Name) })
		founds[q.Text].list = slices.CompactFunc(list, func(a, b Fetched) bool { return a.Name == b.Name })
	}
	return nil
}

// queryBytes is the memory of a query without its text and its series.
const queryBytes = 256

// prefetch fetches all series that expressions select, at once. It charges the queries:
// functions can build many more of them than fit into a request.
func (sc *scope) prefetch(exprs []target.Expr, vars []Variable) error {
	var queries []Query
	add := func(q Query) error {
		queries = append(queries, q)
		return sc.reserve(queryBytes + int64(len(q.Text)))
	}
	var collect func(e target.Expr, vars []Variable) error
	collect = func(e target.Expr, vars []Variable) error {
		switch x := e.(type) {
		case *target.Path:
			path, value, err := sc.substitute(x.Text, vars)
			if err != nil || value != nil {
				return err
			}
			return add(Query{Text: path})
		case *target.Template:
			return collect(x.Body, sc.variables(x))
		case *target.Call:
			if x.Name == "seriesByTag" {
				return add(tagQuery(x))
			}
			for _, a := range x.Args {
				if err := collect(a, vars); err != nil {
					return err
				}
			}
			for _, n := range x.Named {
				if err := collect(n.Value, vars); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, e := range exprs {
		if err := collect(e, vars); err != nil {
			return err
		}
	}
	return sc.load(queries)
}

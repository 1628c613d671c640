package render

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/graphite/function"
	"varve/internal/graphite/target"
	"varve/internal/graphite/timespec"
)

// A Request is the parsed parameters of a render request.
type Request struct {
	Texts    []string      // the targets as sent
	Targets  []target.Expr // the parsed Texts
	Function function.Request
	Options  Options
}

// MaxTargets limits the targets of one request.
const MaxTargets = 1000

// Parse parses parameters: those of the query string, followed by those of the
// body. The last value of a single-valued parameter counts. Times are relative to
// the parameter now, or else to clock, and in the zone of the parameter tz, or else
// of the server. Errors are the client's fault.
func Parse(form url.Values, clock time.Time, server *time.Location) (*Request, error) {
	r := &Request{Options: options(form)}
	if err := r.parseTimes(form, clock, server); err != nil {
		return nil, err
	}
	r.Options.Zone = r.Function.From.Location()
	if s, ok := last(form, "xFilesFactor"); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || math.IsNaN(f) {
			return nil, fmt.Errorf("xFilesFactor is not a number: %.64q", s)
		}
		r.Function.XFilesFactor = f
	}
	if o := r.Options; o.JSONP != "" && !ValidCallback(o.JSONP) {
		return nil, fmt.Errorf("jsonp is not the name of a function: %.64q", o.JSONP)
	}
	r.parseVariables(form)
	return r, r.parseTargets(form)
}

// last returns the last value of a parameter.
func last(form url.Values, name string) (string, bool) {
	values := form[name]
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

func options(form url.Values) Options {
	o := Options{Format: "png"}
	if form.Has("pickle") {
		o.Format = "pickle"
	}
	if form.Has("rawData") {
		o.Format = "raw"
	}
	if format, ok := last(form, "format"); ok {
		o.Format = format
		o.JSONP, _ = last(form, "jsonp")
	}
	pretty, _ := last(form, "pretty")
	o.Pretty = pretty != ""
	o.NoNullPoints = form.Has("noNullPoints")
	if s, ok := last(form, "maxDataPoints"); ok {
		if n, err := strconv.ParseUint(s, 10, 63); err == nil {
			o.MaxDataPoints = int64(n)
		}
	}
	return o
}

func (r *Request) parseTimes(form url.Values, clock time.Time, server *time.Location) error {
	zone := server
	if name, ok := last(form, "tz"); ok {
		if z, known := timespec.Zone(name); known {
			zone = z
		}
	}
	r.Function.ServerZone = server
	now := clock.In(zone)
	var err error
	if s, ok := last(form, "now"); ok {
		if now, err = timespec.Parse(s, clock, zone); err != nil {
			return fmt.Errorf("now: %w", err)
		}
	}
	r.Function.Now = now
	read := func(name, without string) (time.Time, error) {
		s, ok := last(form, name)
		if !ok {
			s = without
		}
		t, err := timespec.Parse(s, now, zone)
		if err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
		return t, nil
	}
	until, err := read("until", "now")
	if err != nil {
		return err
	}
	from, err := read("from", "-1d")
	if err != nil {
		return err
	}
	if from.Equal(until) {
		return errors.New("from and until are the same: the range is empty")
	}
	if from.After(until) {
		from, until = until, from
	}
	r.Function.From, r.Function.Until = from, until
	return nil
}

// parseVariables parses parameters of the form template[name]=value.
func (r *Request) parseVariables(form url.Values) {
	for key := range form {
		name, ok := strings.CutPrefix(key, "template[")
		if !ok || name == "" {
			continue
		}
		value, _ := last(form, key)
		r.Function.Variables = append(r.Function.Variables, function.Variable{Name: name[:len(name)-1], Value: value})
	}
	slices.SortFunc(r.Function.Variables, func(a, b function.Variable) int { return strings.Compare(a.Name, b.Name) })
}

func (r *Request) parseTargets(form url.Values) error {
	texts := form["target"]
	if len(texts) == 0 {
		texts = form["target[]"]
	}
	if len(texts) > MaxTargets {
		return fmt.Errorf("the request has %d targets; at most %d are allowed", len(texts), MaxTargets)
	}
	for _, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue
		}
		e, err := target.Parse(text)
		if err != nil {
			return fmt.Errorf("target %.200q: %w", text, err)
		}
		r.Texts, r.Targets = append(r.Texts, text), append(r.Targets, e)
	}
	return nil
}

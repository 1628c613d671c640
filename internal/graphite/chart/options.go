package chart

import (
	"fmt"
	"image/color"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// MaxSide limits the width and the height of a picture, in pixels.
const MaxSide = 4000

// Formats are the formats of pictures, with their media types.
var Formats = map[string]string{"png": "image/png", "svg": "image/svg+xml"}

// Options are the options of a picture, as Parse returns them.
type Options struct {
	Width, Height int // of the picture, in pixels

	title, vtitle, vtitleRight string

	graphOnly, hideGrid, hideXAxis, hideYAxis bool
	hideLegend                                *bool // nil: depends on the number of series
	uniqueLegend                              bool

	back, fore color.NRGBA
	lines      []color.NRGBA

	fontSize, lineWidth, areaAlpha float64
	areaMode, lineMode, units      string

	low, high [2]*float64 // ends of the left and the right axis
}

// A reader parses parameters and keeps the first error.
type reader struct {
	form url.Values
	err  error
}

func (r *reader) text(name, otherwise string) string {
	if values := r.form[name]; len(values) > 0 && values[len(values)-1] != "" {
		return values[len(values)-1]
	}
	return otherwise
}

func (r *reader) fail(name string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w", name, err)
	}
}

// number parses a number from least to most.
func (r *reader) number(name string, otherwise, least, most float64) float64 {
	text := r.text(name, "")
	if text == "" {
		return otherwise
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(v >= least && v <= most) {
		r.fail(name, fmt.Errorf("is %.64q, but must be a number from %v to %v", text, least, most))
		return otherwise
	}
	return v
}

// end parses an end of an axis: the first of the named parameters that is given.
func (r *reader) end(names ...string) *float64 {
	for _, name := range names {
		if r.text(name, "") != "" {
			v := r.number(name, 0, -math.MaxFloat64, math.MaxFloat64)
			return &v
		}
	}
	return nil
}

func (r *reader) flag(name string) bool {
	switch strings.ToLower(r.text(name, "")) {
	case "", "0", "false", "no", "off":
		return false
	}
	return true
}

func (r *reader) choice(name string, choices ...string) string {
	text := r.text(name, choices[0])
	if slices.Contains(choices, text) {
		return text
	}
	r.fail(name, fmt.Errorf("is %.64q, must be one of %s", text, strings.Join(choices, ", ")))
	return choices[0]
}

func (r *reader) colour(name, otherwise string) color.NRGBA {
	c, err := parseColour(r.text(name, otherwise))
	if err != nil {
		r.fail(name, err)
	}
	return c
}

// Parse parses the parameters of a picture. Errors are the client's fault.
func Parse(form url.Values) (Options, error) {
	r := &reader{form: form}
	r.choice("graphType", "line")
	l, ok := looks[r.text("template", "default")]
	if !ok {
		l = looks["default"]
	}
	o := Options{
		Width: int(r.number("width", 330, 1, MaxSide)), Height: int(r.number("height", 250, 1, MaxSide)),
		title: r.text("title", ""), vtitle: r.text("vtitle", ""), vtitleRight: r.text("vtitleRight", ""),
		graphOnly: r.flag("graphOnly"), hideGrid: r.flag("hideGrid"), uniqueLegend: r.flag("uniqueLegend"),
		hideXAxis: r.flag("hideAxes") || r.flag("hideXAxis"), hideYAxis: r.flag("hideAxes") || r.flag("hideYAxis"),
		back: r.colour("bgcolor", l.back), fore: r.colour("fgcolor", l.fore),
		fontSize: r.number("fontSize", 10, 4, 72), lineWidth: r.number("lineWidth", 1.2, 0, 50), areaAlpha: r.number("areaAlpha", 1, 0, 1),
		areaMode: r.choice("areaMode", "none", "first", "all", "stacked"),
		lineMode: r.choice("lineMode", "slope", "staircase", "connected"),
		units:    strings.ToLower(r.text("yUnitSystem", "si")),
		low:      [2]*float64{r.end("yMinLeft", "yMin"), r.end("yMinRight", "yMin")},
		high:     [2]*float64{r.end("yMaxLeft", "yMax"), r.end("yMaxRight", "yMax")},
	}
	lines, err := parseColours(r.text("colorList", l.lines))
	if err != nil {
		r.fail("colorList", err)
	}
	o.lines = lines
	if r.text("hideLegend", "") != "" {
		hide := r.flag("hideLegend")
		o.hideLegend = &hide
	}
	for i, low := range o.low {
		if high := o.high[i]; low != nil && high != nil && *low >= *high {
			r.fail("yMin", fmt.Errorf("is %v, must be less than yMax, %v", *low, *high))
		}
	}
	return o, r.err
}

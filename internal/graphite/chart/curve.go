package chart

import (
	"image/color"
	"math"

	"varve/internal/graphite/function"
)

// A curve is the drawing of a series.
type curve struct {
	name        string
	start, step int64 // in seconds
	values      []float64
	base        []float64 // lower edge of an area, nil for 0
	filled      bool
	hidden      bool
	right       bool // on the right axis
	upright     bool // a vertical line at each value that is not 0
	colour      color.NRGBA
	width, dash float64
}

// read merges the points of each series to at most one per column of pixels, and stacks
// the series.
func (c *Chart) read(look func() error) error {
	stacks := map[string]map[int64]float64{}
	index := 0
	for i, s := range c.series {
		if err := look(); err != nil {
			return err
		}
		few := *s
		few.Consolidate(c.perPoint(s))
		rows, err := few.Rows()
		if err != nil {
			return err
		}
		k := &curve{
			name: s.Name, start: s.Start, step: max(1, s.Step) * int64(few.PerPoint()), values: rows,
			hidden: s.Options.Invisible, right: s.Options.SecondYAxis, upright: s.Options.DrawAsInfinite,
			width: c.o.lineWidth, colour: c.colourOf(s, &index),
		}
		k.take(s.Options)
		c.fill(k, s, i, stacks)
		c.curves = append(c.curves, k)
	}
	return nil
}

// perPoint returns the number of values that are merged to one point.
func (c *Chart) perPoint(s *function.Series) int {
	before := s.PerPoint()
	rows := (len(s.Values) + before - 1) / before
	return before * max(1, (rows+c.columns-1)/c.columns)
}

// take applies the options of a series, which functions have set.
func (k *curve) take(o function.Options) {
	if o.Alpha != nil && *o.Alpha == *o.Alpha {
		k.colour = faded(k.colour, *o.Alpha)
	}
	if o.LineWidth != nil && *o.LineWidth == *o.LineWidth {
		k.width = max(0, min(50, *o.LineWidth))
	}
	if o.Dashed != nil && *o.Dashed > 0 {
		k.dash = max(1, min(MaxSide, *o.Dashed))
	}
}

// fill decides whether the area below a curve is filled, and what its lower edge is.
func (c *Chart) fill(k *curve, s *function.Series, i int, stacks map[string]map[int64]float64) {
	mode := c.o.areaMode
	k.filled = s.Options.Stacked || mode == "all" || mode == "stacked" || mode == "first" && i == 0
	name := "\x00" + s.Tags["stacked"]
	switch {
	case k.upright:
		k.filled = false
	case s.Options.Stacked: // the values are sums already
		if k.hidden {
			stacks[name] = map[int64]float64{}
		}
		k.stack(stacks, name, false)
	case mode == "stacked":
		side := "left"
		if k.right {
			side = "right"
		}
		k.stack(stacks, side, true)
	}
}

// stack puts a curve on top of a stack. Values with the same time are added up, unless
// they are sums already.
func (k *curve) stack(stacks map[string]map[int64]float64, name string, add bool) {
	sums := stacks[name]
	if sums == nil {
		sums = map[int64]float64{}
		stacks[name] = sums
	}
	k.values, k.base = append([]float64(nil), k.values...), make([]float64, len(k.values))
	for i, v := range k.values {
		at := k.start + int64(i)*k.step
		k.base[i] = sums[at]
		if v != v {
			continue
		}
		if add {
			k.values[i] += sums[at]
		}
		sums[at] = k.values[i]
	}
}

// measure widens an axis to include the values.
func (k *curve) measure(a *scale, right bool) {
	if k.right != right || k.upright {
		if k.upright && k.right == right && len(k.values) > 0 && !a.used {
			a.note(0)
			a.note(1)
		}
		return
	}
	for i, v := range k.values {
		if v != v || math.IsInf(v, 0) {
			continue
		}
		a.note(v)
		if k.filled && k.base == nil {
			a.note(0)
		} else if k.filled {
			a.note(k.base[i])
		}
	}
}

func (k *curve) axis(c *Chart) *scale {
	if k.right {
		return &c.axes[1]
	}
	return &c.axes[0]
}

// runs calls f for the indexes of values that are drawn as one line: those between two
// gaps or, if connected, all values.
func (k *curve) runs(connected bool, f func(list []int) error) error {
	var list []int
	for i, v := range k.values {
		if v == v && !math.IsInf(v, 0) {
			list = append(list, i)
			continue
		}
		if connected || len(list) == 0 {
			continue
		}
		if err := f(list); err != nil {
			return err
		}
		list = list[:0]
	}
	if len(list) == 0 {
		return nil
	}
	return f(list)
}

// path returns the points of a line through values. A staircase keeps each value until
// the next.
func (k *curve) path(c *Chart, list []int, values []float64) []point {
	a := k.axis(c)
	points := make([]point, 0, 2*len(list)+1)
	for n, i := range list {
		x, y := c.column(k.start+int64(i)*k.step), a.row(valueAt(values, i))
		if c.o.lineMode == "staircase" && n > 0 {
			points = append(points, point{x, points[len(points)-1].y})
		}
		points = append(points, point{x, y})
	}
	if c.o.lineMode == "staircase" || len(list) == 1 { // a single value is as long as its step
		last := points[len(points)-1]
		points = append(points, point{max(last.x+1, c.column(k.start+int64(list[len(list)-1]+1)*k.step)), last.y})
	}
	return points
}

// valueAt returns a value, or 0, the lower edge of an area without a base, if values is nil.
func valueAt(values []float64, i int) float64 {
	if values == nil {
		return 0
	}
	return values[i]
}

// reach returns the range of y of a line. It exceeds the plot so far that the edge of a
// clipped line is not visible.
func (k *curve) reach(c *Chart) (low, high float64) {
	return float64(c.plot.Min.Y) - k.width - 2, float64(c.plot.Max.Y) + k.width + 2
}

func (k *curve) paintArea(c *Chart) error {
	if !k.filled || k.hidden {
		return nil
	}
	low, high := k.reach(c)
	return k.runs(c.o.lineMode == "connected", func(list []int) error {
		edge := clipped(k.path(c, list, k.values), low, high)
		floor := clipped(k.path(c, list, k.base), low, high)
		for i := len(floor) - 1; i >= 0; i-- {
			edge = append(edge, floor[i])
		}
		return c.to.area(edge, faded(k.colour, c.o.areaAlpha))
	})
}

func (k *curve) paintLine(c *Chart) error {
	if k.hidden || k.width == 0 {
		return nil
	}
	if k.upright {
		return k.paintUpright(c)
	}
	low, high := k.reach(c)
	return k.runs(c.o.lineMode == "connected", func(list []int) error {
		return c.to.line(clipped(k.path(c, list, k.values), low, high), k.width, k.dash, k.colour)
	})
}

// paintUpright draws a line over the whole height at each value that is not 0.
func (k *curve) paintUpright(c *Chart) error {
	for i, v := range k.values {
		if v != v || v == 0 {
			continue
		}
		x := c.column(k.start + int64(i)*k.step)
		way := []point{{x, float64(c.plot.Min.Y)}, {x, float64(c.plot.Max.Y)}}
		if err := c.to.line(way, k.width, k.dash, k.colour); err != nil {
			return err
		}
	}
	return nil
}

package chart

import (
	"bufio"
	"image"
	"image/color"
	"io"
	"math"
	"time"

	"golang.org/x/image/font"

	"varve/internal/graphite/function"
)

// A Chart is a picture of series. Draw and WriteSVG may be called once each, and not
// concurrently.
type Chart struct {
	o           Options
	face        font.Face
	zone        *time.Location
	from, until int64 // in seconds since 1970
	series      []*function.Series
	curves      []*curve
	columns     int // of pixels; a series has at most one point for each

	plot  image.Rectangle
	axes  [2]scale // left and right
	keys  []*curve // of the legend
	slots legend
	to    canvas
}

// New lays out a picture of series between two times. The time axis is in the zone of from.
// New fails if a consolidation does not exist, and with errors of look, which it calls
// regularly: look may cancel the work, or wait while others have their turns.
func New(o Options, series []*function.Series, from, until time.Time, look func() error) (*Chart, error) {
	face, err := newFace(o.fontSize)
	if err != nil {
		return nil, err
	}
	c := &Chart{o: o, face: face, zone: from.Location(), from: from.Unix(), until: max(until.Unix(), from.Unix()+1), series: series, columns: max(o.Width, 1)}
	if err := c.read(look); err != nil {
		return nil, err
	}
	c.layOut()
	return c, nil
}

// Bytes estimates the memory of a picture: the pixels, and the points of each series with
// their sums.
func (o Options) Bytes(series []*function.Series) int64 {
	n := 12 * int64(o.Width) * int64(o.Height)
	for _, s := range series {
		n += 256 + 64*int64(min(len(s.Values), o.Width))
	}
	return n
}

// Draw returns the picture as pixels. look is as in New.
func (c *Chart) Draw(look func() error) (image.Image, error) {
	to := &rasterCanvas{look: look, image: image.NewRGBA(image.Rect(0, 0, c.o.Width, c.o.Height)), face: c.face}
	c.to = to
	return to.image, c.paint()
}

// WriteSVG writes the picture as SVG. look is as in New.
func (c *Chart) WriteSVG(look func() error, w io.Writer) error {
	to := &svgCanvas{look: look, w: bufio.NewWriterSize(w, 32<<10), size: c.o.fontSize}
	c.to = to
	to.begin(c.o.Width, c.o.Height)
	if err := c.paint(); err != nil {
		return err
	}
	return to.finish()
}

func (c *Chart) lineHeight() float64 { return math.Ceil(c.o.fontSize * 1.35) }

// layOut divides the picture among the title, the axes, the legend and the plot.
func (c *Chart) layOut() {
	o := &c.o
	if o.graphOnly {
		c.plot = image.Rect(0, 0, o.Width, o.Height)
		c.settle()
		return
	}
	const margin = 10
	line := c.lineHeight()
	left, right, top, bottom := float64(margin), float64(o.Width-margin), float64(margin), float64(o.Height-margin)
	if o.title != "" {
		top += line + 4
	}
	c.chooseKeys()
	bottom -= c.slots.arrange(c, right-left, (bottom-top)/2)
	if !o.hideXAxis {
		bottom -= line + 2
	}
	if o.vtitle != "" {
		left += line
	}
	if o.vtitleRight != "" {
		right -= line
	}
	c.plot = image.Rect(int(left), int(top), int(right), int(bottom))
	c.settle()
	if !o.hideYAxis {
		left += c.labelWidth(0)
		right -= c.labelWidth(1)
	}
	c.plot = image.Rect(int(left), int(top), max(int(left)+1, int(right)), max(int(top)+1, int(bottom)))
	c.settle()
}

// settle fits the axes to the height of the plot.
func (c *Chart) settle() {
	for i := range c.axes {
		a := &c.axes[i]
		*a = scale{}
		for _, curve := range c.curves {
			curve.measure(a, i == 1)
		}
		a.top, a.bottom = float64(c.plot.Min.Y), float64(c.plot.Max.Y)
		a.settle(c.o.low[i], c.o.high[i], float64(c.plot.Dy())/max(25, 2.2*c.lineHeight()))
	}
}

// labelWidth returns the width of the labels of an axis, with a margin.
func (c *Chart) labelWidth(axis int) float64 {
	a := &c.axes[axis]
	if !a.used {
		return 0
	}
	widest := 0.0
	for _, v := range a.marks() {
		widest = max(widest, widthOf(c.face, a.label(v, c.o.units)))
	}
	return math.Ceil(widest) + 6
}

func (c *Chart) paint() error {
	o := &c.o
	c.to.rect(0, 0, float64(o.Width), float64(o.Height), o.back)
	if !c.axes[0].used && !c.axes[1].used {
		c.paintNothing()
		return nil
	}
	if !o.graphOnly {
		c.paintAxes()
		c.paintTitles()
	}
	c.to.inside(c.plot)
	if err := c.paintCurves(); err != nil {
		return err
	}
	if !o.graphOnly {
		c.slots.paint(c)
	}
	return nil
}

// paintNothing draws the message that there is no data.
func (c *Chart) paintNothing() {
	c.paintTitles()
	text := fit(c.face, "No Data", float64(c.o.Width))
	c.to.text(float64(c.o.Width)/2, float64(c.o.Height)/2+c.o.fontSize*0.35, text, middle, false, c.o.fore)
}

func (c *Chart) paintTitles() {
	o := &c.o
	width, height := float64(o.Width), float64(o.Height)
	if o.graphOnly {
		return
	}
	if o.title != "" {
		c.to.text(width/2, 8+o.fontSize, fit(c.face, o.title, width-20), middle, false, o.fore)
	}
	if o.vtitle != "" {
		c.to.text(6+o.fontSize, height/2, fit(c.face, o.vtitle, height-20), middle, true, o.fore)
	}
	if o.vtitleRight != "" {
		c.to.text(width-8, height/2, fit(c.face, o.vtitleRight, height-20), middle, true, o.fore)
	}
}

// paintAxes draws the grid, the frame and the labels.
func (c *Chart) paintAxes() {
	o := &c.o
	grid, frame := faded(o.fore, 0.18), faded(o.fore, 0.5)
	left, right, top, bottom := float64(c.plot.Min.X), float64(c.plot.Max.X), float64(c.plot.Min.Y), float64(c.plot.Max.Y)
	first := true
	for i := range c.axes {
		a := &c.axes[i]
		if !a.used {
			continue
		}
		for _, v := range a.marks() {
			y := math.Round(a.row(v))
			if !o.hideGrid && first {
				c.to.rect(left, y, right-left, 1, grid)
			}
			if o.hideYAxis {
				continue
			}
			if i == 0 {
				c.to.text(left-4, y+o.fontSize*0.36, a.label(v, o.units), end, false, o.fore)
			} else {
				c.to.text(right+4, y+o.fontSize*0.36, a.label(v, o.units), begin, false, o.fore)
			}
		}
		first = false
	}
	for _, m := range timeMarks(c.from, c.until, c.zone, (right-left)/(5*o.fontSize)) {
		x := math.Round(c.column(m.at))
		if !o.hideGrid {
			c.to.rect(x, top, 1, bottom-top, grid)
		}
		half := widthOf(c.face, m.label) / 2
		if !o.hideXAxis && x+half <= float64(o.Width) && x-half >= 0 {
			c.to.text(x, bottom+c.lineHeight(), m.label, middle, false, o.fore)
		}
	}
	if !o.hideYAxis {
		c.to.rect(left, top, 1, bottom-top, frame)
	}
	if !o.hideXAxis {
		c.to.rect(left, bottom, right-left, 1, frame)
	}
}

// column returns the x coordinate of a time.
func (c *Chart) column(at int64) float64 {
	share := float64(at-c.from) / float64(c.until-c.from)
	return float64(c.plot.Min.X) + max(-10, min(10, share))*float64(c.plot.Dx())
}

// paintCurves draws all areas, and then the lines over them.
func (c *Chart) paintCurves() error {
	for _, curve := range c.curves {
		if err := curve.paintArea(c); err != nil {
			return err
		}
	}
	for _, curve := range c.curves {
		if err := curve.paintLine(c); err != nil {
			return err
		}
	}
	return nil
}

// colourOf returns the colour of a series: the one that a function has set, or else the
// next one of the list, without the opacity that a function has set.
func (c *Chart) colourOf(s *function.Series, index *int) color.NRGBA {
	if s.Options.Color != "" {
		if own, err := parseColour(s.Options.Color); err == nil {
			return own
		}
	}
	own := c.o.lines[*index%len(c.o.lines)]
	*index++
	return own
}

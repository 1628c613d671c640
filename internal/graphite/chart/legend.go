package chart

import "fmt"

// A legend names the series of the colours. Its keys are in rows below the plot.
type legend struct {
	columns int
	keys    []*curve
	more    int // keys that do not fit
	top     float64
	left    float64
	cell    float64 // width of a column
}

// usualKeys is the largest number of series with which a picture has a legend, unless
// hideLegend is given.
const usualKeys = 10

// chooseKeys decides which series are in the legend.
func (c *Chart) chooseKeys() {
	hide := len(c.curves) > usualKeys
	if c.o.hideLegend != nil {
		hide = *c.o.hideLegend
	}
	if hide {
		return
	}
	seen := map[string]bool{}
	for i, k := range c.curves {
		if k.hidden || c.series[i].Nameless() || c.o.uniqueLegend && seen[k.name] {
			continue
		}
		seen[k.name] = true
		c.keys = append(c.keys, k)
	}
}

// arrange places the keys in columns of equal width. It returns the height of the legend,
// which is at most most.
func (l *legend) arrange(c *Chart, width, most float64) float64 {
	if len(c.keys) == 0 {
		return 0
	}
	line := c.lineHeight()
	widest := 0.0
	for _, k := range c.keys[:min(len(c.keys), MaxSide)] {
		widest = max(widest, widthOf(c.face, fit(c.face, k.name, width-line-4)))
	}
	l.cell = max(1, widest+line+14)
	l.columns = max(1, min(int(width/l.cell), len(c.keys)))
	rows := (len(c.keys) + l.columns - 1) / l.columns
	if room := int((most - 6) / line); rows > room {
		if rows = room; rows <= 0 {
			return 0
		}
	}
	l.keys = c.keys[:min(len(c.keys), rows*l.columns)]
	if len(l.keys) < len(c.keys) {
		l.keys = l.keys[:len(l.keys)-1]
		l.more = len(c.keys) - len(l.keys)
	}
	height := float64(rows)*line + 6
	l.left, l.top = 10, float64(c.o.Height)-10-float64(rows)*line
	l.cell = min(l.cell, width)
	return height
}

func (l *legend) paint(c *Chart) {
	line := c.lineHeight()
	place := func(i int) (x, y float64) {
		return l.left + float64(i%l.columns)*l.cell, l.top + float64(i/l.columns)*line
	}
	side := c.o.fontSize * 0.8
	for i, k := range l.keys {
		x, y := place(i)
		c.to.rect(x, y+(line-side)/2, side, side, k.colour)
		c.to.text(x+line, y+line-c.o.fontSize*0.35, fit(c.face, k.name, l.cell-line-4), begin, false, c.o.fore)
	}
	if l.more > 0 {
		x, y := place(len(l.keys))
		c.to.text(x+line, y+line-c.o.fontSize*0.35, fit(c.face, fmt.Sprintf("and %d more", l.more), l.cell-line), begin, false, c.o.fore)
	}
}

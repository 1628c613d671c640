package chart

import (
	"image"
	"image/color"
	"image/draw"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// A rasterCanvas draws on pixels.
type rasterCanvas struct {
	look  func() error
	image *image.RGBA
	face  font.Face
	clip  image.Rectangle
	fill  vector.Rasterizer
}

func (r *rasterCanvas) rect(x, y, width, height float64, c color.NRGBA) {
	at := image.Rect(int(math.Round(x)), int(math.Round(y)), int(math.Round(x+width)), int(math.Round(y+height)))
	draw.Draw(r.image, at, image.NewUniform(c), image.Point{}, draw.Over)
}

func (r *rasterCanvas) inside(clip image.Rectangle) { r.clip = clip.Intersect(r.image.Rect) }

// piece is the number of points that are filled at once. It is small because the work is
// proportional to the rectangle around them.
const piece = 32

func (r *rasterCanvas) line(points []point, width, dash float64, c color.NRGBA) error {
	if dash > 0 {
		return r.dashes(points, width, max(dash, 1), c)
	}
	for at := 0; at+1 < len(points); at += piece {
		if err := r.stroke(points[at:min(len(points), at+piece+1)], width, c); err != nil {
			return err
		}
	}
	return nil
}

// dashes draws dashes and gaps of equal length.
func (r *rasterCanvas) dashes(points []point, width, dash float64, c color.NRGBA) error {
	left, on := dash, true // left is the length until the next change
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		for length := math.Hypot(b.x-a.x, b.y-a.y); length > 0; {
			step := min(length, left)
			next := point{a.x + (b.x-a.x)*step/length, a.y + (b.y-a.y)*step/length}
			if on {
				if err := r.stroke([]point{a, next}, width, c); err != nil {
					return err
				}
			}
			a, length = next, length-step
			if left -= step; left <= 0 {
				left, on = dash, !on
			}
		}
	}
	return nil
}

// start begins a shape around points, and returns its bounding box. visible is false if
// the shape is outside the clip.
func (r *rasterCanvas) start(points []point, margin float64) (box image.Rectangle, visible bool) {
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, p := range points {
		low.x, low.y = min(low.x, p.x), min(low.y, p.y)
		high.x, high.y = max(high.x, p.x), max(high.y, p.y)
	}
	box = image.Rect(int(math.Floor(low.x-margin)), int(math.Floor(low.y-margin)), int(math.Ceil(high.x+margin))+1, int(math.Ceil(high.y+margin))+1).Intersect(r.clip)
	if box.Empty() {
		return box, false
	}
	r.fill.Reset(box.Dx(), box.Dy())
	return box, true
}

func (r *rasterCanvas) polygon(box image.Rectangle, corners ...point) {
	at := func(p point) (x, y float32) {
		return float32(p.x - float64(box.Min.X)), float32(p.y - float64(box.Min.Y))
	}
	r.fill.MoveTo(at(corners[0]))
	for _, p := range corners[1:] {
		r.fill.LineTo(at(p))
	}
	r.fill.ClosePath()
}

// stroke fills the outline of a line: a rectangle for each part, and a disc where parts
// meet. All have the same orientation, so that overlaps do not cancel out.
func (r *rasterCanvas) stroke(points []point, width float64, c color.NRGBA) error {
	half := width / 2
	box, visible := r.start(points, half+1)
	if !visible {
		return r.look()
	}
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		if length == 0 {
			continue
		}
		nx, ny := -(b.y-a.y)/length*half, (b.x-a.x)/length*half
		r.polygon(box, point{a.x + nx, a.y + ny}, point{a.x - nx, a.y - ny}, point{b.x - nx, b.y - ny}, point{b.x + nx, b.y + ny})
		if i > 1 && width > 1.5 {
			r.disc(box, a, half)
		}
	}
	r.fill.Draw(r.image, box, image.NewUniform(c), image.Point{})
	return r.look()
}

func (r *rasterCanvas) disc(box image.Rectangle, at point, radius float64) {
	const corners = 12
	var around [corners]point
	for i := range around {
		sin, cos := math.Sincos(-2 * math.Pi * float64(i) / corners)
		around[i] = point{at.x + radius*cos, at.y - radius*sin}
	}
	r.polygon(box, around[:]...)
}

func (r *rasterCanvas) area(points []point, c color.NRGBA) error {
	box, visible := r.start(points, 1)
	if visible {
		r.polygon(box, points...)
		r.fill.Draw(r.image, box, image.NewUniform(c), image.Point{})
	}
	return r.look()
}

func (r *rasterCanvas) text(x, y float64, s string, a anchor, up bool, c color.NRGBA) {
	width := widthOf(r.face, s)
	before := [...]float64{0, width / 2, width}[a]
	if !up {
		d := font.Drawer{Dst: r.image, Src: image.NewUniform(c), Face: r.face, Dot: fixed.P(int(math.Round(x-before)), int(math.Round(y)))}
		d.DrawString(s)
		return
	}
	// Vertical text is drawn on a mask, which is then rotated.
	m := r.face.Metrics()
	ascent, height := m.Ascent.Ceil(), m.Ascent.Ceil()+m.Descent.Ceil()
	mask := image.NewAlpha(image.Rect(0, 0, int(width)+2, height))
	d := font.Drawer{Dst: mask, Src: image.Opaque, Face: r.face, Dot: fixed.P(0, ascent)}
	d.DrawString(s)
	turned := image.NewAlpha(image.Rect(0, 0, height, mask.Rect.Dx()))
	for v := range height {
		for u := range mask.Rect.Dx() {
			turned.SetAlpha(v, mask.Rect.Dx()-1-u, mask.AlphaAt(u, v))
		}
	}
	at := image.Pt(int(math.Round(x))-ascent, int(math.Round(y+before))-turned.Rect.Dy())
	draw.DrawMask(r.image, turned.Rect.Add(at), image.NewUniform(c), image.Point{}, turned, image.Point{}, draw.Over)
}

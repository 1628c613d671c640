package chart

import (
	"image"
	"image/color"
	"math"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"

	"varve/internal/clip"
)

// A point is a position in the picture, in pixels from the upper left corner.
type point struct{ x, y float64 }

// A canvas is a surface to draw on.
type canvas interface {
	// rect fills a rectangle.
	rect(x, y, width, height float64, c color.NRGBA)
	// line draws a line through points, clipped by inside. It is dashed if dash, the
	// length of dashes, is not 0.
	line(points []point, width, dash float64, c color.NRGBA) error
	// area fills a polygon, clipped by inside.
	area(points []point, c color.NRGBA) error
	// inside clips later lines and areas to a rectangle.
	inside(r image.Rectangle)
	// text writes s with its baseline at y. It begins, is centred or ends at x. up rotates
	// it around that point by 90 degrees counterclockwise.
	text(x, y float64, s string, a anchor, up bool, c color.NRGBA)
}

type anchor int

const (
	begin anchor = iota
	middle
	end
)

var parsed = sync.OnceValues(func() (*opentype.Font, error) { return opentype.Parse(goregular.TTF) })

// newFace returns the font at a size in pixels. It is not safe for concurrent use.
func newFace(size float64) (font.Face, error) {
	f, err := parsed()
	if err != nil {
		return nil, err
	}
	return opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingFull})
}

// maxText limits the bytes of a text that are measured and drawn.
const maxText = 1000

// fit truncates a text so that it is no wider than most pixels.
func fit(face font.Face, s string, most float64) string {
	s = clip.Cut(s, maxText)
	if widthOf(face, s) <= most {
		return s
	}
	runes := []rune(s)
	low, high := 0, len(runes) // the first low runes fit, with an ellipsis
	for low+1 < high {
		if at := (low + high) / 2; widthOf(face, string(runes[:at])+"…") <= most {
			low = at
		} else {
			high = at
		}
	}
	if low == 0 {
		return ""
	}
	return string(runes[:low]) + "…"
}

func widthOf(face font.Face, s string) float64 {
	return float64(font.MeasureString(face, s)) / 64
}

// clipped returns a line whose y is limited to the range from low to high. Where the
// original line is beyond the range, the new one follows its end.
func clipped(points []point, low, high float64) []point {
	out := make([]point, 0, len(points))
	for i, p := range points {
		if i > 0 {
			out = crossings(out, points[i-1], p, low, high)
		}
		out = append(out, point{p.x, math.Max(low, math.Min(high, p.y))})
	}
	return out
}

// crossings appends the points at which the line from a to b crosses low and high, in
// their order on the line.
func crossings(out []point, a, b point, low, high float64) []point {
	first, second := low, high
	if a.y > b.y {
		first, second = high, low
	}
	for _, y := range [2]float64{first, second} {
		if (a.y < y) != (b.y < y) && a.y != y && b.y != y {
			out = append(out, point{a.x + (b.x-a.x)*((y-a.y)/(b.y-a.y)), y})
		}
	}
	return out
}

package chart

import (
	"image"
	"image/color"
	"math"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// A point is a place in the picture, in pixels from the upper left corner.
type point struct{ x, y float64 }

// A canvas is a surface to draw on.
type canvas interface {
	// rect fills a rectangle.
	rect(x, y, width, height float64, c color.NRGBA)
	// line draws a line through points, with dashes of a length if that is not 0, inside
	// of the rectangle that was given to inside.
	line(points []point, width, dash float64, c color.NRGBA) error
	// area fills a polygon inside of the rectangle that was given to inside.
	area(points []point, c color.NRGBA) error
	// inside limits lines and areas to a rectangle.
	inside(r image.Rectangle)
	// text writes s with its baseline at y. It begins, is centred or ends at x; up turns
	// it by a quarter to the left around that place.
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

// maxText bounds what is written of a text, in bytes, before it is measured.
const maxText = 1000

// fit cuts a text so that it is no wider than most pixels.
func fit(face font.Face, s string, most float64) string {
	if len(s) > maxText {
		cut := maxText
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	s = strings.ToValidUTF8(s, "�")
	if widthOf(face, s) <= most {
		return s
	}
	runes := []rune(s)
	low, high := 0, len(runes) // the first low runes fit, with dots
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

// clipped returns a line that stays within the range of y: it runs along the ends of the
// range where the original lies beyond them.
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

// crossings adds where the way from a to b crosses the ends, in its order.
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

package chart

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"strconv"
)

// An svgCanvas writes SVG as it is drawn.
type svgCanvas struct {
	look func() error
	w    *bufio.Writer
	size float64 // of the font
	clip string  // attribute that clips to the last rectangle of inside
	n    int     // number of such rectangles so far
}

func (s *svgCanvas) begin(width, height int) {
	fmt.Fprintf(s.w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%g">`+"\n",
		width, height, width, height, s.size)
}

func (s *svgCanvas) finish() error {
	s.w.WriteString("</svg>\n")
	return s.w.Flush()
}

// paint returns a colour as one or two attributes.
func paint(attribute string, c color.NRGBA) string {
	text := fmt.Sprintf(`%s="#%02x%02x%02x"`, attribute, c.R, c.G, c.B)
	if c.A < 255 {
		text += fmt.Sprintf(` %s-opacity="%.3g"`, attribute, float64(c.A)/255)
	}
	return text
}

func (s *svgCanvas) rect(x, y, width, height float64, c color.NRGBA) {
	fmt.Fprintf(s.w, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" %s/>`+"\n", x, y, max(0, width), max(0, height), paint("fill", c))
}

func (s *svgCanvas) points(points []point) {
	var b []byte
	for i, p := range points {
		b = b[:0]
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendFloat(b, p.x, 'f', 2, 64)
		b = append(b, ',')
		b = strconv.AppendFloat(b, p.y, 'f', 2, 64)
		s.w.Write(b)
	}
}

// fault returns the error of look or of the writer, which keeps its first error.
func (s *svgCanvas) fault() error {
	if err := s.look(); err != nil {
		return err
	}
	_, err := s.w.Write(nil)
	return err
}

func (s *svgCanvas) line(points []point, width, dash float64, c color.NRGBA) error {
	dashes := ""
	if dash > 0 {
		dashes = fmt.Sprintf(` stroke-dasharray="%g"`, dash)
	}
	fmt.Fprintf(s.w, `<polyline fill="none" %s stroke-width="%g" stroke-linejoin="round"%s%s points="`, paint("stroke", c), width, dashes, s.clip)
	s.points(points)
	s.w.WriteString(`"/>` + "\n")
	return s.fault()
}

func (s *svgCanvas) area(points []point, c color.NRGBA) error {
	fmt.Fprintf(s.w, `<polygon %s%s points="`, paint("fill", c), s.clip)
	s.points(points)
	s.w.WriteString(`"/>` + "\n")
	return s.fault()
}

func (s *svgCanvas) inside(r image.Rectangle) {
	s.n++
	fmt.Fprintf(s.w, `<clipPath id="c%d"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath>`+"\n", s.n, r.Min.X, r.Min.Y, r.Dx(), r.Dy())
	s.clip = fmt.Sprintf(` clip-path="url(#c%d)"`, s.n)
}

func (s *svgCanvas) text(x, y float64, text string, a anchor, up bool, c color.NRGBA) {
	turn := ""
	if up {
		turn = fmt.Sprintf(` transform="rotate(-90 %.2f %.2f)"`, x, y)
	}
	fmt.Fprintf(s.w, `<text x="%.2f" y="%.2f" text-anchor="%s" %s%s>`, x, y, [...]string{"start", "middle", "end"}[a], paint("fill", c), turn)
	_ = xml.EscapeText(s.w, []byte(text)) // the writer keeps its error
	s.w.WriteString("</text>\n")
}

package chart

import (
	"encoding/hex"
	"fmt"
	"image/color"
	"strings"
)

// colours are the names that Graphite knows.
var colours = map[string]color.NRGBA{
	"black": {0, 0, 0, 255}, "white": {255, 255, 255, 255}, "blue": {100, 100, 255, 255}, "green": {0, 200, 0, 255},
	"red": {200, 0, 50, 255}, "yellow": {255, 255, 0, 255}, "orange": {255, 165, 0, 255}, "purple": {200, 100, 255, 255},
	"brown": {150, 100, 50, 255}, "cyan": {0, 255, 255, 255}, "aqua": {0, 150, 150, 255}, "gray": {175, 175, 175, 255},
	"grey": {175, 175, 175, 255}, "magenta": {255, 0, 255, 255}, "pink": {255, 100, 100, 255}, "gold": {200, 200, 0, 255},
	"rose": {200, 150, 200, 255}, "darkblue": {0, 0, 255, 255}, "darkgreen": {0, 255, 0, 255}, "darkred": {255, 0, 0, 255},
	"darkgray": {111, 111, 111, 255}, "darkgrey": {111, 111, 111, 255},
}

// parseColour parses a name, or 6 or 8 hexadecimal digits: red, green, blue and opacity.
func parseColour(text string) (color.NRGBA, error) {
	if c, ok := colours[strings.ToLower(text)]; ok {
		return c, nil
	}
	digits := strings.TrimPrefix(strings.TrimPrefix(text, "#"), "%23")
	if len(digits) == 6 {
		digits += "ff"
	}
	if len(digits) == 8 {
		if b, err := hex.DecodeString(digits); err == nil {
			return color.NRGBA{b[0], b[1], b[2], b[3]}, nil
		}
	}
	return color.NRGBA{}, fmt.Errorf("%.32q is not a colour: want a name such as red, or 6 or 8 hexadecimal digits", text)
}

func parseColours(text string) ([]color.NRGBA, error) {
	var list []color.NRGBA
	for name := range strings.SplitSeq(text, ",") {
		if len(list) == maxColours {
			return nil, fmt.Errorf("there are more than %d colours", maxColours)
		}
		c, err := parseColour(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

const maxColours = 1000

// faded returns c with its opacity multiplied by share, which is from 0 to 1.
func faded(c color.NRGBA, share float64) color.NRGBA {
	c.A = uint8(float64(c.A)*max(0, min(1, share)) + 0.5)
	return c
}

// A look is the colours of a template of Graphite.
type look struct {
	back, fore string
	lines      string
}

const usualLines = "blue,green,red,purple,brown,yellow,aqua,grey,magenta,pink,gold,rose"

// looks are the templates that come with Graphite.
var looks = map[string]look{
	"default": {"black", "white", usualLines},
	"noc":     {"black", "white", "blue,green,red,yellow,purple,brown,aqua,grey,magenta,pink,gold,rose"},
	"plain":   {"white", "black", usualLines},
	"summary": {"black", "white", "6666ff,66ff66,ff6666"},
	"alphas":  {"white", "black", "00ff00aa,ff000077,00337799"},
}

package graphite

import (
	"encoding/xml"
	"image/png"
	"io"
	"net/url"
	"strings"
	"testing"

	"varve/internal/query"
)

// TestPictures: a render request without a format, or with png or svg, gets a picture, even
// without series.
func TestPictures(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	s.send("a 1 1710071000\na 2 1710071060\na 3 1710071120\n")
	for _, c := range []struct {
		form          string
		width, height int
	}{
		{"target=a&from=-1h", 330, 250}, {"target=a&from=-1h&format=", 330, 250}, {"target=a&from=-1h&format=png&width=500&height=100&tz=Europe/Paris", 500, 100},
		{"target=nosuch", 330, 250}, {"", 330, 250}, {"target=stacked(a)&target=secondYAxis(a)&from=-1h&areaMode=all", 330, 250},
	} {
		form, err := url.ParseQuery(c.form)
		if err != nil {
			t.Fatal(err)
		}
		w := s.ask("GET", "/render", form)
		img, err := png.Decode(w.Body)
		if err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "image/png" || img.Bounds().Dx() != c.width || img.Bounds().Dy() != c.height {
			t.Errorf("%s: %d %v, %v", c.form, w.Code, w.Header(), err)
		}
	}
	w := s.ask("POST", "/render", url.Values{"target": {"alias(a,'<b>&')"}, "from": {"-1h"}, "format": {"svg"}})
	if w.Code != 200 || w.Header().Get("Content-Type") != "image/svg+xml" || !strings.Contains(w.Body.String(), "&lt;b&gt;&amp;") {
		t.Errorf("svg: %d %v %s", w.Code, w.Header(), w.Body)
	}
	for d := xml.NewDecoder(w.Body); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for form, want := range map[string]string{"width=5000": "width", "graphType=pie": "graphType", "bgcolor=x": "bgcolor"} {
		values, _ := url.ParseQuery(form + "&target=a")
		if w := s.ask("GET", "/render", values); w.Code != 400 || !strings.HasPrefix(w.Body.String(), want+":") {
			t.Errorf("%s: %d %s", form, w.Code, w.Body)
		}
	}

	limits := query.DefaultConfig()
	limits.MaxMemory = 1 << 20
	small := open(t, DefaultConfig(), limits)
	if w := small.ask("GET", "/render", url.Values{"width": {"4000"}, "height": {"4000"}}); w.Code != 400 || !strings.Contains(w.Body.String(), "query.max_memory") {
		t.Errorf("a picture larger than the memory of a query: %d %s", w.Code, w.Body)
	}
}

package chart

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"image"
	"image/color"
	"io"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"varve/internal/graphite/function"
)

var update = flag.Bool("update", false, "write the picture of docs/graphite.md again")

var noon = time.Date(2024, 3, 10, 12, 0, 0, 0, time.UTC)

// series returns a series of values a minute apart, the last of which is at now.
func series(name string, values ...float64) *function.Series {
	start := noon.Unix() - int64(len(values)-1)*60
	return &function.Series{Name: name, Tags: function.Tags{"name": name}, Start: start, End: noon.Unix() + 60, Step: 60, Values: values, Consolidation: "average"}
}

func wave(name string, n int, height, phase float64) *function.Series {
	values := make([]float64, n)
	for i := range values {
		values[i] = height * (1 + math.Sin(phase+float64(i)/20))
	}
	return series(name, values...)
}

func parse(t testing.TB, query string) Options {
	t.Helper()
	form, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Parse(form)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func newChart(t testing.TB, query string, list ...*function.Series) *Chart {
	t.Helper()
	from := noon.Add(-time.Hour)
	if len(list) > 0 {
		from = time.Unix(list[0].Start, 0).UTC()
	}
	c, err := New(parse(t, query), list, from, noon, goOn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pixels(t testing.TB, query string, list ...*function.Series) *image.RGBA {
	t.Helper()
	img, err := newChart(t, query, list...).Draw(goOn)
	if err != nil {
		t.Fatal(err)
	}
	return img.(*image.RGBA)
}

func svg(t testing.TB, query string, list ...*function.Series) string {
	t.Helper()
	var b bytes.Buffer
	if err := newChart(t, query, list...).WriteSVG(goOn, &b); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		if _, err := d.Token(); err == io.EOF {
			return b.String()
		} else if err != nil {
			t.Fatalf("%v in %.2000s", err, b.String())
		}
	}
}

var red, green, black = color.RGBA{255, 0, 0, 255}, color.RGBA{0, 255, 0, 255}, color.RGBA{0, 0, 0, 255}

// bare hides everything except the lines, which fill the whole picture.
const bare = "graphOnly=true&width=100&height=100&colorList=ff0000,00ff00&lineWidth=4&yMin=0&yMax=100"

// TestWhereLinesAre: values are at their positions on the axes, gaps are empty, areas are filled.
func TestWhereLinesAre(t *testing.T) {
	null := math.NaN()
	for _, c := range []struct {
		name, query string
		list        []*function.Series
		at          map[image.Point]color.RGBA
	}{
		{"flat", "", []*function.Series{series("a", 25, 25, 25)}, map[image.Point]color.RGBA{{50, 75}: red, {5, 75}: red, {50, 65}: black, {50, 85}: black}},
		{"slope", "", []*function.Series{series("a", 0, 100)}, map[image.Point]color.RGBA{{50, 50}: red, {25, 75}: red, {75, 75}: black}},
		{"staircase", "&lineMode=staircase", []*function.Series{series("a", 20, 80, 80)}, map[image.Point]color.RGBA{{25, 80}: red, {75, 20}: red, {50, 50}: red, {25, 50}: black}},
		{"gap", "", []*function.Series{series("a", 50, 50, null, 50, 50)}, map[image.Point]color.RGBA{{10, 50}: red, {90, 50}: red, {50, 50}: black}},
		{"connected", "&lineMode=connected", []*function.Series{series("a", 50, 50, null, 50, 50)}, map[image.Point]color.RGBA{{50, 50}: red}},
		{"all", "&areaMode=all", []*function.Series{series("a", 50, 50)}, map[image.Point]color.RGBA{{50, 90}: red, {50, 30}: black}},
		{"first", "&areaMode=first", []*function.Series{series("a", 50, 50), series("b", 80, 80)}, map[image.Point]color.RGBA{{50, 90}: red, {50, 20}: green, {50, 35}: black}},
		{"stacked", "&areaMode=stacked", []*function.Series{series("a", 30, 30), series("b", 40, 40)}, map[image.Point]color.RGBA{{50, 90}: red, {50, 50}: green, {50, 20}: black}},
		{"beyond", "", []*function.Series{series("a", -1000, 1100)}, map[image.Point]color.RGBA{{50, 50}: red, {20, 50}: black}},
	} {
		img := pixels(t, bare+c.query, c.list...)
		for at, want := range c.at {
			if got := img.RGBAAt(at.X, at.Y); got != want {
				t.Errorf("%s: %v at %v, want %v", c.name, got, at, want)
			}
		}
	}
}

// TestWhatFunctionsSay: options of series override those of the picture.
func TestWhatFunctionsSay(t *testing.T) {
	with := func(change func(*function.Options)) *image.RGBA {
		s := series("a", 50, 50)
		change(&s.Options)
		return pixels(t, bare, s)
	}
	if got := with(func(o *function.Options) { o.Color = "00ff00" }).RGBAAt(50, 50); got != green {
		t.Errorf("color: %v", got)
	}
	half := 0.5
	if got := with(func(o *function.Options) { o.Alpha = &half }).RGBAAt(50, 50); got.R < 120 || got.R > 136 {
		t.Errorf("alpha: %v", got)
	}
	ten := 10.0
	img := with(func(o *function.Options) { o.Dashed = &ten })
	if img.RGBAAt(5, 50) != red || img.RGBAAt(15, 50) != black || img.RGBAAt(25, 50) != red {
		t.Error("dashed has no dashes")
	}
	wide := 20.0
	if got := with(func(o *function.Options) { o.LineWidth = &wide }).RGBAAt(50, 42); got != red {
		t.Errorf("lineWidth: %v", got)
	}
	if img := with(func(o *function.Options) { o.DrawAsInfinite = true }); img.RGBAAt(0, 5) != red || img.RGBAAt(50, 50) != black {
		t.Error("drawAsInfinite draws no vertical line")
	}
	if got := with(func(o *function.Options) { o.Invisible = true }).RGBAAt(50, 50); got != black {
		t.Errorf("invisible: %v", got)
	}
	upper, lower := series("b", 80, 80), series("a", 20, 20)
	lower.Options.Stacked, lower.Options.Invisible, upper.Options.Stacked = true, true, true
	if img := pixels(t, bare, lower, upper); img.RGBAAt(50, 50) != green || img.RGBAAt(50, 90) != black {
		t.Error("the area between two series is not filled alone")
	}
	second := series("b", 5000, 5000)
	second.Options.SecondYAxis = true
	if img := pixels(t, "graphOnly=1&width=100&height=100&colorList=ff0000,00ff00&lineWidth=4&yMinLeft=0&yMaxLeft=100&yMinRight=0&yMaxRight=10000", series("a", 25, 25), second); img.RGBAAt(50, 75) != red || img.RGBAAt(50, 50) != green {
		t.Error("the axes are not apart")
	}
}

// TestSVG: the output is well-formed for all texts, and has the same parts as pixels.
func TestSVG(t *testing.T) {
	evil := `</text><script>alert("1")</script>&amp;` + "\x00\xff]]>"
	text := svg(t, url.Values{"title": {evil}, "vtitle": {evil}, "vtitleRight": {evil}}.Encode()+"&width=800&height=400", wave(evil, 100, 5, 0))
	if strings.Contains(text, "<script") || !strings.Contains(text, "&lt;script&gt;") {
		t.Errorf("the texts are not escaped: %.2000s", text)
	}
	if n := strings.Count(text, "<polyline"); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
	if !strings.Contains(text, `width="800" height="400"`) {
		t.Errorf("the size is missing: %.300s", text)
	}
	for _, query := range []string{"", "graphOnly=true"} {
		if text := svg(t, query); !strings.Contains(text, ">No Data</text>") {
			t.Errorf("%q without series: %s", query, text)
		}
	}
	if text := svg(t, "", series("a", math.NaN(), math.NaN())); !strings.Contains(text, ">No Data</text>") {
		t.Errorf("a series without values: %s", text)
	}
}

// This package draws the chart in docs/graphite.md.
func TestPictureOfThePage(t *testing.T) {
	const file = "../../../docs/pictures/chart.svg"
	got := svg(t, "width=720&height=300&template=plain&areaMode=stacked&areaAlpha=0.6&title=Requests+by+server&vtitle=requests/s&fontSize=11",
		wave("web.a.requests", 240, 120, 0), wave("web.b.requests", 240, 90, 1), wave("web.c.requests", 240, 60, 2.5))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is drawn now: go test ./internal/graphite/chart -run %s -update", file, t.Name())
	}
}

// TestLegend: the legend is omitted for many series, unless it is requested, and takes at
// most half of the picture.
func TestLegend(t *testing.T) {
	var many []*function.Series
	for i := range 40 {
		many = append(many, wave("name."+strings.Repeat("x", i), 10, 1, 0))
	}
	for query, want := range map[string]bool{"": false, "hideLegend=false": true} {
		if got := strings.Contains(svg(t, query, many...), ">name."); got != want {
			t.Errorf("%q: a legend is %v, want %v", query, got, want)
		}
	}
	c := newChart(t, "hideLegend=false&height=100", many...)
	if c.plot.Dy() < 20 || c.slots.more == 0 || len(c.slots.keys)+c.slots.more != len(many) {
		t.Errorf("the plot is %v, the legend has %d series and %d more", c.plot, len(c.slots.keys), c.slots.more)
	}
	if text := svg(t, "hideLegend=true", many[0]); strings.Contains(text, ">name.") {
		t.Error("the legend is not hidden")
	}
	if text := svg(t, "uniqueLegend=true", wave("same", 9, 1, 0), wave("same", 9, 2, 0)); strings.Count(text, ">same<") != 1 {
		t.Error("a name is twice in the legend")
	}
}

// TestBadParameters: an error names its parameter.
func TestBadParameters(t *testing.T) {
	for query, want := range map[string]string{
		"width=4001": "width: is \"4001\", but must be a number from 1 to 4000", "height=0": "height", "width=x": "width", "width=NaN": "width",
		"lineWidth=-1": "lineWidth", "areaAlpha=2": "areaAlpha", "areaMode=some": "areaMode", "lineMode=curve": "lineMode", "bgcolor=nosuch": "bgcolor",
		"fgcolor=12345": "fgcolor", "colorList=red,,blue": "colorList", "yMin=nan": "yMin", "yMin=2&yMax=1": "yMin", "graphType=pie": "graphType", "fontSize=1000": "fontSize",
	} {
		form, _ := url.ParseQuery(query)
		if _, err := Parse(form); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

// TestTimeMarks: marks are at round times of the zone's clock, also around a clock change.
func TestTimeMarks(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from  string
		span  time.Duration
		first string
	}{
		{"2024-03-10T11:00:30Z", time.Hour, "12:05 12:10"}, {"2024-03-30T10:00:00Z", 48 * time.Hour, "Sat 12:00 Sat 18:00 Sun 00:00 Sun 06:00"},
		{"2024-03-10T11:00:00Z", 30 * 24 * time.Hour, ""}, {"2024-03-10T11:00:00Z", 10 * 365 * 24 * time.Hour, "2025 2026"},
		{"2024-01-10T11:00:00Z", 365 * 24 * time.Hour, "Apr 2024 Jul 2024 Oct 2024"}, {"2024-03-10T11:00:00Z", 10 * time.Second, "12:00:00 12:00:01"},
		{"1970-01-01T00:00:00Z", 50 * 365 * 24 * time.Hour, ""},
	} {
		from, _ := time.Parse(time.RFC3339, c.from)
		var labels []string
		last := int64(math.MinInt64)
		for _, m := range timeMarks(from.Unix(), from.Add(c.span).Unix(), zone, 12) {
			if m.at <= last {
				t.Errorf("%s: a mark is not behind the one before", c.from)
			}
			last = m.at
			labels = append(labels, m.label)
		}
		if got := strings.Join(labels, " "); !strings.HasPrefix(got, c.first) || len(labels) < 2 || len(labels) > 13 {
			t.Errorf("%s for %v: %s", c.from, c.span, got)
		}
	}
}

func goOn() error { return nil }

// TestLooks: a picture of many series calls look for each of them in each step.
func TestLooks(t *testing.T) {
	const series = 100
	var list []*function.Series
	for range series {
		list = append(list, wave("a", 100, 1, 0))
	}
	looks := 0
	look := func() error { looks++; return nil }
	steps := func(name string, err error) {
		if err != nil || looks < series {
			t.Errorf("%s: %v after %d looks", name, err, looks)
		}
		looks = 0
	}
	c, err := New(parse(t, ""), list, noon.Add(-time.Hour), noon, look)
	steps("new", err)
	_, err = c.Draw(look)
	steps("png", err)
	steps("svg", newChart(t, "", list...).WriteSVG(look, io.Discard))
}

// TestCancel: a picture of many series ends when the request is cancelled.
func TestCancel(t *testing.T) {
	ended := func() error { return context.Canceled }
	if _, err := newChart(t, "", wave("a", 100, 1, 0)).Draw(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("png: %v", err)
	}
	if err := newChart(t, "", wave("a", 100, 1, 0)).WriteSVG(ended, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("svg: %v", err)
	}
}

// TestRandomPictures: drawing succeeds with all parameters and values.
func TestRandomPictures(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	values := []float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1e18, 1e-9, 42}
	for range 300 {
		query := url.Values{
			"width": {pick("", "1", "2", "20", "331", "700")}, "height": {pick("", "1", "3", "20", "200")}, "title": {pick("", "t", strings.Repeat("é", 3000))},
			"vtitle": {pick("", "v")}, "vtitleRight": {pick("", "v")}, "areaMode": {pick("none", "first", "all", "stacked")}, "lineMode": {pick("slope", "staircase", "connected")},
			"hideLegend": {pick("", "false", "true")}, "hideAxes": {pick("", "true")}, "hideGrid": {pick("", "1")}, "graphOnly": {pick("", "", "true")},
			"yMin": {pick("", "0", "-1e308", "-0.001")}, "yMax": {pick("", "1", "1e308", "1e-300")}, "lineWidth": {pick("", "0", "50")}, "fontSize": {pick("", "4", "72")},
			"yUnitSystem": {pick("si", "binary", "none")}, "template": {pick("plain", "alphas", "nosuch")},
		}.Encode()
		var list []*function.Series
		for range r.IntN(5) {
			s := series(pick("a", "", "\xff<", strings.Repeat("n", 5000)))
			for range r.IntN(50) {
				s.Values = append(s.Values, values[r.IntN(len(values))])
			}
			s.Step = []int64{1, 60, 1 << 40}[r.IntN(3)]
			dash := []float64{0.1, 5, -1, math.Inf(1)}[r.IntN(4)]
			s.Options = function.Options{SecondYAxis: r.IntN(2) == 0, Stacked: r.IntN(3) == 0, DrawAsInfinite: r.IntN(5) == 0}
			if r.IntN(3) == 0 {
				s.Options.Dashed, s.Options.Alpha, s.Options.LineWidth = &dash, &dash, &dash
			}
			list = append(list, s)
		}
		from := noon.Add(-time.Duration(1+r.Int64N(1<<uint(r.IntN(62)))) / time.Second * time.Second)
		form, _ := url.ParseQuery(query)
		o, err := Parse(form)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, query, err)
		}
		c, err := New(o, list, from, noon, goOn)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if img, err := c.Draw(goOn); err != nil || img.Bounds().Dx() != o.Width {
			t.Fatalf("seed %d: %s: %v", seed, query, err)
		}
		var b bytes.Buffer
		if err := c.WriteSVG(goOn, &b); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, query, err)
		}
		if err := xml.Unmarshal(b.Bytes(), new(struct{})); err != nil || strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Fatalf("seed %d: %s: %v\n%s", seed, query, err, b.String())
		}
	}
}

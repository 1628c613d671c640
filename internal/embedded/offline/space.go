package offline

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/safefile"
	"varve/internal/units"
)

// A SpaceReport says what uses the disk space of block files.
type SpaceReport struct {
	Files     int   `json:"files"`
	FileBytes int64 `json:"file_bytes"`
	Samples   int64 `json:"samples"`

	// PagesRead of Pages were read; the rest of the report is scaled up accordingly.
	Pages     int64 `json:"pages"`
	PagesRead int64 `json:"pages_read"`

	Metrics      []SpaceRow `json:"metrics"` // by bytes, the largest first
	MetricsTotal int        `json:"metrics_total"`
	Codecs       []SpaceRow `json:"codecs"`
	CodecsTotal  int        `json:"codecs_total"`

	TimelineBytes int64 `json:"timeline_bytes"` // of the files of timelines
}

// A SpaceRow is the space of one metric or codec.
type SpaceRow struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Samples int64  `json:"samples"`
	Chunks  int64  `json:"chunks"`
	Series  int64  `json:"series,omitempty"` // metrics only
}

// SpaceOptions bound a SpaceReport.
type SpaceOptions struct {
	Top   int // rows of each list; 0 = all
	Pages int // pages that are read, evenly spread; 0 = all
}

// Space says what takes the space.
func (d *Directory) Space(ctx context.Context, o SpaceOptions) (*SpaceReport, error) {
	if err := d.readable(); err != nil {
		return nil, err
	}
	files, err := d.openFiles()
	if err != nil {
		return nil, err
	}
	defer closeFiles(files)
	r, err := SpaceOf(ctx, files, o, func(id model.SeriesNumber) (model.Series, bool) {
		return catalogue.ReadSeries(d.catalogue.Reader(), id)
	})
	if err != nil {
		return nil, err
	}
	r.TimelineBytes, err = TimelineBytes(d.fs, d.path)
	return r, err
}

// TimelineBytes is the size of the files of the timelines beside the store in
// path.
func TimelineBytes(files vfs.FS, path string) (sum int64, err error) {
	dir := files.PathJoin(path, datadir.Timelines)
	names, err := safefile.List(files, dir)
	if err != nil {
		return 0, fmt.Errorf("list timelines: %w", err)
	}
	for _, name := range names {
		if info, err := files.Stat(files.PathJoin(dir, name)); err == nil { // otherwise it was removed meanwhile
			sum += info.Size()
		}
	}
	return sum, nil
}

func (d *Directory) openFiles() ([]*blockfile.File, error) {
	numbers, _, err := d.manifest()
	if err != nil {
		return nil, err
	}
	var files []*blockfile.File
	for _, n := range numbers {
		f, err := blockfile.Open(d.fs, d.blockPath(n), n, blockfile.NewCache(0))
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func closeFiles(files []*blockfile.File) {
	for _, f := range files {
		f.Close() // it was only read
	}
}

// spaceTally adds up chunks.
type spaceTally struct {
	seriesOf func(id model.SeriesNumber) (model.Series, bool)
	metrics  map[string]*SpaceRow
	codecs   map[string]*SpaceRow
	series   map[string]map[model.SeriesNumber]struct{}
	id       model.SeriesNumber
	metric   string // of id
	known    bool
}

// SpaceOf says what uses the space of open files. seriesOf returns the series of an id,
// false if the series no longer exists.
func SpaceOf(ctx context.Context, files []*blockfile.File, o SpaceOptions, seriesOf func(id model.SeriesNumber) (model.Series, bool)) (*SpaceReport, error) {
	r := &SpaceReport{Files: len(files)}
	t := &spaceTally{seriesOf: seriesOf, metrics: map[string]*SpaceRow{}, codecs: map[string]*SpaceRow{}, series: map[string]map[model.SeriesNumber]struct{}{}}
	for _, f := range files {
		r.FileBytes += f.Bytes
		r.Samples += f.Samples
		r.Pages += int64(f.Pages())
	}
	step := int64(1)
	if o.Pages > 0 {
		step = max(1, (r.Pages+int64(o.Pages)-1)/int64(o.Pages))
	}
	i := int64(0)
	for _, f := range files {
		for n := range f.Pages() {
			if i++; i%step != step/2 && step > 1 {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p, err := f.Page(n)
			if isDamage(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			r.PagesRead++
			entries := p.Iter()
			for e := (chunk.Entry{}); entries.Next(&e); {
				t.add(&e)
			}
		}
	}
	scale := 1.0
	if r.PagesRead > 0 {
		scale = float64(r.Pages) / float64(r.PagesRead)
	}
	for name, ids := range t.series {
		t.metrics[name].Series = int64(len(ids))
	}
	r.Metrics, r.MetricsTotal = biggest(t.metrics, o.Top, scale), len(t.metrics)
	r.Codecs, r.CodecsTotal = biggest(t.codecs, o.Top, scale), len(t.codecs)
	return r, nil
}

func (t *spaceTally) add(e *chunk.Entry) {
	if !t.known || t.id != e.Series {
		t.id, t.metric, t.known = e.Series, "(removed series)", true
		if s, ok := t.seriesOf(e.Series); ok {
			t.metric = s.Metric
		}
		if t.series[t.metric] == nil {
			t.series[t.metric] = make(map[model.SeriesNumber]struct{})
		}
		t.series[t.metric][t.id] = struct{}{}
	}
	addTo(t.metrics, t.metric, e)
	addTo(t.codecs, e.Kind.String()+": "+codecFamily(e.CodecName()), e)
}

func addTo(rows map[string]*SpaceRow, name string, e *chunk.Entry) {
	row := rows[name]
	if row == nil {
		row = &SpaceRow{Name: name}
		rows[name] = row
	}
	row.Bytes += int64(e.SizeBytes)
	row.Samples += int64(e.Count)
	row.Chunks++
}

var (
	codecWidths = regexp.MustCompile(`[:+][0-9]+`)
	codecCounts = regexp.MustCompile(`(linear|dictionary|split)[0-9]+`)
)

// codecFamily returns a codec's name without the parts that differ from chunk
// to chunk: widths and counts.
func codecFamily(name string) string {
	return codecCounts.ReplaceAllString(codecWidths.ReplaceAllString(name, ""), "$1")
}

func biggest(rows map[string]*SpaceRow, top int, scale float64) []SpaceRow {
	list := make([]SpaceRow, 0, len(rows))
	for _, r := range rows {
		r.Bytes = int64(float64(r.Bytes) * scale)
		r.Samples = int64(float64(r.Samples) * scale)
		r.Chunks = int64(float64(r.Chunks) * scale)
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b SpaceRow) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name)) })
	if top > 0 && len(list) > top {
		list = list[:top]
	}
	return list
}

// WriteText renders a report for people.
func (r *SpaceReport) WriteText(to io.Writer) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "%s, %s, %s, %s bytes a sample\n", units.Count(r.Files, "block file"), sizeText(r.FileBytes), units.Count(r.Samples, "sample"), ratioText(r.FileBytes, r.Samples))
	if r.PagesRead < r.Pages {
		fmt.Fprintf(w, "estimated from %d of %d pages\n", r.PagesRead, r.Pages)
	}
	t := newTable(w)
	t.row("METRIC", "BYTES", "SHARE", "SAMPLES", "BYTES/SAMPLE", "CHUNKS", "SERIES")
	for _, m := range r.Metrics {
		t.row(m.Name, m.Bytes, shareText(m.Bytes, r.FileBytes), m.Samples, ratioText(m.Bytes, m.Samples), m.Chunks, m.Series)
	}
	t.end()
	if n := r.MetricsTotal - len(r.Metrics); n > 0 {
		fmt.Fprintf(w, "and %d more metrics\n", n)
	}
	t = newTable(w)
	t.row("CODEC", "BYTES", "SHARE", "SAMPLES", "BYTES/SAMPLE", "CHUNKS")
	for _, m := range r.Codecs {
		t.row(m.Name, m.Bytes, shareText(m.Bytes, r.FileBytes), m.Samples, ratioText(m.Bytes, m.Samples), m.Chunks)
	}
	t.end()
	if n := r.CodecsTotal - len(r.Codecs); n > 0 {
		fmt.Fprintf(w, "and %d more codecs\n", n)
	}
	if r.TimelineBytes > 0 {
		fmt.Fprintf(w, "\ntimelines beside them: %s (varve inspect timelines lists them)\n", sizeText(r.TimelineBytes))
	}
	_, err := io.WriteString(to, w.String())
	return err
}

// table writes aligned columns, texts to the left, numbers to the right.
type table struct {
	w    io.Writer
	rows [][]string // the first is the heading
}

func newTable(w io.Writer) *table { return &table{w: w} }

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

// end writes the table after an empty line.
func (t *table) end() error {
	width := make([]int, len(t.rows[0]))
	text := make([]bool, len(t.rows[0]))
	for i, row := range t.rows {
		for j, c := range row {
			width[j] = max(width[j], utf8.RuneCountInString(c))
			text[j] = text[j] || i > 0 && !isNumber(c)
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		b.WriteByte('\n')
		line := ""
		for j, c := range row {
			pad := strings.Repeat(" ", width[j]-utf8.RuneCountInString(c))
			if text[j] {
				line += c + pad + "  "
			} else {
				line += pad + c + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " "))
	}
	_, err := fmt.Fprintln(t.w, b.String())
	return err
}

// isNumber reports whether a cell goes to the right: a number, a share, nothing.
func isNumber(cell string) bool { return strings.Trim(cell, "0123456789.-%") == "" }

func sizeText(bytes int64) string { return units.Bytes(bytes).Text() }

func ratioText(bytes, samples int64) string {
	if samples == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(bytes)/float64(samples))
}

func shareText(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

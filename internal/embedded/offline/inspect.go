package offline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// Bounds of the lists of inspect.
const (
	inspectSeries = 20
	inspectChunks = 500
)

// WriteOverview writes an overview of a store.
func (d *Directory) WriteOverview(w io.Writer) error {
	if err := d.readable(); err != nil {
		return err
	}
	files, err := d.openFiles()
	if err != nil {
		return err
	}
	defer closeFiles(files)
	fmt.Fprintf(w, "store        %s\nformat       version %d\nrow width    %d ms\n", d.path, d.catalogue.Spec.Version, d.catalogue.Spec.RowWidthMS)
	if err := d.writeCounts(w); err != nil {
		return err
	}
	var bytes, samples int64
	t := newTable(w)
	t.row("FILE", "SEQUENCE", "SAMPLES", "CHUNKS", "PAGES", "SERIES", "BYTES", "BYTES/SAMPLE", "DELETIONS", "FIRST", "LAST")
	for _, f := range files {
		t.row(f.Number, f.Sequence, f.Samples, f.Chunks, f.Pages(), f.Series.GetCardinality(), f.Bytes, ratioText(f.Bytes, f.Samples), f.Deletions, timeText(f.MinMS), timeText(f.MaxMS))
		bytes += f.Bytes
		samples += f.Samples
	}
	t.row("all", "", samples, "", "", "", bytes, ratioText(bytes, samples), "", "", "")
	if err := t.end(); err != nil {
		return err
	}
	if n, err := TimelineBytes(d.fs, d.path); err != nil {
		return err
	} else if n > 0 {
		fmt.Fprintf(w, "\nTimelines beside them: %s; varve inspect timelines lists them.\n", sizeText(n))
	}
	fmt.Fprintln(w, "\nSequence: of two samples with the same time, the one with the greater number is valid. Deletions up to the number are applied.")
	return nil
}

func (d *Directory) writeCounts(w io.Writer) error {
	for _, t := range []struct {
		name  string
		table byte
	}{{"series", catalogue.TableSeries}, {"block files", catalogue.TableFile}, {"deletions", catalogue.TableDeletion}, {"key-values", catalogue.TableValue}} {
		rows := 0
		err := catalogue.Scan(d.catalogue.Reader(), t.table, func(_, _ []byte) error {
			rows++
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%-12s %d\n", t.name, rows)
	}
	_, err := fmt.Fprintf(w, "log          from segment %d on\n", d.catalogue.Meta.LogFrom)
	return err
}

// WriteCatalogue writes the content of the catalogue, except for the series.
func (d *Directory) WriteCatalogue(w io.Writer) error {
	if err := d.readable(); err != nil {
		return err
	}
	m := d.catalogue.Meta
	fmt.Fprintf(w, "format       version %d\nrow width    %d ms, of %s\nnext series  %d\n", d.catalogue.Spec.Version, d.catalogue.Spec.RowWidthMS, d.catalogue.Spec.RowTimeUnit, m.NextSeries)
	if err := d.writeCounts(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "disk space   %s\n", sizeText(int64(d.catalogue.DiskSpace())))
	deletions, err := d.catalogue.Deletions()
	if err != nil || len(deletions) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nDeletions that some block file has not applied:")
	t := newTable(w)
	t.row("SEQUENCE", "SERIES", "FIRST", "LAST")
	for _, x := range deletions {
		t.row(x.Sequence, x.IDs.GetCardinality(), timeText(x.Range.StartMS), timeText(x.Range.EndMS))
	}
	return t.end()
}

// WriteFile writes the pages of a block file and, of one page if page is not
// negative, the chunks.
func (d *Directory) WriteFile(w io.Writer, number uint64, page int) error {
	if err := d.readable(); err != nil {
		return err
	}
	f, err := blockfile.Open(d.fs, d.blockPath(number), number, blockfile.NewCache(0))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no block file %d; varve inspect lists the block files", number)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if page >= f.Pages() {
		return fmt.Errorf("block file %d has pages 0 to %d, not %d", number, f.Pages()-1, page)
	}
	if page >= 0 {
		return d.writePage(w, f, page)
	}
	fmt.Fprintf(w, "file       %s\nbytes      %d\nsamples    %d, %s bytes each\nchunks     %d\nseries     %d\nsequence   %d\ndeletions  applied up to %d\ntimes      %s\n",
		f.Path, f.Bytes, f.Samples, ratioText(f.Bytes, f.Samples), f.Chunks, f.Series.GetCardinality(), f.Sequence, f.Deletions, spanText(f.Range()))
	t := newTable(w)
	t.row("PAGE", "OFFSET", "BYTES", "CHUNKS", "SAMPLES", "BYTES/SAMPLE", "FIRST SERIES", "FIRST SAMPLE")
	for i := range f.Pages() {
		ref := f.Ref(i)
		p, err := f.Page(i)
		if err != nil {
			t.row(i, ref.Offset, ref.Length, "damaged", "", "", ref.Series, timeText(ref.FirstMS))
			continue
		}
		var chunks, samples int64
		entries := p.Iter()
		for e := (chunk.Entry{}); entries.Next(&e); {
			chunks++
			samples += int64(e.Count)
		}
		t.row(i, ref.Offset, ref.Length, chunks, samples, ratioText(ref.Length, samples), ref.Series, timeText(ref.FirstMS))
	}
	return t.end()
}

func (d *Directory) writePage(w io.Writer, f *blockfile.File, page int) error {
	p, err := f.Page(page)
	if err != nil {
		return err
	}
	t := newTable(w)
	t.row("SAMPLES", "BYTES", "BYTES/SAMPLE", "FIRST", "LAST", "CODEC", "SERIES")
	entries := p.Iter()
	for e := (chunk.Entry{}); entries.Next(&e); {
		t.row(e.Count, e.SizeBytes, ratioText(int64(e.SizeBytes), int64(e.Count)), timeText(e.FirstMS), timeText(e.LastMS), e.CodecName(), catalogue.SeriesName(d.catalogue.Reader(), e.Series))
	}
	return errors.Join(entries.Err(), t.end())
}

// WriteSeries writes the chunks of the series of a metric that have all of the
// given tags.
func (d *Directory) WriteSeries(w io.Writer, metric string, tags []model.Tag) error {
	if err := d.readable(); err != nil {
		return err
	}
	files, err := d.openFiles()
	if err != nil {
		return err
	}
	defer closeFiles(files)
	wanted := model.Matchers(tags)
	shown, more := 0, 0
	err = catalogue.Scan(d.catalogue.Reader(), catalogue.TableSeries, func(key, value []byte) error {
		def, s, err := catalogue.ParseSeries(key, value)
		if err != nil {
			return err
		}
		if s.Metric != metric || !model.MatchesAll(wanted, s.Tags) {
			return nil
		}
		if shown == inspectSeries {
			more++
			return nil
		}
		shown++
		return d.writeSeries(w, files, def.ID, s)
	})
	switch {
	case err != nil:
		return err
	case shown == 0:
		return fmt.Errorf("no series of %s with these tags is in the catalogue; newer ones are in the log until the next checkpoint (varve inspect log)", metric)
	case more > 0:
		fmt.Fprintf(w, "\nand %d more series; name more tags\n", more)
	}
	return nil
}

// writeSeries lists the chunks of one series, by file. Raw samples are counted
// as 16 bytes: a time and a value of 8 each.
func (d *Directory) writeSeries(w io.Writer, files []*blockfile.File, id model.SeriesNumber, s model.Series) error {
	fmt.Fprintf(w, "%s, id %d\n", s, id)
	t := newTable(w)
	t.row("FILE", "ROW", "FIRST", "LAST", "SAMPLES", "BYTES", "BYTES/SAMPLE", "RATIO", "CODEC")
	var chunks, samples, bytes int64
	for _, f := range files {
		if !f.Series.Contains(uint32(id)) {
			continue
		}
		it := f.Iter(false)
		it.Seek(id, model.AllTime, false)
		for {
			e, err := it.Next()
			if isDamage(err) {
				t.row(f.Number, "", "", "", "", "", "", "", "damaged: "+err.Error())
				break
			}
			if err != nil {
				return err
			}
			if e == nil {
				break
			}
			chunks++
			samples += int64(e.Count)
			bytes += int64(e.SizeBytes)
			if chunks <= inspectChunks {
				t.row(f.Number, timeText(d.width().Partition(e.FirstMS)), timeText(e.FirstMS), timeText(e.LastMS), e.Count, e.SizeBytes,
					ratioText(int64(e.SizeBytes), int64(e.Count)), ratioText(16*int64(e.Count), int64(e.SizeBytes)), e.CodecName())
			}
		}
	}
	t.row("all", "", "", "", samples, bytes, ratioText(bytes, samples), ratioText(16*samples, bytes), units.Count(int64(chunks), "chunk"))
	if err := t.end(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// WriteLog writes what the segments of the log hold. With records, each record
// is listed.
func (d *Directory) WriteLog(w io.Writer, records bool) error {
	if err := d.readable(); err != nil {
		return err
	}
	l := logContent{segments: map[wal.Segment]*logSegment{}}
	if records {
		l.list = newTable(w)
		l.list.row("SEGMENT", "BYTES", "RECORD", "SERIES", "SAMPLES")
	}
	err := catalogue.Scan(d.catalogue.Reader(), catalogue.TableSeries, func(key, value []byte) error {
		def, s, err := catalogue.ParseSeries(key, value)
		if err == nil {
			l.kinds.define(def.ID, s.Type.Kind())
		}
		return err
	})
	if err != nil {
		return err
	}
	var damages []*store.CorruptionError
	options := d.catalogue.Meta.Log()
	options.OnDamage = func(e *store.CorruptionError) bool { damages = append(damages, e); return true }
	stats, err := wal.Replay(d.fs, d.fs.PathJoin(d.path, datadir.Log), options, l.add)
	if err != nil {
		return err
	}
	if records {
		if err := l.list.end(); err != nil {
			return err
		}
	}
	if err := d.writeSegments(w, &l); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nSegments from %d on are needed, earlier ones are in block files.\n", d.catalogue.Meta.LogFrom)
	if stats.CutBytes > 0 {
		fmt.Fprintf(w, "The last one ends in %d bytes of an incomplete write.\n", stats.CutBytes)
	}
	for _, e := range damages {
		fmt.Fprintf(w, "damaged: %v\n", e)
	}
	return nil
}

// writeSegments writes a line for each segment of the log.
func (d *Directory) writeSegments(w io.Writer, l *logContent) error {
	segments, err := wal.Segments(d.fs, d.fs.PathJoin(d.path, datadir.Log))
	if err != nil {
		return err
	}
	t := newTable(w)
	t.row("SEGMENT", "FILE BYTES", "RECORDS", "RECORD BYTES", "NEW SERIES", "SAMPLES", "BYTES/SAMPLE", "DELETIONS")
	for _, n := range segments {
		info, err := d.fs.Stat(d.fs.PathJoin(d.path, datadir.Log, n.FileName()))
		if err != nil {
			return err
		}
		s := l.segment(n)
		t.row(uint64(n), info.Size(), s.records, s.bytes, s.series, s.samples, ratioText(s.bytes, s.samples), s.deletions)
	}
	return t.end()
}

// logContent is the content of the log.
type logContent struct {
	segments map[wal.Segment]*logSegment
	list     *table // of the records; nil if they are not listed

	kinds kinds
	batch store.Batch
}

// logSegment has the counts of a segment.
type logSegment struct {
	records, samples, series, deletions, bytes int64
}

func (l *logContent) segment(n wal.Segment) *logSegment {
	if l.segments[n] == nil {
		l.segments[n] = &logSegment{}
	}
	return l.segments[n]
}

// add counts a record.
func (l *logContent) add(n wal.Segment, typ byte, payload []byte) error {
	s := l.segment(n)
	what, series, samples := logRecord(&l.kinds, &l.batch, typ, payload)
	s.records++
	s.bytes += int64(len(payload))
	s.samples += samples
	switch typ {
	case record.TypeBatch:
		s.series += series
	case record.TypeDeletion:
		s.deletions++
	}
	if l.list != nil {
		l.list.row(n, len(payload), what, series, samples)
	}
	return nil
}

// logRecord describes one record. series counts the new series or, for a
// deletion, the series whose samples it hides.
func logRecord(kinds *kinds, batch *store.Batch, typ byte, payload []byte) (what string, series, samples int64) {
	switch typ {
	case record.TypeBatch:
		rest, series, err := kinds.definitions(payload)
		if err != nil {
			return err.Error(), series, 0
		}
		batch.Reset(0)
		if err := record.Samples(rest, kinds.kind, batch); err != nil {
			return err.Error(), series, int64(len(batch.Samples))
		}
		return "batch", series, int64(len(batch.Samples))
	case record.TypeDeletion:
		x, err := record.ParseDeletion(payload)
		if err != nil {
			return err.Error(), 0, 0
		}
		return fmt.Sprintf("deletion %d of %s", x.Sequence, spanText(x.Range)), int64(x.IDs.GetCardinality()), 0
	}
	return fmt.Sprintf("unknown type %d", typ), 0, 0
}

// WriteText renders a report for people.
func (r *CheckReport) WriteText(to io.Writer) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "checked %s (%s, %s, %s, %s), %s of the catalogue (%d series), %s (%s)\n",
		units.Count(int64(r.Files), "block file"), sizeText(r.Bytes), units.Count(r.Pages, "page"), units.Count(r.Chunks, "chunk"), units.Count(r.Samples, "sample"),
		units.Count(r.Rows, "row"), r.Series, units.Count(int64(r.Segments), "log segment"), units.Count(r.Records, "record"))
	for _, f := range r.Findings {
		fmt.Fprintf(w, "\nDAMAGED  %s", f.File)
		if f.Offset >= 0 {
			fmt.Fprintf(w, ", at offset %d", f.Offset)
		}
		fmt.Fprintf(w, "\n  found   %s\n  cost    %s\n  remedy  %s\n", f.Problem, f.Cost, f.Remedy)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	switch n := int64(len(r.Findings)) + r.Further; n {
	case 0:
		fmt.Fprintln(w, "no damage found")
	case 1:
		fmt.Fprintln(w, "\n1 finding")
	default:
		fmt.Fprintf(w, "\n%d findings", n)
		if r.Further > 0 {
			fmt.Fprintf(w, ", the first %d of them listed", len(r.Findings))
		}
		fmt.Fprintln(w)
	}
	_, err := io.WriteString(to, w.String())
	return err
}

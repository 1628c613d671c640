package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/units"
)

const blockRemedy = "stop the server and run varve repair: it keeps everything that can be read and sets the damaged file aside; or restore the last backup"

const newerRemedy = "use the newer build; or restore a backup that was made before the newer build ran"

// NewerRemedy says what to do about a block file that cannot be read because a newer
// build wrote it; "" for any other reason.
func NewerRemedy(fs vfs.FS, path string) string {
	if blockfile.Newer(fs, path) {
		return newerRemedy
	}
	return ""
}

// blockFile checks one file of the manifest.
func (c *checker) blockFile(number uint64, meta catalogue.File) error {
	path := datadir.BlockPath(c.fs, c.dir, number)
	f, err := blockfile.Open(c.fs, path, number, blockfile.NewCache(0))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.report.outdated = true
		c.find(Finding{
			File: path, Offset: -1, part: partMissingFile, number: number,
			Problem: fmt.Sprintf("expected a file of %d bytes, got no such file", meta.Bytes),
			Cost:    "all samples of the file; the server does not start",
			Remedy:  "put the file back, or restore the last backup; varve repair removes it from the list",
		})
		return nil
	case isDamage(err):
		return c.unopened(number, path, meta.Bytes, err)
	case err != nil:
		return err
	}
	defer f.Close()
	c.report.Files++
	c.report.Bytes += f.Bytes
	b := newBlockCheck(c, f, number)
	if f.Bytes != meta.Bytes {
		b.find(f.Bytes, fmt.Sprintf("expected a file of %d bytes, got %d", meta.Bytes, f.Bytes), "the server does not start")
	}
	if err := b.run(); err != nil {
		return err
	}
	return c.read("block files", f.Bytes-b.read)
}

// unopened reports a file whose header, index or trailer is damaged.
func (c *checker) unopened(number uint64, path string, size int64, fault error) error {
	var samples int64
	pages := 0
	series := roaring.New()
	lost, err := blockfile.Salvage(c.fs, path, size, func(_ int64, p chunk.Page) error {
		pages++
		entries := p.Iter()
		for e := (chunk.Entry{}); entries.Next(&e); {
			samples += int64(e.Count)
			series.Add(uint32(e.Series))
		}
		return c.ctx.Err()
	})
	if err != nil {
		return err
	}
	cost := fmt.Sprintf("the server does not start; %s of %d series in %s can be read without the index", units.Count(samples, "sample"), series.GetCardinality(), units.Count(int64(pages), "page"))
	if p, err := blockfile.SalvageProperties(c.fs, path); err == nil && p.Samples >= samples {
		cost += fmt.Sprintf(", %d of %d samples cannot", p.Samples-samples, p.Samples)
	} else if lost > 0 {
		cost += fmt.Sprintf(", %d bytes belong to no readable page", lost)
	}
	f := Finding{File: path, Offset: -1, Problem: fault.Error(), Cost: cost, Remedy: blockRemedy, part: partBlockFile, number: number}
	if corruption, ok := errors.AsType[*store.CorruptionError](fault); ok {
		f.Offset, f.Problem = corruption.Offset, corruption.Reason
	}
	if blockfile.Newer(c.fs, path) {
		f.part, f.Remedy = partNewerFile, newerRemedy
	}
	c.find(f)
	return nil
}

// blockCheck is the check of one block file.
type blockCheck struct {
	*checker
	file   *blockfile.File
	number uint64
	read   int64

	decoder chunk.Decoder
	cols    model.Columns
	seen    *roaring.Bitmap
	tally   blockfile.Tally
	series  model.SeriesNumber
	last    int64 // of the previous chunk
	chunks  int64
	samples int64
	damaged []int // pages

	removed  *roaring.Bitmap // removed series that still have samples in the file
	leftover int64           // these samples
}

func newBlockCheck(c *checker, f *blockfile.File, number uint64) *blockCheck {
	return &blockCheck{checker: c, file: f, number: number, seen: roaring.New(), removed: roaring.New(), tally: blockfile.NewTally(f.Properties)}
}

func (b *blockCheck) find(offset int64, problem, cost string) {
	b.checker.find(Finding{
		File: b.file.Path, Offset: offset, Problem: problem, Cost: cost, Remedy: blockRemedy,
		part: partBlockFile, number: b.number,
	})
}

func (b *blockCheck) run() error {
	for i := range b.file.Pages() {
		ref := b.file.Ref(i)
		p, err := b.file.Page(i)
		switch {
		case isDamage(err):
			b.damaged = append(b.damaged, i)
		case err != nil:
			return err
		default:
			b.page(ref, p)
		}
		b.read += ref.Length
		if err := b.checker.read("block files", ref.Length); err != nil {
			return err
		}
	}
	b.report.Pages += int64(b.file.Pages())
	b.report.Chunks += b.chunks
	b.report.Samples += b.samples
	if b.report.Leftover += b.leftover; b.leftover > 0 {
		b.note("%s: %s of %d series that were removed; no query sees them, and the next merge of the file drops them", b.file.Path, units.Count(b.leftover, "sample"), b.removed.GetCardinality())
	}
	b.reportPages()
	if len(b.damaged) == 0 {
		b.content()
	}
	return nil
}

// page checks the content of a page whose checksum is correct.
func (b *blockCheck) page(ref blockfile.PageRef, p chunk.Page) {
	entries := p.Iter()
	for e := (chunk.Entry{}); entries.Next(&e); {
		if problem := b.chunk(&e); problem != "" {
			b.find(ref.Offset, fmt.Sprintf("page of %d bytes, series %d at %d ms: %s", ref.Length, e.Series, e.FirstMS, problem),
				fmt.Sprintf("%d samples of %s, %s", e.Count, b.name(e.Series), spanText(model.TimeRange{StartMS: e.FirstMS, EndMS: e.LastMS})))
		}
	}
	if err := entries.Err(); err != nil {
		b.find(ref.Offset, fmt.Sprintf("page of %d bytes: %v", ref.Length, err), "the rest of the page")
	}
}

// chunk checks one chunk and returns its fault, "" if there is none.
func (b *blockCheck) chunk(e *chunk.Entry) string {
	if b.chunks > 0 && (e.Series < b.series || e.Series == b.series && e.FirstMS <= b.last) {
		return fmt.Sprintf("expected series %d after %d ms or a later one", b.series, b.last)
	}
	b.series, b.last = e.Series, e.LastMS
	b.chunks++
	b.samples += int64(e.Count)
	b.seen.Add(uint32(e.Series))
	b.cols.Reset()
	if err := b.decoder.DecodeEntry(e, &b.cols); err != nil {
		return err.Error()
	}
	b.tally.Add(e.Series, &b.cols)
	if problem := compareEntry(e, &b.cols); problem != "" {
		return problem
	}
	if b.width.Width > 0 && b.width.Partition(e.FirstMS) != b.width.Partition(e.LastMS) {
		return "it crosses the border of a partition"
	}
	switch kind := b.kind(e.Series); {
	case kind == 0 && b.rows != nil && e.Series >= b.meta.NextSeries:
		return "no series ever had this id"
	case kind == 0 && !b.gone(e):
		// An expired sample hid these samples until the series was removed. The expired
		// sample itself may have been removed since.
		b.removed.Add(uint32(e.Series))
		b.leftover += int64(e.Count)
	case b.file.StepMS != 0:
		return b.buckets(e)
	case kind != 0 && kind != e.Kind:
		return fmt.Sprintf("expected values of kind %s, got %s", kind, e.Kind)
	}
	return ""
}

// buckets checks the values of a chunk of a file of buckets.
func (b *blockCheck) buckets(e *chunk.Entry) string {
	if e.Kind != model.AggregateKind {
		return fmt.Sprintf("expected values of kind %s in a file of buckets, got %s", model.AggregateKind, e.Kind)
	}
	for i, ms := range b.cols.Times {
		a, err := model.ParseAggregate(b.cols.Bytes(i))
		if err != nil {
			return fmt.Sprintf("bucket at %d ms: %v", ms, err)
		}
		if a.Sketch != "" && !b.file.Sketches {
			return fmt.Sprintf("bucket at %d ms: it has a sketch, but files of format version 2 have none", ms)
		}
		if ms%b.file.StepMS != 0 {
			return fmt.Sprintf("expected buckets that begin at multiples of %d ms, got one at %d", b.file.StepMS, ms)
		}
	}
	return ""
}

// compareEntry compares the statistics of a chunk with its samples.
func compareEntry(e *chunk.Entry, cols *model.Columns) string {
	n := cols.Len()
	if n != e.Count || n == 0 {
		return fmt.Sprintf("expected %d samples, got %d", e.Count, n)
	}
	if cols.Times[0] != e.FirstMS || cols.Times[n-1] != e.LastMS {
		return fmt.Sprintf("expected samples from %d to %d ms, got %d to %d", e.FirstMS, e.LastMS, cols.Times[0], cols.Times[n-1])
	}
	expires := int64(math.MinInt64)
	for i := range n {
		if i > 0 && cols.Times[i] <= cols.Times[i-1] {
			return fmt.Sprintf("sample at %d ms after sample at %d ms", cols.Times[i], cols.Times[i-1])
		}
		expires = max(expires, model.ExpiryMS(cols.Times[i], cols.TTL(i)))
	}
	if expires != e.MaxExpiryMS {
		return fmt.Sprintf("expected the last sample to expire at %d ms, got %d", e.MaxExpiryMS, expires)
	}
	if e.HasStats {
		return compareStats(e, cols.Values)
	}
	return ""
}

func compareStats(e *chunk.Entry, values []uint64) string {
	lo, hi, sum := model.Min(e.Kind, values), model.Max(e.Kind, values), model.Sum(e.Kind, values)
	s := &e.Stats
	same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	// Of 0 and -0, earlier versions of Varve used the one that came first.
	if lo != s.Min || hi != s.Max || !same(sum, s.Sum) || values[0] != s.First || values[len(values)-1] != s.Last {
		return fmt.Sprintf("expected minimum %v, maximum %v, sum %v, got %v, %v, %v", s.Min, s.Max, s.Sum, lo, hi, sum)
	}
	return ""
}

// gone reports whether every sample of a chunk of a series that does not exist
// (any more) is deleted, expired, or hidden by a newer file.
func (b *blockCheck) gone(e *chunk.Entry) bool {
	if b.rows == nil || e.MaxExpiryMS <= b.nowMS {
		return true
	}
	for i, ms := range b.cols.Times {
		if model.ExpiryMS(ms, b.cols.TTL(i)) <= b.nowMS {
			continue
		}
		if !slices.ContainsFunc(b.deletions, func(d *record.Deletion) bool {
			return d.Sequence > b.file.Deletions && d.Range.Contains(ms) && d.IDs.Contains(uint32(e.Series))
		}) {
			return false
		}
	}
	return true
}

// name is the name of a series, for people.
func (c *checker) name(id model.SeriesNumber) string {
	if c.rows == nil {
		return fmt.Sprintf("series %d", id)
	}
	return catalogue.SeriesName(c.rows, id)
}

// reportPages reports the pages that cannot be read, and what they cost.
func (b *blockCheck) reportPages() {
	missing := b.file.Samples - b.samples
	for _, i := range b.damaged {
		_, err := b.file.Page(i)
		problem := "it could not be read before, but can be read now"
		if corruption, ok := errors.AsType[*store.CorruptionError](err); ok {
			problem = corruption.Reason
		} else if err != nil {
			problem = err.Error()
		}
		cost := fmt.Sprintf("%d samples of %s", missing, b.affected(i))
		if len(b.damaged) > 1 {
			cost = fmt.Sprintf("samples of %s; %d samples on the file's %d damaged pages together", b.affected(i), missing, len(b.damaged))
		}
		b.find(b.file.Ref(i).Offset, problem, cost+"; queries that need them fail, others do not")
	}
}

// namesShown bounds the series that one finding names.
const namesShown = 3

// affected describes the series and the time range of the samples in a page, as far as
// the index shows.
func (b *blockCheck) affected(i int) string {
	ref := b.file.Ref(i)
	lo, hi := ref.Series, model.SeriesNumber(math.MaxUint32)
	span := b.file.Range()
	if i+1 < b.file.Pages() {
		next := b.file.Ref(i + 1)
		hi = next.Series
		if next.Series == ref.Series {
			span = model.TimeRange{StartMS: ref.FirstMS, EndMS: next.FirstMS - 1}
		} else if next.FirstMS <= b.file.MinMS && hi > 0 {
			hi--
		}
	}
	if uint32(lo) == b.file.Series.Maximum() {
		span.StartMS = ref.FirstMS
	}
	var names []string
	n := 0
	for it := b.file.Series.Iterator(); it.HasNext(); {
		id := model.SeriesNumber(it.Next())
		if id < lo || id > hi {
			continue
		}
		if n++; n <= namesShown {
			names = append(names, b.name(id))
		}
	}
	text := strings.Join(names, ", ")
	if n > namesShown {
		text = fmt.Sprintf("up to %d series (%s, ...)", n, text)
	}
	return text + ", " + spanText(span)
}

// content compares the file's index and properties with its pages.
func (b *blockCheck) content() {
	want := b.file.Properties
	got := b.tally.Properties()
	got.Sequence, got.Deletions, got.Late = want.Sequence, want.Deletions, want.Late
	if want.SeriesExpireMS == 0 { // the file is of an earlier build
		got.SeriesExpireMS = 0
	}
	if got != want {
		b.find(-1, fmt.Sprintf("expected properties %+v, got %+v", want, got), "queries and expiry may leave out samples of the file")
	}
	if !b.seen.Equals(b.file.Series) {
		b.find(-1, fmt.Sprintf("expected %d series, got %d", b.file.Series.GetCardinality(), b.seen.GetCardinality()), "queries may leave out series of the file")
	}
	if b.rows == nil {
		return
	}
	if m := b.manifest[b.number]; m.Sequence != 0 && (m.Sequence != want.Sequence || m.Deletions != want.Deletions) {
		b.find(-1, fmt.Sprintf("expected sequence %d and deletions %d, got %d and %d", m.Sequence, m.Deletions, want.Sequence, want.Deletions),
			"which of two samples with the same time is valid, and which samples are deleted")
	}
}

package offline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/rowtime"
	"varve/internal/safefile"
	"varve/internal/wal"
)

// findingsMax bounds the findings that a report lists; more are counted.
const findingsMax = 1000

// A Finding is one difference from what was written, or one violation of an
// invariant.
type Finding struct {
	File    string `json:"file"`
	Offset  int64  `json:"offset"` // in File, -1 if unknown
	Problem string `json:"problem"`
	Cost    string `json:"cost"`   // the data that is lost or at risk
	Remedy  string `json:"remedy"` // the way out

	part   part
	number uint64 // of a block file
}

// A part is the part of the store that has to be repaired.
type part uint8

const (
	partCatalogue part = iota
	partBlockFile
	partNewerFile // a block file of a newer build
	partMissingFile
	partLog
	partTimelines
)

// A CheckReport says what a check has examined and found.
type CheckReport struct {
	Files    int   `json:"files"`
	Pages    int64 `json:"pages"`
	Chunks   int64 `json:"chunks"`
	Samples  int64 `json:"samples"` // in block files
	Bytes    int64 `json:"bytes"`   // of block files
	Series   int64 `json:"series"`
	Rows     int64 `json:"rows"` // of the catalogue
	Segments int   `json:"log_segments"`
	Records  int64 `json:"log_records"`
	Logged   int64 `json:"log_samples"`
	Leftover int64 `json:"leftover_samples"` // of series that were removed

	Findings []Finding `json:"findings"`
	Further  int64     `json:"further_findings"` // not listed
	Notes    []string  `json:"notes"`            // worth knowing, but not damage

	unlisted []uint64 // block files that are in no manifest
	outdated bool     // the catalogue refers to missing files, and may be older than the other files
}

// Clean reports that nothing was found.
func (r *CheckReport) Clean() bool { return len(r.Findings) == 0 }

// CheckProgress says how far a check has come.
type CheckProgress struct {
	Doing string `json:"doing"`
	Bytes int64  `json:"bytes"` // read so far
	Total int64  `json:"total"` // to read, as far as known
}

// CheckOptions say how a check runs. The zero value reads as fast as it can.
type CheckOptions struct {
	BytesPerSecond int64 // 0 = unlimited
	Progress       func(CheckProgress)
	Now            func() time.Time // nil = time.Now
}

// Check reads all files of a store and reports all faults in them. The error says why
// the check could not be finished; a finding is not an error.
func (d *Directory) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	c := newChecker(ctx, d.fs, d.path, o)
	if d.catalogue == nil {
		if err := c.tables(nil); err != nil {
			return c.report, err
		}
		c.catalogueLost(d.fault)
		err := errors.Join(c.blocksWithoutCatalogue(), c.logFiles(wal.ReplayOptions{}, false), c.timelines(false))
		return c.report, err
	}
	live, err := d.catalogue.LiveTables()
	if err != nil {
		return c.report, err
	}
	if err := c.tables(live); err != nil {
		return c.report, err
	}
	c.width, c.rows = d.width(), d.catalogue.Reader()
	if err := c.readRows(); err != nil {
		return c.report, err
	}
	numbers, manifest, err := d.manifest()
	if err != nil {
		numbers, manifest = nil, nil // reported with the rows
	}
	c.manifest = manifest
	for _, n := range numbers {
		c.progress.Total += manifest[n].Bytes
	}
	for _, n := range numbers {
		if err := c.blockFile(n, manifest[n]); err != nil {
			return c.report, err
		}
	}
	if err := c.logFiles(d.catalogue.Meta.Log(), true); err != nil {
		return c.report, err
	}
	if err := c.orphans(); err != nil {
		return c.report, err
	}
	return c.report, c.timelines(false)
}

// A Running is an open store that is checked while it is in use. Rows, files and
// deletions are of one moment.
type Running struct {
	FS        vfs.FS
	Dir       string
	Width     rowtime.Spec
	Rows      pebble.Reader // of the catalogue
	Files     []*blockfile.File
	Deletions []*record.Deletion

	Log func() (wal.ReplayOptions, error) // the part of the log that is needed now
}

// Check checks the block files, the catalogue and the complete part of the log.
// It leaves out data that is written during the check.
func (r *Running) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	c := newChecker(ctx, r.FS, r.Dir, o)
	c.width, c.rows = r.Width, r.Rows
	if err := c.readRows(); err != nil {
		return c.report, err
	}
	c.deletions = r.Deletions
	c.manifest = make(map[uint64]catalogue.File)
	for _, f := range r.Files {
		c.manifest[f.Number] = catalogue.File{Bytes: f.Bytes, Sequence: f.Sequence, Deletions: f.Deletions}
		c.progress.Total += f.Bytes
	}
	for _, f := range r.Files {
		if err := c.blockFile(f.Number, c.manifest[f.Number]); err != nil {
			return c.report, err
		}
	}
	if err := r.checkLog(c); err != nil {
		return c.report, err
	}
	return c.report, c.timelines(true)
}

// checkLog checks the segments that are complete. Segments that a checkpoint releases
// meanwhile no longer matter.
func (r *Running) checkLog(c *checker) error {
	last, err := r.completeSegment()
	if err != nil || last == 0 {
		return err
	}
	before := *c.report
	for {
		needed, err := r.Log()
		if err != nil {
			return err
		}
		if needed.From > last {
			return nil
		}
		needed.To = last
		err = c.logFiles(needed, true)
		now, metaErr := r.Log()
		if metaErr != nil {
			return metaErr
		}
		if now.From == needed.From {
			return err
		}
		*c.report = before // a checkpoint released it while it was read
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
}

// completeSegment is the last complete segment, 0 if there is none: a segment
// is complete and durable before the next one is begun.
func (r *Running) completeSegment() (wal.Segment, error) {
	segments, err := wal.Segments(r.FS, r.FS.PathJoin(r.Dir, datadir.Log))
	if err != nil || len(segments) < 2 {
		return 0, err
	}
	return segments[len(segments)-2], nil
}

// A checker checks one store.
type checker struct {
	ctx     context.Context
	fs      vfs.FS
	dir     string
	options CheckOptions
	nowMS   int64

	rows      pebble.Reader // nil if the catalogue cannot be read
	width     rowtime.Spec
	manifest  map[uint64]catalogue.File
	meta      catalogue.Meta
	deletions []*record.Deletion
	kinds
	uncounted int64 // series with ids that no checkpoint has counted

	report   *CheckReport
	progress CheckProgress
	began    time.Time
	reported time.Time
}

func newChecker(ctx context.Context, fs vfs.FS, dir string, o CheckOptions) *checker {
	if o.Now == nil {
		o.Now = time.Now
	}
	now := time.Now()
	return &checker{
		ctx: ctx, fs: fs, dir: dir, options: o, nowMS: o.Now().UnixMilli(),
		report: &CheckReport{Findings: []Finding{}, Notes: []string{}},
		began:  now, reported: now,
	}
}

func (c *checker) find(f Finding) {
	if len(c.report.Findings) == findingsMax {
		c.report.Further++
		return
	}
	c.report.Findings = append(c.report.Findings, f)
}

func (c *checker) note(format string, args ...any) {
	if len(c.report.Notes) < findingsMax {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf(format, args...))
	}
}

// read counts bytes that were read, and waits if the check reads too fast.
func (c *checker) read(doing string, n int64) error {
	c.progress.Doing = doing
	c.progress.Bytes += n
	c.progress.Total = max(c.progress.Total, c.progress.Bytes) // the catalogue and the log are not announced
	now := time.Now()
	if c.options.Progress != nil && now.Sub(c.reported) >= time.Second {
		c.reported = now
		c.options.Progress(c.progress)
	}
	if rate := c.options.BytesPerSecond; rate > 0 {
		due := time.Duration(float64(c.progress.Bytes) / float64(rate) * float64(time.Second))
		if ahead := due - now.Sub(c.began); ahead > 0 {
			select {
			case <-time.After(ahead):
			case <-c.ctx.Done():
			}
		}
	}
	return c.ctx.Err()
}

// list returns the sorted names in a directory of the store, none if it is missing.
func (c *checker) list(dir string) ([]string, error) {
	names, err := safefile.List(c.fs, c.fs.PathJoin(c.dir, dir))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	slices.Sort(names)
	return names, nil
}

// orphans records block files that nothing refers to.
func (c *checker) orphans() error {
	names, err := c.list(datadir.Blocks)
	if err != nil {
		return err
	}
	for _, name := range names {
		n, ok := datadir.BlockNumber(name)
		if _, known := c.manifest[n]; known && ok {
			continue
		}
		if !ok {
			c.note("%s/%s is not a file of this store", datadir.Blocks, name)
			continue
		}
		c.report.unlisted = append(c.report.unlisted, n)
		if c.report.outdated {
			c.note("%s/%s is in no manifest, which may be older than the file: varve repair moves it to %s", datadir.Blocks, name, datadir.Quarantine)
			continue
		}
		c.note("%s/%s is in no manifest: a crash left it, and the next start removes it", datadir.Blocks, name)
	}
	return nil
}

// spanText renders a span of time for people.
func spanText(r model.TimeRange) string { return timeText(r.StartMS) + " to " + timeText(r.EndMS) }

func timeText(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

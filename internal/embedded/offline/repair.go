package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/safefile"
	"varve/internal/units"
)

// RepairOptions say how a repair runs.
type RepairOptions struct {
	DryRun bool             // only report what would be done
	Say    func(string)     // called with each step before it is done, and with its result; nil = quiet
	Now    func() time.Time // nil = time.Now

	// Fatal is called when the catalogue cannot be written, also on a full disk. It must not
	// return: end the process. nil = panic.
	Fatal func(reason string)
}

// An UnrepairableError lists findings that only a backup or a newer build can repair.
// Nothing was changed.
type UnrepairableError struct{ Findings []Finding }

func (e *UnrepairableError) Error() string {
	var b strings.Builder
	what := "the catalogue is damaged, which cannot be repaired"
	if e.Findings[0].part == partNewerFile {
		what = "block files were written by a newer build; this build would lose the parts that it cannot read"
	}
	fmt.Fprintf(&b, "%s: nothing was changed", what)
	for _, f := range e.Findings {
		fmt.Fprintf(&b, "\n  %s: %s\n    %s", f.File, f.Problem, f.Remedy)
	}
	return b.String()
}

// A SalvagedLog says which part of a damaged log is now in block files.
type SalvagedLog struct {
	Records      int   // that were read
	Samples      int64 // of these
	SkippedBytes int64
	Damages      int
	Unusable     int64 // intact records that name unknown series
}

// Repair checks the store in path, moves damaged files to its directory quarantine, and
// keeps everything that can be read. It changes nothing that is not damaged, and reports
// each step beforehand. It may be interrupted, and run again. The report is of a check
// after the repair or, in a dry run, of the check before it.
//
// salvageLog writes every readable record of a damaged log to block files, after which
// the log is no longer needed. The embedded store provides it.
func Repair(ctx context.Context, disk vfs.FS, path string, o RepairOptions, salvageLog func() (SalvagedLog, error)) (*CheckReport, error) {
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	report, err := checkOnce(ctx, disk, path, o)
	if err != nil || report.Clean() {
		return report, err
	}
	r := &repair{ctx: ctx, fs: disk, dir: path, options: o, salvageLog: salvageLog}
	if err := r.plan(report); err != nil {
		return report, err
	}
	r.announce()
	if o.DryRun {
		return report, nil
	}
	if err := r.blockFiles(); err != nil {
		return report, fmt.Errorf("repair block files (run it again to continue): %w", err)
	}
	if err := r.log(); err != nil {
		return report, fmt.Errorf("repair the log (run it again to continue): %w", err)
	}
	o.Say("check again")
	return checkOnce(ctx, disk, path, o)
}

func checkOnce(ctx context.Context, disk vfs.FS, path string, o RepairOptions) (*CheckReport, error) {
	d, err := Open(disk, path)
	if err != nil {
		return nil, err
	}
	report, err := d.Check(ctx, CheckOptions{Now: o.Now})
	return report, errors.Join(err, d.Close())
}

// repair is one repair under way.
type repair struct {
	ctx        context.Context
	fs         vfs.FS
	dir        string
	options    RepairOptions
	salvageLog func() (SalvagedLog, error)

	damaged  map[uint64][]Finding // block files to be salvaged
	missing  map[uint64][]Finding // block files that are not there
	segments map[string][]Finding // log files, by path
	unlisted []uint64             // block files to be set aside, because the catalogue may be older
}

func (r *repair) say(format string, args ...any) { r.options.Say(fmt.Sprintf(format, args...)) }

// plan sorts the findings by the kind of repair.
func (r *repair) plan(report *CheckReport) error {
	r.damaged, r.missing, r.segments = make(map[uint64][]Finding), make(map[uint64][]Finding), make(map[string][]Finding)
	var lost []Finding
	for _, f := range report.Findings {
		switch f.part {
		case partCatalogue, partNewerFile:
			lost = append(lost, f)
		case partBlockFile:
			r.damaged[f.number] = append(r.damaged[f.number], f)
		case partMissingFile:
			r.missing[f.number] = append(r.missing[f.number], f)
		case partLog:
			r.segments[f.File] = append(r.segments[f.File], f)
		case partTimelines:
			r.say("%s: not repaired: %s", f.File, f.Remedy)
		}
	}
	if lost != nil {
		return &UnrepairableError{Findings: lost}
	}
	if report.outdated {
		r.unlisted = report.unlisted
	}
	return nil
}

func (r *repair) announce() {
	r.say("to do:")
	for _, n := range slices.Sorted(maps.Keys(r.damaged)) {
		r.say("  %s/%s: write what can be read of it to a new file, move it to %s", datadir.Blocks, datadir.BlockName(n), datadir.Quarantine)
	}
	for _, n := range slices.Sorted(maps.Keys(r.missing)) {
		r.say("  %s/%s: is missing; remove it from the list", datadir.Blocks, datadir.BlockName(n))
	}
	for _, n := range r.unlisted {
		r.say("  %s/%s: is not in the list, which may be older than the file; move it to %s", datadir.Blocks, datadir.BlockName(n), datadir.Quarantine)
	}
	for _, name := range slices.Sorted(maps.Keys(r.segments)) {
		if r.segments[name][0].Remedy == missingLogRemedy {
			r.say("  %s: is missing; write every record of the rest of the log to block files", name)
			continue
		}
		r.say("  %s: copy it to %s, write every record of the log that can be read to block files", name, datadir.Quarantine)
	}
}

// repairCacheBytes is the memory for blocks of the catalogue.
const repairCacheBytes = 8 * units.MiB

// blockFiles replaces damaged files with salvaged ones, each in one commit of the
// catalogue. Before the commit, the new file counts as incomplete; after it, the damaged
// one does, and is already in quarantine.
func (r *repair) blockFiles() error {
	if len(r.damaged)+len(r.missing)+len(r.unlisted) == 0 {
		return nil
	}
	lock, err := datadir.Lock(r.fs, r.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	c, err := catalogue.Open(r.fs, r.fs.PathJoin(r.dir, datadir.Catalogue), catalogue.Options{
		CacheBytes: repairCacheBytes, Logger: catalogue.Logger{Log: slog.New(slog.DiscardHandler), Fatal: r.options.Fatal, EndWhenFull: true},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	manifest, err := c.Files()
	if err != nil {
		return err
	}
	if err := r.makeBlocks(); err != nil {
		return err
	}
	next, err := r.nextNumber(manifest)
	if err != nil {
		return err
	}
	if err := r.setAside(); err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(r.missing)) {
		if err := c.Commit(catalogue.Change{DropFiles: []uint64{n}}); err != nil {
			return err
		}
		r.say("%s/%s: removed from the list", datadir.Blocks, datadir.BlockName(n))
	}
	for _, n := range slices.Sorted(maps.Keys(r.damaged)) {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := r.blockFile(c, n, manifest[n], next); err != nil {
			return err
		}
		next++
	}
	return nil
}

// makeBlocks makes the directory of block files if it is missing with all of them.
func (r *repair) makeBlocks() error {
	if err := r.fs.MkdirAll(r.fs.PathJoin(r.dir, datadir.Blocks), 0o750); err != nil {
		return fmt.Errorf("make the directory of block files: %w", err)
	}
	return safefile.SyncDir(r.fs, r.dir)
}

// setAside moves the block files that the catalogue does not list to quarantine. The next start
// would remove them, as if a crash had left them behind. But if the catalogue lists files that are
// missing, it may be an old state of the catalogue, for example because its log has lost its end,
// and the unlisted files may have all samples.
func (r *repair) setAside() error {
	for _, n := range r.unlisted {
		path := datadir.BlockPath(r.fs, r.dir, n)
		if err := r.quarantine(path, nil, "none; it was not in the list of block files, which may be older than the file", vfs.FS.Rename); err != nil {
			return err
		}
		r.say("%s/%s: is now in %s", datadir.Blocks, datadir.BlockName(n), datadir.Quarantine)
	}
	if r.unlisted == nil {
		return nil
	}
	return safefile.SyncDir(r.fs, r.fs.PathJoin(r.dir, datadir.Blocks))
}

// nextNumber returns a number that no block file has or had.
func (r *repair) nextNumber(manifest map[uint64]catalogue.File) (uint64, error) {
	var top uint64
	for n := range manifest {
		top = max(top, n)
	}
	for _, dir := range []string{datadir.Blocks, datadir.Quarantine} {
		names, err := safefile.List(r.fs, r.fs.PathJoin(r.dir, dir))
		if err != nil {
			return 0, fmt.Errorf("list block files in %s: %w", dir, err)
		}
		for _, name := range names {
			if n, ok := datadir.BlockNumber(name); ok {
				top = max(top, n)
			}
		}
	}
	return top + 1, nil
}

func (r *repair) blockFile(c *catalogue.Catalogue, number uint64, m catalogue.File, next uint64) error {
	path := datadir.BlockPath(r.fs, r.dir, number)
	s, err := r.salvage(path, m, next)
	if err != nil {
		return err
	}
	if err := r.quarantine(path, r.damaged[number], s.text(), safefile.Copy); err != nil {
		return err
	}
	ch := catalogue.Change{DropFiles: []uint64{number}}
	if s.samples > 0 {
		ch.AddFiles = map[uint64]catalogue.File{next: {Bytes: s.bytes, Sequence: s.sequence, Deletions: s.deletions}}
	}
	if err := c.Commit(ch); err != nil {
		return err
	}
	if err := r.fs.Remove(path); err != nil {
		return fmt.Errorf("remove the damaged file, which was copied to %s: %w", datadir.Quarantine, err)
	}
	r.say("%s/%s: %s", datadir.Blocks, datadir.BlockName(number), s.text())
	return nil
}

// salvaged describes what could be saved of a damaged file.
type salvaged struct {
	name         string
	properties   blockfile.Properties // of the damaged file, if known
	known        bool
	chunks       int64
	samples      int64
	bytes        int64 // of the new file
	lostBytes    int64
	lostChunks   int64  // in readable pages
	sequence     uint64 // of the new file, as of the damaged one
	deletions    uint64
	orderUnknown bool
}

func (s *salvaged) text() string {
	if s.samples == 0 && s.known {
		return fmt.Sprintf("nothing of it could be read; all %d samples are lost", s.properties.Samples)
	}
	if s.samples == 0 {
		return "nothing of it could be read; the number of lost samples is not known"
	}
	text := fmt.Sprintf("%d samples in %d chunks are now in %s/%s", s.samples, s.chunks, datadir.Blocks, s.name)
	switch {
	case s.known:
		text += fmt.Sprintf("; %d of %d samples are lost", s.properties.Samples-s.samples, s.properties.Samples)
	case s.lostBytes > 0:
		text += fmt.Sprintf("; %d bytes could not be read", s.lostBytes)
	}
	if s.lostBytes > 0 || s.known && s.properties.Samples > s.samples {
		text += "; where a lost sample had replaced an older one, the older one reappears"
	}
	if s.orderUnknown {
		text += "; its age could not be read, so it counts as older than all others"
	}
	return text
}

// salvage writes the chunks of a damaged file that can be read to a new one.
func (r *repair) salvage(path string, m catalogue.File, next uint64) (*salvaged, error) {
	s := &salvaged{name: datadir.BlockName(next)}
	p, err := blockfile.SalvageProperties(r.fs, path)
	if s.known = err == nil; s.known {
		s.properties = p
	} else {
		p = blockfile.SalvageHead(r.fs, path)
	}
	if m.Sequence != 0 { // older stores do not have it
		p.Sequence, p.Deletions = m.Sequence, m.Deletions
	}
	s.sequence, s.deletions, s.orderUnknown = p.Sequence, p.Deletions, p.Sequence == 0
	w, err := blockfile.Create(r.fs, r.fs.PathJoin(r.dir, datadir.Blocks, s.name), chunk.Best, blockfile.Origin{Sequence: p.Sequence, Deletions: p.Deletions, StepMS: p.StepMS, Sketches: p.Sketches, Late: p.Late})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	k := &keeper{writer: w, salvaged: s, last: -1, buckets: p.StepMS != 0}
	s.lostBytes, err = blockfile.Salvage(r.fs, path, m.Bytes, func(_ int64, p chunk.Page) error {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		return k.page(p)
	})
	if err != nil {
		return nil, fmt.Errorf("salvage %s: %w", path, err)
	}
	if s.samples == 0 {
		return s, nil
	}
	if _, err := w.Finish(); err != nil {
		return nil, err
	}
	s.bytes = w.Size()
	return s, safefile.SyncDir(r.fs, r.fs.PathJoin(r.dir, datadir.Blocks))
}

// keeper writes the chunks that can be decoded and come in order.
type keeper struct {
	*salvaged
	writer  *blockfile.Writer
	buckets bool // the file has no samples
	decoder chunk.Decoder
	cols    model.Columns
	last    int64 // series
	lastMS  int64
}

func (k *keeper) page(p chunk.Page) error {
	entries := p.Iter()
	for e := (chunk.Entry{}); entries.Next(&e); {
		k.cols.Reset()
		inOrder := int64(e.Series) > k.last || int64(e.Series) == k.last && e.FirstMS > k.lastMS
		if err := k.decoder.DecodeEntry(&e, &k.cols); err != nil || !inOrder || k.buckets != (e.Kind == model.AggregateKind) {
			k.lostChunks++
			continue
		}
		if err := k.writer.Add(e.Series, e.Kind, &k.cols, 0, k.cols.Len()); err != nil {
			return err
		}
		k.last, k.lastMS = int64(e.Series), e.LastMS
		k.chunks++
		k.samples += int64(e.Count)
	}
	return nil
}

// quarantine puts a file into the directory quarantine, with a text about the findings and the
// result. put is [safefile.Copy] or [vfs.FS.Rename]. A different file of the same name stays: an
// earlier repair may have put it there, before a restored backup brought the number back.
func (r *repair) quarantine(path string, findings []Finding, result string, put func(disk vfs.FS, from, to string) error) error {
	dir := r.fs.PathJoin(r.dir, datadir.Quarantine)
	if err := r.fs.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	name, err := r.nameIn(dir, path)
	if err != nil {
		return err
	}
	// A copy that failed halfway must not take the name.
	aside := r.fs.PathJoin(dir, r.fs.PathBase(path)+".tmp")
	if err := put(r.fs, path, aside); err != nil {
		return err
	}
	if err := r.fs.Rename(aside, r.fs.PathJoin(dir, name)); err != nil {
		return fmt.Errorf("name the file %s in %s: %w", name, dir, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, put here by varve repair at %s.\n", path, r.options.Now().UTC().Format(time.RFC3339))
	for _, f := range findings {
		fmt.Fprintf(&b, "\nat offset %d: %s\ncost: %s\n", f.Offset, f.Problem, f.Cost)
	}
	if result != "" {
		fmt.Fprintf(&b, "\nresult: %s\n", result)
	}
	text := r.fs.PathJoin(dir, name+".txt")
	if err := safefile.Replace(r.fs, text, []byte(b.String())); err != nil {
		return fmt.Errorf("write %s: %w", text, err)
	}
	return errors.Join(safefile.SyncDir(r.fs, dir), safefile.SyncDir(r.fs, r.dir))
}

// nameIn returns the name for a file in the directory: its own, unless a file with other content has
// it. A file with the same content comes from an interrupted repair, and is
// replaced.
func (r *repair) nameIn(dir, path string) (string, error) {
	own := r.fs.PathBase(path)
	name := own
	for n := 2; ; n++ {
		there := r.fs.PathJoin(dir, name)
		_, err := r.fs.Stat(there)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", fmt.Errorf("find a free name in %s: %w", dir, err)
		case r.equal(path, there):
			return name, nil
		}
		name = fmt.Sprintf("%s.%d", own, n)
	}
}

// equal reports whether two files have the same content. Files that cannot be read count as
// different.
func (r *repair) equal(a, b string) bool {
	var files [2]vfs.File
	var sizes [2]int64
	for i, path := range []string{a, b} {
		f, err := r.fs.Open(path, vfs.SequentialReadsOption)
		if err != nil {
			return false
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return false
		}
		files[i], sizes[i] = f, info.Size()
	}
	if sizes[0] != sizes[1] {
		return false
	}
	var pieces [2][64 << 10]byte
	for left := sizes[0]; left > 0 && r.ctx.Err() == nil; {
		n := min(left, int64(len(pieces[0])))
		for i := range files {
			if _, err := io.ReadFull(files[i], pieces[i][:n]); err != nil {
				return false
			}
		}
		if !bytes.Equal(pieces[0][:n], pieces[1][:n]) {
			return false
		}
		left -= n
	}
	return r.ctx.Err() == nil
}

// log salvages every record of a damaged log that can be read.
func (r *repair) log() error {
	if len(r.segments) == 0 {
		return nil
	}
	for _, path := range slices.Sorted(maps.Keys(r.segments)) {
		switch _, err := r.fs.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue // there is nothing to copy
		case err != nil:
			return fmt.Errorf("find the damaged segment %s: %w", path, err)
		}
		if err := r.quarantine(path, r.segments[path], "", safefile.Copy); err != nil {
			return err
		}
	}
	salvaged, err := r.salvageLog()
	if err != nil {
		return err
	}
	r.say("log: %d records were read, their %d samples are now in block files; %d bytes in %d places could not be read, %d records could not be used in full because the series they name were introduced there",
		salvaged.Records, salvaged.Samples, salvaged.SkippedBytes, salvaged.Damages, salvaged.Unusable)
	return nil
}

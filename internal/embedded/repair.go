package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/registry"
	"varve/internal/store"
	"varve/internal/wal"
)

// quarantineName is where a repair puts what is damaged, and a text beside each
// file that says why.
const quarantineName = "quarantine"

// RepairOptions say how a repair goes about.
type RepairOptions struct {
	DryRun bool             // only say what would be done
	Say    func(string)     // called with each step before it is done, and with its result; nil = quiet
	Now    func() time.Time // nil = time.Now
}

// An UnrepairableError lists findings for which only a backup helps. Nothing was
// changed.
type UnrepairableError struct{ Findings []Finding }

func (e *UnrepairableError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the catalogue is damaged, which cannot be repaired: nothing was changed")
	for _, f := range e.Findings {
		fmt.Fprintf(&b, "\n  %s: %s\n    %s", f.File, f.Problem, f.Remedy)
	}
	return b.String()
}

// Repair checks the store in path, puts what is damaged aside in its directory
// quarantine, and keeps all that can be read. It changes nothing that is not
// damaged. What it does it says first. It may be interrupted, and run again.
// The report is of a check after the repair, or in a dry run of the one before.
func Repair(ctx context.Context, fs vfs.FS, path string, o RepairOptions) (*CheckReport, error) {
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	report, err := checkOnce(ctx, fs, path, o)
	if err != nil || report.Clean() {
		return report, err
	}
	r := &repair{ctx: ctx, fs: fs, dir: path, options: o}
	if err := r.plan(report); err != nil {
		return report, err
	}
	r.announce()
	if o.DryRun {
		return report, nil
	}
	if err := r.blockFiles(); err != nil {
		return report, fmt.Errorf("repair block files (run it again to go on): %w", err)
	}
	if err := r.log(); err != nil {
		return report, fmt.Errorf("repair the log (run it again to go on): %w", err)
	}
	o.Say("check again")
	return checkOnce(ctx, fs, path, o)
}

func checkOnce(ctx context.Context, fs vfs.FS, path string, o RepairOptions) (*CheckReport, error) {
	d, err := OpenDirectory(fs, path)
	if err != nil {
		return nil, err
	}
	report, err := d.Check(ctx, CheckOptions{Now: o.Now})
	return report, errors.Join(err, d.Close())
}

// repair is one repair under way.
type repair struct {
	ctx     context.Context
	fs      vfs.FS
	dir     string
	options RepairOptions

	damaged  map[uint64][]Finding // block files to be salvaged
	missing  map[uint64][]Finding // block files that are not there
	segments map[string][]Finding // log files, by path
}

func (r *repair) say(format string, args ...any) { r.options.Say(fmt.Sprintf(format, args...)) }

// plan sorts the findings by what is to be done.
func (r *repair) plan(report *CheckReport) error {
	r.damaged, r.missing, r.segments = make(map[uint64][]Finding), make(map[uint64][]Finding), make(map[string][]Finding)
	var lost []Finding
	for _, f := range report.Findings {
		switch f.part {
		case partCatalogue:
			lost = append(lost, f)
		case partBlockFile:
			r.damaged[f.number] = append(r.damaged[f.number], f)
		case partMissingFile:
			r.missing[f.number] = append(r.missing[f.number], f)
		case partLog:
			r.segments[f.File] = append(r.segments[f.File], f)
		}
	}
	if lost != nil {
		return &UnrepairableError{Findings: lost}
	}
	return nil
}

func sortedKeys[K uint64 | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (r *repair) announce() {
	r.say("to do:")
	for _, n := range sortedKeys(r.damaged) {
		r.say("  %s/%s: write what can be read of it to a new file, move it to %s", blocksName, blockName(n), quarantineName)
	}
	for _, n := range sortedKeys(r.missing) {
		r.say("  %s/%s: is not there; take it off the list", blocksName, blockName(n))
	}
	for _, name := range sortedKeys(r.segments) {
		r.say("  %s: copy it to %s, write every record of the log that can be read to block files", name, quarantineName)
	}
}

// blockFiles puts salvaged files in the place of damaged ones, each in one
// commit of the catalogue. Before it, the new file is one that was never
// completed; after it, the damaged one is, and already in quarantine.
func (r *repair) blockFiles() error {
	if len(r.damaged)+len(r.missing) == 0 {
		return nil
	}
	lock, err := r.fs.Lock(r.fs.PathJoin(r.dir, lockName))
	if err != nil {
		return &LockedError{Dir: r.dir, Err: err}
	}
	defer lock.Close()
	c, err := openCatalogue(r.fs, r.fs.PathJoin(r.dir, catalogueName), DefaultConfig(), quietLog{}, false)
	if err != nil {
		return err
	}
	defer c.close()
	manifest, err := c.files()
	if err != nil {
		return err
	}
	next, err := r.nextNumber(manifest)
	if err != nil {
		return err
	}
	for _, n := range sortedKeys(r.missing) {
		if err := c.commit(change{dropFiles: []uint64{n}}); err != nil {
			return err
		}
		r.say("%s/%s: off the list", blocksName, blockName(n))
	}
	for _, n := range sortedKeys(r.damaged) {
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

// nextNumber returns a number that no block file has or had.
func (r *repair) nextNumber(manifest map[uint64]fileMeta) (uint64, error) {
	var top uint64
	for n := range manifest {
		top = max(top, n)
	}
	for _, dir := range []string{blocksName, quarantineName} {
		names, err := r.fs.List(r.fs.PathJoin(r.dir, dir))
		if err != nil && dir == blocksName {
			return 0, fmt.Errorf("list block files: %w", err)
		}
		for _, name := range names {
			if n, ok := blockNumber(name); ok {
				top = max(top, n)
			}
		}
	}
	return top + 1, nil
}

func (r *repair) blockFile(c *catalogue, number uint64, m fileMeta, next uint64) error {
	path := r.fs.PathJoin(r.dir, blocksName, blockName(number))
	s, err := r.salvage(path, m, next)
	if err != nil {
		return err
	}
	if err := r.quarantine(path, r.damaged[number], s.text()); err != nil {
		return err
	}
	ch := change{dropFiles: []uint64{number}}
	if s.samples > 0 {
		ch.addFiles = map[uint64]fileMeta{next: {Bytes: s.bytes, Sequence: s.sequence, Deletions: s.deletions}}
	}
	if err := c.commit(ch); err != nil {
		return err
	}
	if err := r.fs.Remove(path); err != nil {
		return fmt.Errorf("remove the damaged file, of which there is a copy in %s: %w", quarantineName, err)
	}
	r.say("%s/%s: %s", blocksName, blockName(number), s.text())
	return nil
}

// salvaged is what could be kept of a damaged file.
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
	if s.samples == 0 {
		return "nothing of it could be read"
	}
	text := fmt.Sprintf("%d samples in %d chunks are now in %s/%s", s.samples, s.chunks, blocksName, s.name)
	switch {
	case s.known:
		text += fmt.Sprintf("; %d of %d samples are lost", s.properties.Samples-s.samples, s.properties.Samples)
	case s.lostBytes > 0:
		text += fmt.Sprintf("; %d bytes could not be read", s.lostBytes)
	}
	if s.lostBytes > 0 || s.known && s.properties.Samples > s.samples {
		text += "; where a lost sample had replaced an older one, the older one shows again"
	}
	if s.orderUnknown {
		text += "; how old it is could not be read, it counts as older than all others"
	}
	return text
}

// salvage writes the chunks of a damaged file that can be read to a new one.
func (r *repair) salvage(path string, m fileMeta, next uint64) (*salvaged, error) {
	s := &salvaged{name: blockName(next)}
	p, err := blockfile.SalvageProperties(r.fs, path)
	if s.known = err == nil; s.known {
		s.properties = p
	}
	if m.Sequence != 0 { // older stores do not have it
		p.Sequence, p.Deletions = m.Sequence, m.Deletions
	}
	s.sequence, s.deletions, s.orderUnknown = p.Sequence, p.Deletions, p.Sequence == 0
	w, err := blockfile.Create(r.fs, r.fs.PathJoin(r.dir, blocksName, s.name), chunk.Best, p.Sequence, p.Deletions)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	k := &keeper{writer: w, salvaged: s, last: -1}
	s.lostBytes, err = blockfile.Salvage(r.fs, path, func(_ int64, p chunk.Page) error {
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
	return s, syncDirOf(r.fs, r.fs.PathJoin(r.dir, blocksName))
}

// keeper writes the chunks that can be decoded and come in order.
type keeper struct {
	*salvaged
	writer  *blockfile.Writer
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
		if err := k.decoder.DecodeEntry(&e, &k.cols); err != nil || !inOrder {
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

func syncDirOf(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// quarantine copies a damaged file, with a text that says what was found and
// done.
func (r *repair) quarantine(path string, findings []Finding, result string) error {
	dir := r.fs.PathJoin(r.dir, quarantineName)
	if err := r.fs.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	name := r.fs.PathBase(path)
	if err := copyFile(r.fs, path, r.fs.PathJoin(dir, name)); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, put here by varve repair at %s.\n", path, r.options.Now().UTC().Format(time.RFC3339))
	for _, f := range findings {
		fmt.Fprintf(&b, "\nat offset %d: %s\ncost: %s\n", f.Offset, f.Problem, f.Cost)
	}
	if result != "" {
		fmt.Fprintf(&b, "\nresult: %s\n", result)
	}
	if err := writeText(r.fs, r.fs.PathJoin(dir, name+".txt"), b.String()); err != nil {
		return err
	}
	return errors.Join(syncDirOf(r.fs, dir), syncDirOf(r.fs, r.dir))
}

func writeText(fs vfs.FS, path, text string) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// copyFile copies a file, durably, over what is at dst.
func copyFile(fs vfs.FS, src, dst string) error {
	from, err := fs.Open(src, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("copy %s: %w", src, err)
	}
	defer from.Close()
	to, err := fs.Create(dst, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", dst, err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return fmt.Errorf("copy %s to %s: %w", src, dst, err)
	}
	return nil
}

// log takes over every record of a damaged log that can be read: the store is
// opened as a server does it, but goes on behind damage, and writes what it has
// in memory to files. Their commit makes the damaged log superfluous.
func (r *repair) log() error {
	if len(r.segments) == 0 {
		return nil
	}
	for _, path := range sortedKeys(r.segments) {
		if _, err := r.fs.Stat(path); err != nil {
			continue // a segment that is missing
		}
		if err := r.quarantine(path, r.segments[path], ""); err != nil {
			return err
		}
	}
	salvage := &logSalvage{}
	cfg := DefaultConfig()
	cfg.MinFreeBytes = 0
	s, err := Open(r.fs, r.dir, cfg, Options{Now: r.options.Now, salvage: salvage})
	if err != nil {
		return err
	}
	samples := s.active.Load().Samples()
	if err := errors.Join(s.checkpoint(), s.Close()); err != nil {
		return err
	}
	r.say("log: %d records were read, their %d samples are now in block files; %d bytes in %d places could not be read, %d records could not be used in full because the series they name were introduced there",
		salvage.stats.Records, samples, salvage.stats.SkippedBytes, salvage.stats.Damages, salvage.unusable)
	return nil
}

// logSalvage lets a replay go on behind damage, and counts what that costs. Nil
// lets it end there.
type logSalvage struct {
	stats    wal.ReplayStats
	unusable int64 // records that are whole but name unknown series
}

func (l *logSalvage) onDamage() func(*store.CorruptionError) bool {
	if l == nil {
		return nil
	}
	return func(*store.CorruptionError) bool { return true }
}

func (l *logSalvage) done(stats wal.ReplayStats) {
	if l != nil {
		l.stats = stats
	}
}

// keep reports whether a record that could not be decoded to its end is to be
// used as far as it could.
func (l *logSalvage) keep(series *registry.Registry, step *replayStep) bool {
	if l == nil {
		return false
	}
	l.unusable++
	var ok bool
	if step.kinds, ok = series.Kinds(step.kinds[:0], step.batch.Samples); !ok || step.deletion != nil {
		step.batch.Samples, step.kinds, step.deletion = step.batch.Samples[:0], step.kinds[:0], nil
	}
	return true
}

var _ pebble.Logger = quietLog{}

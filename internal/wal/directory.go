package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"varve/internal/safefile"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeCategory names the log's writes in the file system's statistics.
const writeCategory vfs.DiskWriteCategory = "wal"

// directory keeps the log's files: segments, and free files for reuse.
type directory struct {
	fs     vfs.FS
	path   string
	handle vfs.File // for syncing
	cfg    Config   // with defaults

	mu       sync.Mutex
	segments map[Segment]int64 // sizes in bytes
	free     []freeFile
}

type freeFile struct {
	name  string
	bytes int64
}

// openDirectory checks the settings, creates dir if needed and lists its files.
func openDirectory(fsys vfs.FS, path string, cfg Config) (*directory, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("settings of the log: %w", err)
	}
	if err := fsys.MkdirAll(path, 0o750); err != nil {
		return nil, fmt.Errorf("create log directory %s: %w", path, err)
	}
	if err := safefile.SyncDir(fsys, fsys.PathDir(path)); err != nil {
		return nil, err
	}
	d := &directory{fs: fsys, path: path, cfg: cfg.withDefaults(), segments: map[Segment]int64{}}
	if err := d.takeStock(); err != nil {
		return nil, err
	}
	var err error
	if d.handle, err = fsys.OpenDir(path); err != nil {
		return nil, fmt.Errorf("open log directory %s: %w", path, err)
	}
	return d, nil
}

// takeStock lists segments and free files, and removes surplus free files.
func (d *directory) takeStock() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return fmt.Errorf("list log directory %s: %w", d.path, err)
	}
	for _, name := range names {
		s, suffix, ok := parseName(name)
		if !ok {
			continue
		}
		full := d.fs.PathJoin(d.path, name)
		info, err := d.fs.Stat(full)
		if err != nil {
			return fmt.Errorf("size of log file %s: %w", full, err)
		}
		switch {
		case suffix == segmentSuffix:
			d.segments[s] = info.Size()
		case len(d.free) < d.cfg.RecycleSegments:
			d.free = append(d.free, freeFile{full, info.Size()})
		default:
			if err := d.fs.Remove(full); err != nil {
				return fmt.Errorf("remove free log file: %w", err)
			}
		}
	}
	return nil
}

// highest returns the segment with the highest number, 0 if there is none.
func (d *directory) highest() Segment {
	var top Segment
	for s := range d.segments {
		top = max(top, s)
	}
	return top
}

// create makes a segment, from a free file if there is one. It returns the file with a
// durable header, ready for writing after the header, and the bytes that the file
// already has room for.
func (d *directory) create(h segmentHeader) (f vfs.File, bytes int64, err error) {
	f, bytes, err = d.newFile(h.segment)
	if err != nil {
		return nil, 0, err
	}
	if err := d.begin(f, h); err != nil {
		// The file must not stay: on a full disk each attempt would add one.
		return nil, 0, errors.Join(err, f.Close(), d.fs.Remove(d.fs.PathJoin(d.path, h.segment.FileName())))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.segments[h.segment] = max(bytes, segmentHeaderSize)
	return f, bytes, nil
}

// begin writes a segment's header and makes it durable.
func (d *directory) begin(f vfs.File, h segmentHeader) error {
	if _, err := f.Write(h.encode()); err != nil {
		return fmt.Errorf("write header of log segment %d: %w", h.segment, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync header of log segment %d: %w", h.segment, err)
	}
	if err := d.handle.Sync(); err != nil {
		return fmt.Errorf("sync log directory %s: %w", d.path, err)
	}
	return nil
}

func (d *directory) newFile(s Segment) (f vfs.File, bytes int64, err error) {
	name := d.fs.PathJoin(d.path, s.FileName())
	if old, ok := d.takeFree(); ok {
		if f, err = d.fs.ReuseForWrite(old.name, name, writeCategory); err != nil {
			return nil, 0, fmt.Errorf("reuse %s as log segment %s: %w", old.name, name, err)
		}
		return f, old.bytes, nil
	}
	if f, err = d.fs.Create(name, writeCategory); err != nil {
		return nil, 0, fmt.Errorf("create log segment: %w", err)
	}
	return f, 0, nil
}

// trim removes the files kept for reuse.
func (d *directory) trim() error {
	for {
		old, ok := d.takeFree()
		if !ok {
			return nil
		}
		if err := d.fs.Remove(old.name); err != nil {
			return fmt.Errorf("remove %s: %w", old.name, err)
		}
	}
}

func (d *directory) takeFree() (freeFile, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.free) == 0 {
		return freeFile{}, false
	}
	f := d.free[len(d.free)-1]
	d.free = d.free[:len(d.free)-1]
	return f, true
}

// outsize reports whether the file of s, which has no records, is a reused one, and the
// next segment would get a new one.
func (d *directory) outsize(s Segment) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.segments[s] > segmentHeaderSize && len(d.free) == 0
}

// has reports whether s exists. If it was created here, its header is durable.
func (d *directory) has(s Segment) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.segments[s]
	return ok
}

// grown records the size of the segment that is being written.
func (d *directory) grown(s Segment, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.segments[s] = max(d.segments[s], bytes)
}

// release frees or removes the segments before the given one. Only one call
// may be active at a time.
func (d *directory) release(before Segment) error {
	var old []Segment
	d.mu.Lock()
	for s := range d.segments {
		if s < before {
			old = append(old, s)
		}
	}
	d.mu.Unlock()
	if len(old) == 0 {
		return nil
	}
	slices.Sort(old) // oldest first, so that a crash leaves no gap
	for _, s := range old {
		if err := d.releaseFile(s); err != nil {
			return fmt.Errorf("release log segment %d: %w", s, err)
		}
	}
	return safefile.SyncDir(d.fs, d.path) // not d.handle: the writer closes it when it fails
}

// removeFrom removes the segments from the given one on.
func (d *directory) removeFrom(first Segment) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var young []Segment
	for s := range d.segments {
		if s >= first {
			young = append(young, s)
		}
	}
	slices.Sort(young)
	for _, s := range slices.Backward(young) { // newest first, so that a crash leaves no gap
		if err := d.fs.Remove(d.fs.PathJoin(d.path, s.FileName())); err != nil {
			return fmt.Errorf("remove log segment %d: %w", s, err)
		}
		delete(d.segments, s)
	}
	return safefile.SyncDir(d.fs, d.path)
}

// releaseFile keeps the file for reuse if that pays. It removes a file that is mostly
// unwritten or that a huge record has enlarged.
func (d *directory) releaseFile(s Segment) error {
	name := d.fs.PathJoin(d.path, s.FileName())
	d.mu.Lock()
	bytes := d.segments[s]
	usual := int64(d.cfg.SegmentBytes)
	keep := len(d.free) < d.cfg.RecycleSegments && bytes >= usual/2 && bytes <= 2*usual
	d.mu.Unlock()
	if !keep {
		if err := d.fs.Remove(name); err != nil {
			return err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.segments, s)
		return nil
	}
	free := d.fs.PathJoin(d.path, fmt.Sprintf("%010d%s", uint64(s), freeSuffix))
	if err := d.fs.Rename(name, free); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.segments, s)
	d.free = append(d.free, freeFile{free, bytes})
	return nil
}

// usage returns the number of segments and the bytes of all files.
func (d *directory) usage() (segments int, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.segments {
		bytes += b
	}
	for _, f := range d.free {
		bytes += f.bytes
	}
	return len(d.segments), bytes
}

func (d *directory) close() error { return d.handle.Close() }

package catalogue

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// Pebble's log and its list of tables ("manifest") are files of blocks of
// 32 KiB, and these of chunks:
//
//	crc u32, masked | length u16 | type u8 | [log u32 | [synced u64]] | payload
//
// The crc covers everything from the type on. Chunks of the log carry its
// number (types 5 to 12), since its files are used again, and the offset up to
// which it was synced when they were written (types 9 to 12).
//
// Pebble treats the first chunk that it cannot read as the end, as if a crash had cut off the rest,
// and continues only at the next block. A flipped bit would thus bring back an earlier catalogue,
// and files that it does not name would be removed as incomplete. Verify therefore runs before
// Pebble opens anything, and tells damage from an incomplete write. In the log, it learns from
// later chunks what was synced: from their own offset, and from marks (syncMark).
const (
	chunkBlock      = 32 << 10
	chunkHeader     = 4 + 2 + 1
	chunkHeaderLog  = chunkHeader + 4
	chunkHeaderSync = chunkHeaderLog + 8
	chunkTypeLog    = 5
	chunkTypeSync   = 9
	chunkFull       = 9  // a whole record
	chunkFirst      = 10 // the first of several of a record
	chunkTypeMax    = 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Verify finds damage to the files of a database of Pebble in dir, such as the catalogue,
// that Pebble does not notice. A directory that is not there is fine.
func Verify(disk vfs.FS, dir string) error {
	names, err := disk.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	if err := mixed(dir, names); err != nil {
		return err
	}
	f := filesOf(names)
	if err := f.missing(disk, dir); err != nil {
		return err
	}
	if err := f.unreadable(disk, dir); err != nil {
		return err
	}
	for _, log := range f.logs {
		if err := verifyFile(disk, disk.PathJoin(dir, log.name), uint32(log.number), verifyLog); err != nil {
			return err
		}
	}
	if f.manifest.name == "" {
		return nil
	}
	return verifyFile(disk, disk.PathJoin(dir, f.manifest.name), 0, verifyManifest)
}

// mixed finds files of two databases in one directory, as after a backup was copied over a data
// directory. Pebble would then open either of them, or a mixture. A change of a marker
// ("marker.NAME.COUNT.VALUE") makes the next file and removes the previous one, so a crash leaves
// two consecutive ones. The count of a copy starts at 1 again.
func mixed(dir string, names []string) error {
	type counts struct {
		least, most uint64
		first, last string
	}
	markers := map[string]counts{}
	for _, name := range names {
		parts := strings.SplitN(name, ".", 4)
		if len(parts) < 4 || parts[0] != "marker" {
			continue
		}
		n, err := strconv.ParseUint(parts[2], 10, 64)
		if err != nil {
			continue
		}
		c, again := markers[parts[1]]
		if !again || n < c.least {
			c.least, c.first = n, name
		}
		if !again || n > c.most {
			c.most, c.last = n, name
		}
		markers[parts[1]] = c
		if c.most-c.least > 1 {
			return &store.CorruptionError{File: dir, Offset: -1, Reason: fmt.Sprintf(
				"expected files of one database, got %s and %s: a backup was probably copied over a data directory; copy it to a directory that does not exist yet", c.first, c.last)}
		}
	}
	return nil
}

// files are the files of a directory from which Pebble finds all others.
type files struct {
	logs     []numbered
	options  numbered // the newest
	manifest numbered // the manifest that the marker names
	format   bool     // there is a marker of the format
}

type numbered struct {
	name   string
	number uint64
}

func filesOf(names []string) (f files) {
	marker := ""
	for _, name := range names {
		var n uint64
		var target string
		if k, _ := fmt.Sscanf(name, "marker.manifest.%d.%s", &n, &target); k == 2 && name > marker {
			marker, f.manifest = name, numbered{target, numberIn(target, "MANIFEST-", "")}
		}
		f.format = f.format || strings.HasPrefix(name, "marker.format-version.")
		if n := numberIn(name, "", ".log"); n > 0 {
			f.logs = append(f.logs, numbered{name, n})
		}
		if n := numberIn(name, "OPTIONS-", ""); n > f.options.number {
			f.options = numbered{name, n}
		}
	}
	return f
}

// numberIn returns the number of a file, 0 if its name is another.
func numberIn(name, prefix, suffix string) uint64 {
	rest, starts := strings.CutPrefix(name, prefix)
	digits, ends := strings.CutSuffix(rest, suffix)
	n, err := strconv.ParseUint(digits, 10, 32)
	if !starts || !ends || err != nil {
		return 0
	}
	return n
}

// missing reports a missing marker, or that all logs are missing. In that state Pebble would begin
// with an empty database, lose what only the logs have, or say that the database "is not pristine".
// An open writes the file of options after the markers and its log are durable. From then on there
// is always a log. A manifest newer than the options may come from an open that crashed before it
// made a log.
func (f files) missing(disk vfs.FS, dir string) error {
	if f.options.name == "" {
		return nil
	}
	absent := func(name, what string) error {
		return &store.CorruptionError{File: disk.PathJoin(dir, name), Offset: -1, Reason: fmt.Sprintf("expected %s beside %s, got no such file", what, f.options.name)}
	}
	switch {
	case f.manifest.name == "":
		return absent("marker.manifest.*", "it")
	case !f.format:
		return absent("marker.format-version.*", "it")
	case len(f.logs) == 0 && f.options.number > f.manifest.number:
		return absent("*.log", "one")
	}
	return nil
}

// Sizes beyond those of all files that Pebble, or this package, reads as a whole. A longer file may
// be a sparse one whose end no reader would reach.
const (
	logMax     = 1 << 30 // beyond the largest memtable, and one batch
	optionsMax = 1 << 20
	lockMax    = 1 << 20 // it is empty
)

// unreadable finds a file that is longer than Pebble writes it, or that is none, such as a directory
// or a FIFO. Verify reads neither the options nor the lock, but Pebble opens nothing without them.
func (f files) unreadable(disk vfs.FS, dir string) error {
	check := func(name string, most int64) error {
		if name == "" {
			return nil
		}
		path := disk.PathJoin(dir, name)
		info, err := disk.Stat(path)
		if errors.Is(err, fs.ErrNotExist) { // missing reports it
			return nil
		}
		if err != nil {
			return fmt.Errorf("size of %s: %w", path, err)
		}
		if info.IsDir() {
			return fmt.Errorf("open %s: it is a directory, want a regular file: remove it, or put the file of a backup in its place", path)
		}
		if !info.Mode().IsRegular() {
			file, err := disk.Open(path) // the error says what the file is, and what to do
			if err != nil {
				return err
			}
			return file.Close()
		}
		if info.Size() > most {
			return &store.CorruptionError{File: path, Offset: most, Reason: fmt.Sprintf("expected at most %d bytes, got a file of %d", most, info.Size())}
		}
		return nil
	}
	errs := []error{check("LOCK", lockMax), check(f.options.name, optionsMax), check(f.manifest.name, logMax)}
	for _, log := range f.logs {
		errs = append(errs, check(log.name, logMax))
	}
	return cmp.Or(errs...)
}

func verifyFile(disk vfs.FS, path string, number uint32, verify func(path string, number uint32, b []byte) error) error {
	f, err := disk.Open(path, vfs.SequentialReadsOption)
	if errors.Is(err, fs.ErrNotExist) { // the list of tables: logs come from the list of files
		return &store.CorruptionError{File: path, Offset: -1, Reason: "expected the list of tables that marker.manifest.* names, got no such file"}
	}
	if err != nil {
		return fmt.Errorf("open catalogue: %w", err)
	}
	b, err := io.ReadAll(f) // at most logMax, mostly a few MiB
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return verify(path, number, b)
}

// readChunk returns where the chunk at the given offset ends, and whether it is
// whole with the right checksum. Where the block has no room for a chunk, end
// is its end.
func readChunk(b []byte, at int) (end int, ok bool) {
	blockEnd := min(len(b), at/chunkBlock*chunkBlock+chunkBlock)
	h := b[at:blockEnd]
	if len(h) < chunkHeader || len(h) < chunkHeaderSync && allZero(h) {
		return blockEnd, true // Pebble fills with zeros what no header fits into
	}
	size := chunkHeader
	switch t := h[6]; {
	case t >= chunkTypeSync && t <= chunkTypeMax:
		size = chunkHeaderSync
	case t >= chunkTypeLog && t < chunkTypeSync:
		size = chunkHeaderLog
	}
	size += int(binary.LittleEndian.Uint16(h[4:]))
	if size > len(h) {
		return 0, false
	}
	return at + size, checksum(h[:size]) == binary.LittleEndian.Uint32(h)
}

// checksum returns what a chunk must begin with.
func checksum(chunk []byte) uint32 {
	sum := crc32.Checksum(chunk[6:], castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// verifyManifest finds a chunk that cannot be read, unless a crash has cut it off.
func verifyManifest(path string, _ uint32, b []byte) error {
	for at := 0; at < len(b); {
		end, ok := readChunk(b, at)
		if ok {
			at = end
			continue
		}
		if cutOff(b, at) {
			return nil
		}
		return &store.CorruptionError{File: path, Offset: int64(at), Reason: "a chunk of this list of tables is damaged"}
	}
	return nil
}

// cutOff reports whether a crash may have left the unreadable chunk at an offset of a list of tables:
// the file ends within the chunk, or has only zeros where the chunk was not written yet. The length
// of a chunk is not in its checksum, and a wrong length may be beyond the end of the file, too. But
// then either the chunk, or one behind it, is complete.
func cutOff(b []byte, at int) bool {
	rest := b[at:]
	switch length := int(binary.LittleEndian.Uint16(rest[4:])); {
	case allZero(rest):
		return true
	case len(b) >= at/chunkBlock*chunkBlock+chunkBlock || !ofManifest(rest):
		return false
	case chunkHeader+length <= len(rest) || checksum(rest) == binary.LittleEndian.Uint32(rest):
		return false // it is complete
	}
	for later := at + 1; later+chunkHeader <= len(b); later++ {
		if _, ok := readChunk(b, later); ok && ofManifest(b[later:]) {
			return false
		}
	}
	return true
}

// ofManifest reports whether a chunk has a type that lists of tables have.
func ofManifest(chunk []byte) bool { return chunk[6] > 0 && chunk[6] < chunkTypeLog }

// verifyLog finds a chunk that cannot be read although a later one says that
// it was synced.
func verifyLog(path string, number uint32, b []byte) error {
	at := 0
	for at < len(b) {
		end, ok := readChunk(b, at)
		if !ok || !ofLog(b[at:end], number) {
			break
		}
		at = end
	}
	for later := at + 1; later+chunkHeaderSync <= len(b); later++ {
		if t := b[later+6]; t < chunkTypeSync || t > chunkTypeMax || !ofLog(b[later:], number) {
			continue
		}
		if _, ok := readChunk(b, later); ok && syncedTo(b, later, number) > uint64(at) {
			return &store.CorruptionError{File: path, Offset: int64(at), Reason: fmt.Sprintf("a record of this log has a wrong checksum, although the record at %d says that it was synced", later)}
		}
	}
	return nil
}

// syncedTo returns the offset up to which a log was synced, by the chunk at an offset, which is
// readable.
func syncedTo(b []byte, at int, number uint32) uint64 {
	synced := binary.LittleEndian.Uint64(b[at+chunkHeaderLog:])
	if m := markIn(b, at); m.log == number {
		synced = max(synced, m.offset)
	}
	return synced
}

// ofLog reports whether a chunk belongs to the log with the given number. The zeros that
// fill up a block do.
func ofLog(chunk []byte, number uint32) bool {
	return len(chunk) < chunkHeaderSync && allZero(chunk) || len(chunk) < chunkHeader || len(chunk) >= chunkHeaderLog && binary.LittleEndian.Uint32(chunk[chunkHeader:]) == number
}

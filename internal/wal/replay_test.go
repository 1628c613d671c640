package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

var update = flag.Bool("update", false, "write the golden files again")

// oneSegment returns a segment of count records, each acknowledged before the next was
// appended, and the offsets at which they begin; the last offset is their end. A closed
// segment has an end mark; otherwise it is as a killed process leaves it.
func oneSegment(t testing.TB, count int, closed bool) (file []byte, starts []int) {
	fsys := vfs.NewMem()
	l := open(t, fsys, Config{})
	at := segmentHeaderSize
	for i := range count {
		payload := numbered(uint64(i), i*5%23)
		wait(t, l, l.Append(1, payload))
		starts = append(starts, at)
		at += recordHeaderSize + len(payload)
	}
	if closed {
		closeLog(t, l)
	}
	return readFile(t, fsys, 1), append(starts, at)
}

// recordAt returns the index of the record that contains the byte at offset, -1 for the
// segment's header, len(starts)-1 for what follows the records.
func recordAt(starts []int, offset int) int {
	n, found := slices.BinarySearch(starts, offset)
	if found {
		return n
	}
	return n - 1
}

func replayFile(t testing.TB, file []byte, o ReplayOptions) ([]entry, ReplayStats, error) {
	fsys := vfs.NewMem()
	writeFile(t, fsys, Segment(1).FileName(), file)
	return replayWith(fsys, o)
}

func TestTornTailAtEveryByte(t *testing.T) {
	file, starts := oneSegment(t, 12, false)
	for size := range len(file) + 1 {
		got, stats, err := replayFile(t, file[:size], ReplayOptions{})
		if err != nil {
			t.Fatalf("cut to %d bytes: %v", size, err)
		}
		want := max(recordAt(starts, size), 0)
		if n := checkPrefix(t, got); n != uint64(want) || stats.Damages != 0 {
			t.Fatalf("cut to %d bytes: %d records, want %d; %+v", size, n, want, stats)
		}
	}
}

// TestTornTailOverStaleBytes is the same in a reused file, whose former content
// is a log of the same records at the same places.
func TestTornTailOverStaleBytes(t *testing.T) {
	stale, starts := oneSegment(t, 12, true)
	const second = Segment(2)
	file := segmentHeader{segment: second}.encode()
	file = append(file, stale[segmentHeaderSize:]...)
	for i, at := range starts[:12] {
		finish(file[at:], second, int64(at), int64(starts[max(i-1, 0)]))
	}
	for size := range starts[12] + 1 {
		torn := append(slices.Clone(file[:size]), stale[size:]...)
		fsys := vfs.NewMem()
		writeFile(t, fsys, second.FileName(), torn)
		got, stats, err := replayWith(fsys, ReplayOptions{From: second})
		if err != nil {
			t.Fatalf("torn at %d: %v", size, err)
		}
		// The first bytes of a record that equal the stale ones make no difference. So
		// no record beyond the written ones can appear, but the torn record may be
		// complete already.
		want := uint64(max(recordAt(starts, size), 0))
		if n := checkPrefix(t, got); n != want && n != want+1 || stats.Damages != 0 {
			t.Fatalf("torn at %d: %d records, want %d; %+v", size, n, want, stats)
		}
	}
}

// TestFlippedByteIsReported flips each byte of a log. The result is damage with its
// place, except in the last record of a log that was not closed, which looks like a
// torn write. Continuing after the damage loses only the affected record.
func TestFlippedByteIsReported(t *testing.T) {
	const count = 12
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("closed=%v", closed), func(t *testing.T) {
			file, starts := oneSegment(t, count, closed)
			for at := range file {
				for _, mask := range []byte{0x01, 0x80, 0xFF} {
					flipped := slices.Clone(file)
					flipped[at] ^= mask
					hit := recordAt(starts, at)
					lost := closed && hit == count || !closed && hit == count-1
					checkFlipped(t, flipped, starts, at, lost)
				}
			}
		})
	}
}

func checkFlipped(t *testing.T, file []byte, starts []int, at int, lost bool) {
	t.Helper()
	hit := recordAt(starts, at)
	got, stats, err := replayFile(t, file, ReplayOptions{})
	before := checkPrefix(t, got)
	if lost {
		if err != nil || before != uint64(hit) || stats.Damages != 0 {
			t.Fatalf("byte %d of the tail: %d records, %+v, %v", at, before, stats, err)
		}
		return
	}
	var damage *store.CorruptionError
	if !errors.As(err, &damage) {
		t.Fatalf("byte %d: no damage reported, %d records, %+v, %v", at, before, stats, err)
	}
	want, records := 0, 0
	if hit >= 0 {
		want, records = starts[hit], hit
	}
	if damage.Offset != int64(want) || before != uint64(records) || !strings.HasSuffix(damage.File, Segment(1).FileName()) {
		t.Fatalf("byte %d: %v after %d records, want offset %d after %d", at, damage, before, want, records)
	}

	calls := 0
	got, stats, err = replayFile(t, file, ReplayOptions{OnDamage: func(*store.CorruptionError) bool { calls++; return true }})
	if err != nil || calls != 1 || stats.Damages != 1 {
		t.Fatalf("byte %d: %d damages, %+v, %v", at, calls, stats, err)
	}
	skipped := segmentHeaderSize
	if hit >= 0 {
		skipped = starts[hit+1] - starts[hit]
	}
	if stats.SkippedBytes != int64(skipped) {
		t.Fatalf("byte %d: skipped %d bytes, want %d", at, stats.SkippedBytes, skipped)
	}
	var numbers []uint64
	for _, e := range got {
		n, err := checkNumbered(e.payload)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	for i := range uint64(len(starts) - 1) {
		if slices.Contains(numbers, i) == (int(i) == hit) {
			t.Fatalf("byte %d of record %d: read %v", at, hit, numbers)
		}
	}
}

// TestSealedSegmentIsWholeOrDamaged cuts and flips a segment that has a
// successor, without an end mark: the successor knows its length.
func TestSealedSegmentIsWholeOrDamaged(t *testing.T) {
	file, starts := oneSegment(t, 5, false)
	end := starts[5]
	next := segmentHeader{segment: 2, previous: 1, previousAt: int64(end)}.encode()
	check := func(first []byte) (ReplayStats, error) {
		fsys := vfs.NewMem()
		writeFile(t, fsys, Segment(1).FileName(), first)
		writeFile(t, fsys, Segment(2).FileName(), next)
		got, stats, err := replayWith(fsys, ReplayOptions{})
		checkPrefix(t, got)
		return stats, err
	}
	for size := range end {
		if _, err := check(file[:size]); !isDamage(err) {
			t.Fatalf("cut to %d bytes: %v", size, err)
		}
	}
	for at := range end {
		flipped := slices.Clone(file)
		flipped[at] ^= 0x10
		if _, err := check(flipped); !isDamage(err) {
			t.Fatalf("flipped byte %d: %v", at, err)
		}
	}
	stats, err := check(append(slices.Clone(file), "torn and cut before"...))
	if err != nil || stats.Records != 5 || stats.CutBytes != 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
}

func isDamage(err error) bool {
	var damage *store.CorruptionError
	return errors.As(err, &damage)
}

func TestShortSealedSegmentCanBeSkipped(t *testing.T) {
	file, starts := oneSegment(t, 5, false)
	fsys := vfs.NewMem()
	writeFile(t, fsys, Segment(1).FileName(), file[:starts[3]])
	writeFile(t, fsys, Segment(2).FileName(), segmentHeader{segment: 2, previous: 1, previousAt: int64(starts[5])}.encode())
	got, stats, err := replayWith(fsys, ReplayOptions{OnDamage: func(*store.CorruptionError) bool { return true }})
	if err != nil || checkPrefix(t, got) != 3 || stats.SkippedBytes != int64(starts[5]-starts[3]) || stats.Damages != 1 {
		t.Fatalf("%d records, %+v, %v", len(got), stats, err)
	}
}

// TestLaterPagesOfUnsyncedWrite writes many records at once. A power cut may keep any
// of their pages and lose others: that is a torn tail.
func TestLaterPagesOfUnsyncedWrite(t *testing.T) {
	const synced, torn, page = 4, 40, 64
	file, starts := oneSegment(t, synced+torn, false)
	durable := starts[synced]
	for _, at := range starts[synced : synced+torn] {
		finish(file[at:], 1, int64(at), int64(durable))
	}
	for from := durable / page * page; from < len(file); from += page {
		for _, pages := range []int{1, 3} {
			b := slices.Clone(file)
			lost := max(from, durable)
			clear(b[lost:min(from+pages*page, len(b))])
			got, stats, err := replayFile(t, b, ReplayOptions{})
			if err != nil || stats.Damages != 0 {
				t.Fatalf("lost pages at %d: %+v, %v", from, stats, err)
			}
			if n := checkPrefix(t, got); n != uint64(recordAt(starts, lost)) {
				t.Fatalf("lost pages at %d: %d records", from, n)
			}
			if want := int64(len(file) - starts[recordAt(starts, lost)]); stats.CutBytes > want || from+pages*page < len(file)-50 && stats.CutBytes != want {
				t.Fatalf("lost pages at %d: cut %d bytes of %d", from, stats.CutBytes, want)
			}
			// The next run seals the segment there; what it has cut off stays cut off.
			fsys := vfs.NewMem()
			writeFile(t, fsys, Segment(1).FileName(), b)
			closeLog(t, open(t, fsys, small))
			again, stats := replay(t, fsys)
			if !slices.Equal(again, got) || stats.CutBytes != 0 {
				t.Fatalf("lost pages at %d: then %d records, %+v", from, len(again), stats)
			}
		}
	}
}

func TestDiedWhileCreatingSegment(t *testing.T) {
	for _, size := range []int{0, 1, segmentHeaderSize - 1} {
		fsys := vfs.NewMem()
		l := open(t, fsys, small)
		wait(t, l, l.Append(1, []byte("kept")))
		closeLog(t, l)
		writeFile(t, fsys, Segment(2).FileName(), segmentHeader{segment: 2, previous: 1}.encode()[:size])
		for round := range 2 {
			if got, _ := replay(t, fsys); len(got) != 1+round {
				t.Fatalf("round %d: %v", round, got)
			}
			l = open(t, fsys, small)
			wait(t, l, l.Append(1, []byte("more")))
			closeLog(t, l)
		}
	}
}

func TestMissingSegment(t *testing.T) {
	fsys := vfs.NewMem()
	l := open(t, fsys, small)
	for i := range uint64(5) {
		l.Append(1, numbered(i, 100))
		if _, err := l.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
	if err := fsys.Remove(fsys.PathJoin(testDir, Segment(3).FileName())); err != nil {
		t.Fatal(err)
	}
	got, _, err := replayWith(fsys, ReplayOptions{})
	if !isDamage(err) || checkPrefix(t, got) != 2 || !strings.Contains(err.Error(), Segment(3).FileName()) {
		t.Fatalf("%d records, %v", len(got), err)
	}
	got, stats, err := replayWith(fsys, ReplayOptions{OnDamage: func(*store.CorruptionError) bool { return true }})
	if err != nil || len(got) != 4 || stats.Damages != 1 {
		t.Fatalf("%d records, %+v, %v", len(got), stats, err)
	}
	if _, _, err = replayWith(fsys, ReplayOptions{From: 3}); !isDamage(err) {
		t.Fatalf("first segment missing: %v", err)
	}
	if got, _, err = replayWith(fsys, ReplayOptions{From: 4}); err != nil || len(got) != 2 {
		t.Fatalf("%d records, %v", len(got), err)
	}
}

// TestMissingSegmentBeforeDamagedHeader: an unreadable header does not show which
// segment was before it. Segments are numbered without gaps, so a skipped number is a
// missing segment, which is reported in addition to the damage of the header.
func TestMissingSegmentBeforeDamagedHeader(t *testing.T) {
	for _, missing := range []bool{false, true} {
		fsys := vfs.NewMem()
		l := open(t, fsys, small)
		for i := range uint64(5) {
			l.Append(1, numbered(i, 100))
			if _, err := l.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, l)
		flipByte(t, fsys, 4, 20)
		want := []string{Segment(4).FileName()}
		if missing {
			if err := fsys.Remove(fsys.PathJoin(testDir, Segment(3).FileName())); err != nil {
				t.Fatal(err)
			}
			want = []string{Segment(3).FileName(), Segment(4).FileName()}
		}
		var told []string
		_, stats, err := replayWith(fsys, ReplayOptions{OnDamage: func(c *store.CorruptionError) bool {
			told = append(told, fsys.PathBase(c.File))
			return true
		}})
		if err != nil || stats.Damages != len(want) || !slices.Equal(told, want) {
			t.Errorf("segment 3 missing %v: damage told of %v, want %v; %+v, %v", missing, told, want, stats, err)
		}
	}
}

// TestBegunSegment: if the first needed segment is missing, no replay mistakes the rest
// for the whole, whether the directory is gone, or the segment is gone, cut off before
// its records, zeroed, or a copy of another one.
func TestBegunSegment(t *testing.T) {
	zeros := make([]byte, 4096)
	for name, c := range map[string]struct {
		segments int
		spoil    func(t *testing.T, fsys *vfs.MemFS)
		file     Segment // that is named
	}{
		"sound":         {2, func(*testing.T, *vfs.MemFS) {}, 0},
		"no directory":  {1, func(t *testing.T, fsys *vfs.MemFS) { must(t, fsys.RemoveAll(testDir)) }, 2},
		"no file":       {1, func(t *testing.T, fsys *vfs.MemFS) { remove(t, fsys, 2) }, 2},
		"empty":         {1, func(t *testing.T, fsys *vfs.MemFS) { writeFile(t, fsys, Segment(2).FileName(), nil) }, 2},
		"half a header": {1, func(t *testing.T, fsys *vfs.MemFS) { writeFile(t, fsys, Segment(2).FileName(), zeros[:20]) }, 2},
		"zeros":         {1, func(t *testing.T, fsys *vfs.MemFS) { writeFile(t, fsys, Segment(2).FileName(), zeros) }, 2},
		"another one's copy": {1, func(t *testing.T, fsys *vfs.MemFS) {
			writeFile(t, fsys, Segment(2).FileName(), readFile(t, fsys, 1))
		}, 2},
		"no file, one after": {2, func(t *testing.T, fsys *vfs.MemFS) { remove(t, fsys, 2) }, 2},
		"zeros, one after":   {2, func(t *testing.T, fsys *vfs.MemFS) { writeFile(t, fsys, Segment(2).FileName(), zeros) }, 2},
		"no file, then zeros": {2, func(t *testing.T, fsys *vfs.MemFS) {
			remove(t, fsys, 2)
			writeFile(t, fsys, Segment(3).FileName(), zeros)
		}, 2},
	} {
		fsys := vfs.NewMem()
		l := open(t, fsys, small)
		for i := range c.segments + 1 {
			if i > 0 {
				_, err := l.Complete()
				must(t, err)
			}
			l.Append(1, numbered(uint64(i), 100))
		}
		closeLog(t, l)
		c.spoil(t, fsys)
		_, _, err := replayWith(fsys, ReplayOptions{From: 2, Begun: true})
		var damage *store.CorruptionError
		if named := errors.As(err, &damage) && fsys.PathBase(damage.File) == c.file.FileName(); named != (c.file > 0) || err != nil && !named {
			t.Errorf("%s: %v, want damage of segment %d", name, err, c.file)
		}
		_, stats, err := replayWith(fsys, ReplayOptions{From: 2, Begun: true, OnDamage: func(*store.CorruptionError) bool { return true }})
		if err != nil || (stats.Damages > 0) != (c.file > 0) {
			t.Errorf("%s, damage skipped: %+v, %v", name, stats, err)
		}
	}
}

// TestCompleteAndBegun: Complete ends a segment without records; Rotate does not. A
// segment is begun once this log has made its header durable.
func TestCompleteAndBegun(t *testing.T) {
	fsys := vfs.NewMem()
	l := open(t, fsys, small)
	for _, c := range []struct {
		call func() (Segment, error)
		want Segment
	}{{l.Rotate, 1}, {l.Complete, 2}, {l.Complete, 3}, {l.Rotate, 3}} {
		if got, err := c.call(); got != c.want || err != nil || !l.Begun(got) {
			t.Errorf("segment %d, want %d, begun %v, %v", got, c.want, l.Begun(got), err)
		}
	}
	if l.Begun(4) {
		t.Error("segment 4 was not asked for, yet has begun")
	}
	closeLog(t, l)
	l = open(t, fsys, small)
	defer closeLog(t, l)
	if l.Begun(3) || !l.Begun(4) {
		t.Errorf("after a new start, segments 3 and 4 have begun: %v, %v, want false, true", l.Begun(3), l.Begun(4))
	}
	if got, _ := replay(t, fsys); len(got) != 0 {
		t.Errorf("%d records of segments without any", len(got))
	}
}

func remove(t testing.TB, fsys vfs.FS, s Segment) {
	t.Helper()
	must(t, fsys.Remove(fsys.PathJoin(testDir, s.FileName())))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplayLeavesOtherFilesAlone: files for reuse and foreign files in a log's
// directory are not segments.
func TestReplayLeavesOtherFilesAlone(t *testing.T) {
	fsys := vfs.NewMem()
	l := open(t, fsys, small)
	wait(t, l, l.Append(1, numbered(0, 100)))
	closeLog(t, l)
	stale := readFile(t, fsys, 1)
	for _, name := range []string{"0000000007" + freeSuffix, "0000000008.txt", "notes", "wal" + segmentSuffix} {
		writeFile(t, fsys, name, stale)
	}
	got, stats, err := replayWith(fsys, ReplayOptions{})
	if err != nil || len(got) != 1 || stats.Segments != 1 || stats.Damages != 0 {
		t.Errorf("%d records, %+v, %v", len(got), stats, err)
	}
}

func TestLaterFormat(t *testing.T) {
	header := segmentHeader{segment: 1}.encode()
	binary.LittleEndian.PutUint32(header[8:], formatVersion+1)
	binary.LittleEndian.PutUint32(header[36:], crc32.Checksum(header[:36], castagnoli))
	fsys := vfs.NewMem()
	writeFile(t, fsys, Segment(1).FileName(), header)
	if _, _, err := replayWith(fsys, ReplayOptions{}); err == nil || !strings.Contains(err.Error(), "log format 2") {
		t.Fatal(err)
	}
	if _, err := Open(fsys, testDir, small, Options{}); err == nil || !strings.Contains(err.Error(), "log format 2") {
		t.Fatal(err)
	}
}

func TestVisitorsErrorEndsReplay(t *testing.T) {
	file, _ := oneSegment(t, 5, true)
	fsys := vfs.NewMem()
	writeFile(t, fsys, Segment(1).FileName(), file)
	stop := errors.New("stop")
	_, err := Replay(fsys, testDir, ReplayOptions{}, func(Segment, byte, []byte) error { return stop })
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

// TestSearchIsBounded makes a segment look like record headers everywhere, each of
// which requires reading the rest of the file.
func TestSearchIsBounded(t *testing.T) {
	const size = 256 << 10
	file := segmentHeader{segment: 1}.encode()
	file = append(file, make([]byte, size)...)
	for at := segmentHeaderSize + 1; at+recordHeaderSize <= len(file); at += recordHeaderSize {
		frame(file[at:], 1, len(file)-at-recordHeaderSize)
		binary.LittleEndian.PutUint32(file[at+atDurable:], segmentHeaderSize)
		crc := crc32.Update(seed(1, int64(at)), castagnoli, file[at:at+atCheck])
		binary.LittleEndian.PutUint16(file[at+atCheck:], uint16(crc))
	}
	if _, _, err := replayFile(t, file, ReplayOptions{}); !isDamage(err) {
		t.Fatalf("undecided, and not reported: %v", err)
	}
}

// TestSearchAtTheEdgeOfAWindow: the search finds a header that ends where a window does, or before or after that.
func TestSearchAtTheEdgeOfAWindow(t *testing.T) {
	const from = segmentHeaderSize
	for _, at := range []int{from, from + windowBytes - recordHeaderSize - 1, from + windowBytes - recordHeaderSize,
		from + windowBytes - recordHeaderSize + 1, from + windowBytes - 1, from + windowBytes, from + 2*windowBytes - recordHeaderSize} {
		file := make([]byte, from+2*windowBytes)
		frame(file[at:], 1, len(file)-at-recordHeaderSize)
		binary.LittleEndian.PutUint32(file[at+atDurable:], segmentHeaderSize)
		binary.LittleEndian.PutUint16(file[at+atCheck:], uint16(crc32.Update(seed(1, int64(at)), castagnoli, file[at:at+atCheck])))
		fsys := vfs.NewMem()
		writeFile(t, fsys, "segment", file)
		f, err := fsys.Open(fsys.PathJoin(testDir, "segment"))
		if err != nil {
			t.Fatal(err)
		}
		s := newScanner(window{name: "segment", size: int64(len(file)), file: f}, 1, unsealed)
		if got, _, err := s.candidate(from); got != int64(at) || err != nil {
			t.Errorf("header at %d: found at %d, %v", at, got, err)
		}
		f.Close()
	}
}

// goldenLog is what the files in testdata/golden hold.
func goldenLog(t testing.TB) (*vfs.MemFS, []entry) {
	fsys := vfs.NewMem()
	l := open(t, fsys, Config{})
	var want []entry
	for i := range uint64(6) {
		payload := numbered(i, int(i*7))
		wait(t, l, l.Append(byte(1+i), payload))
		want = append(want, entry{Segment(1 + i/4), byte(1 + i), string(payload)})
		if i == 3 {
			if _, err := l.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wait(t, l, l.Append(254)) // empty
	closeLog(t, l)
	return fsys, append(want, entry{2, 254, ""})
}

func TestGolden(t *testing.T) {
	const dir = "testdata/golden"
	written, want := goldenLog(t)
	if *update {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fsys := vfs.NewMem()
	for s := Segment(1); s <= 2; s++ {
		name := filepath.Join(dir, s.FileName())
		if *update {
			if err := os.WriteFile(name, readFile(t, written, s), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b, readFile(t, written, s)) {
			t.Errorf("%s is not what this build writes", name)
		}
		writeFile(t, fsys, s.FileName(), b)
	}
	got, stats := replay(t, fsys)
	if !slices.Equal(got, want) || stats.CutBytes != 0 {
		t.Fatalf("%v, want %v; %+v", got, want, stats)
	}
}

// FuzzReplay replays arbitrary bytes as a segment, alone and before another one, and
// appends after them.
func FuzzReplay(f *testing.F) {
	for _, closed := range []bool{false, true} {
		file, starts := oneSegment(f, 5, closed)
		f.Add(slices.Clone(file), -1)
		f.Add(slices.Clone(file), starts[5])
		f.Add(slices.Clone(file[:starts[3]+7]), starts[5])
		file[starts[2]+3] ^= 1
		f.Add(slices.Clone(file), -1)
		file[3] ^= 1
		f.Add(slices.Clone(file), -1)
	}
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, file []byte, sealedAt int) {
		fsys := vfs.NewMem()
		writeFile(t, fsys, Segment(1).FileName(), file)
		if sealedAt >= 0 {
			writeFile(t, fsys, Segment(2).FileName(), segmentHeader{segment: 2, previous: 1, previousAt: int64(sealedAt)}.encode())
		}
		_, _, strict := replayWith(fsys, ReplayOptions{})
		got, stats, err := replayWith(fsys, ReplayOptions{OnDamage: func(*store.CorruptionError) bool { return true }})
		if err != nil && !strings.Contains(err.Error(), "log format") {
			t.Fatal(err)
		}
		if isDamage(strict) != (stats.Damages > 0) {
			t.Fatalf("%v, but %d damages skipped", strict, stats.Damages)
		}
		if stats.Bytes+stats.CutBytes > int64(len(file)) {
			t.Fatalf("%+v of %d bytes", stats, len(file))
		}
		l, openErr := Open(fsys, testDir, small, Options{})
		if (openErr == nil) != (err == nil) && sealedAt < 0 {
			t.Fatalf("replay: %v, open: %v", err, openErr)
		}
		if openErr != nil || err != nil {
			if l != nil {
				_ = l.Close()
			}
			return
		}
		l.Append(1, []byte("behind"))
		closeLog(t, l)
		again, stats2, err := replayWith(fsys, ReplayOptions{OnDamage: func(*store.CorruptionError) bool { return true }})
		if err != nil || len(again) != len(got)+1 || !slices.Equal(again[:len(got)], got) {
			t.Fatalf("before %d records, %+v; with one more %d, %+v, %v", len(got), stats, len(again), stats2, err)
		}
		if stats2.Damages != stats.Damages {
			t.Fatalf("%d damages before, %d after", stats.Damages, stats2.Damages)
		}
	})
}

// An open log can be read up to a complete segment.
func TestReplayOfOpenLog(t *testing.T) {
	fsys := vfs.NewMem()
	l := open(t, fsys, small)
	l.Append(1, []byte("first"))
	second, err := l.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	wait(t, l, l.Last()) // the second segment is begun, the first complete
	segments, err := Segments(fsys, testDir)
	if err != nil || !slices.Equal(segments, []Segment{second - 1, second}) {
		t.Fatal(segments, err)
	}
	wait(t, l, l.Append(1, []byte("later")))
	got, stats, err := replayWith(fsys, ReplayOptions{To: second - 1})
	if err != nil || !slices.Equal(got, []entry{{second - 1, 1, "first"}}) || stats.Segments != 1 {
		t.Fatal(got, stats, err)
	}
	flipByte(t, fsys, second-1, segmentHeaderSize+recordHeaderSize)
	if _, _, err := replayWith(fsys, ReplayOptions{To: second - 1}); !isDamage(err) {
		t.Errorf("a complete segment is damaged: %v", err)
	}
	if _, _, err := replayWith(fsys, ReplayOptions{From: second, To: second}); err != nil {
		t.Errorf("the damaged segment was not asked for: %v", err)
	}
}

func flipByte(t *testing.T, fsys vfs.FS, s Segment, at int64) {
	t.Helper()
	f, err := fsys.OpenReadWrite(fsys.PathJoin(testDir, s.FileName()), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// A flakyFile fails its first read.
type flakyFile struct {
	vfs.File
	failing bool
}

func (f *flakyFile) ReadAt(b []byte, at int64) (int, error) {
	if f.failing {
		f.failing = false
		return len(b) / 2, errors.New("the disk is on fire")
	}
	return f.File.ReadAt(b, at)
}

// After a failed read, the buffer is not used: the next read goes to the disk again.
func TestReadAfterAFailedRead(t *testing.T) {
	fsys := vfs.NewMem()
	f, err := fsys.Create("segment", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("the first and the second"))
	f.Close()
	f, err = fsys.Open("segment")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, read := range map[string]func(w *window) ([]byte, error){
		"at":   func(w *window) ([]byte, error) { return w.at(0, 9) },
		"rest": func(w *window) ([]byte, error) { return w.rest(0, 9) },
	} {
		w := &window{name: "segment", size: 24, file: &flakyFile{File: f, failing: true}}
		if b, err := read(w); err == nil {
			t.Errorf("%s: a read that fails returns %q", name, b)
		}
		if b, err := read(w); err != nil || !strings.HasPrefix(string(b), "the first") {
			t.Errorf("%s: then %q, %v", name, b, err)
		}
	}
}

// TestFileThatBecameShorter: if a file ends before its former size, that is an error,
// not the end of the log.
func TestFileThatBecameShorter(t *testing.T) {
	fsys := vfs.NewMem()
	writeFile(t, fsys, "segment", []byte("the first"))
	f, err := fsys.Open(fsys.PathJoin(testDir, "segment"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := &window{name: "segment", size: 20, file: f}
	if b, err := w.at(0, 20); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		t.Errorf("read %q, %v", b, err)
	}
}

// TestWindowGoesBack: search continues after the header of a payload that it has read,
// so a read may begin before the buffered bytes.
func TestWindowGoesBack(t *testing.T) {
	fsys := vfs.NewMem()
	f, err := fsys.Create("segment", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 2*windowBytes)
	for i := range content {
		content[i] = byte(i ^ i>>8)
	}
	f.Write(bytes.Clone(content)) // with the race detector, files in memory change what they are given
	f.Close()
	f, err = fsys.Open("segment")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const begin, n = 1000, 16
	for name, read := range map[string]func(w *window, offset int64) ([]byte, error){
		"at":   func(w *window, offset int64) ([]byte, error) { return w.at(offset, n) },
		"rest": func(w *window, offset int64) ([]byte, error) { return w.rest(offset, n) },
	} {
		for _, offset := range []int64{0, begin - 2, begin - 1, begin, begin + 1, begin + windowBytes - n, begin + windowBytes - n + 1, begin + windowBytes} {
			w := &window{name: "segment", size: int64(len(content)), file: f}
			if _, err := w.at(begin, n); err != nil {
				t.Fatal(err)
			}
			b, err := read(w, offset)
			if err != nil || len(b) < n || !bytes.HasPrefix(content[offset:], b) {
				t.Errorf("%s %d: %.20x, %v", name, offset, b, err)
			}
		}
	}
}

package whisper

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"varve/internal/retention"
)

// after is a time, in seconds, after all points of the golden files.
const after = 1_700_000_000

// A golden is what Whisper's own code returns for a file.
type golden struct {
	name     string
	file     []byte
	Now      int64
	Method   retention.Method
	XFF      float64
	Archives [][2]int64
	Sent     [][2]float64
	Points   [][][2]float64
}

func goldens(t testing.TB) (all []golden) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.wsp")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		g := golden{name: strings.TrimSuffix(filepath.Base(file), Suffix)}
		text, err := os.ReadFile(strings.TrimSuffix(file, Suffix) + ".json")
		if err == nil {
			err = json.Unmarshal(text, &g)
		}
		if err != nil {
			t.Fatal(err)
		}
		if g.file, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	return all
}

func (g *golden) points(archive int) (points []Point) {
	for _, p := range g.Points[archive] {
		points = append(points, Point{int64(p[0]), p[1]})
	}
	return points
}

// covered returns the points of an archive that are within its retention at the time of the file.
func (g *golden) covered(archive int) []Point {
	step, n := g.Archives[archive][0], g.Archives[archive][1]
	since := g.Now - g.Now%step - step*n
	return slices.DeleteFunc(g.points(archive), func(p Point) bool { return p.Time <= since })
}

func (g *golden) stages() (stages retention.Stages) {
	for _, a := range g.Archives {
		stages = append(stages, retention.Stage{Step: a[0], Keep: a[0] * a[1]})
	}
	return stages
}

func open(t testing.TB, file []byte) *File {
	t.Helper()
	f, err := Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// history returns all points of a file.
func history(t testing.TB, f *File, now int64) (points []Point, left Left) {
	t.Helper()
	left, err := f.History(context.Background(), now, func(_ int, p []Point) error {
		points = append(points, p...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return points, left
}

// known returns the points of one archive of a file, independent of the other archives.
func known(t testing.TB, f *File, archive int, now int64) []Point {
	t.Helper()
	one := *f
	one.Archives = f.Archives[archive : archive+1]
	points, _ := history(t, &one, now)
	return points
}

func TestGoldenFiles(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			f := open(t, g.file)
			if f.Method != g.Method || f.XFilesFactor != g.XFF || !slices.Equal(f.Stages(), g.stages()) {
				t.Errorf("%s %v %v, want %s %v %v", f.Method, f.XFilesFactor, f.Stages(), g.Method, g.XFF, g.stages())
			}
			for i := range f.Archives {
				if got, want := known(t, f, i, after), g.points(i); !slices.Equal(got, want) {
					t.Errorf("archive %d: %v\nwant %v", i, got, want)
				}
			}
			got, left := history(t, f, after)
			if want := g.history(); !slices.Equal(got, want) || left != (Left{}) {
				t.Errorf("%v, left out %+v\nwant %v", got, left, want)
			}
		})
	}
}

// history returns the points of the history, computed literally as the comment of History says.
func (g *golden) history() []Point {
	var all []Point
	oldest, reaches := int64(math.MaxInt64), int64(0) // of the finer archives
	for i := range g.Points {
		points := g.points(i)
		step, keep := g.Archives[i][0], g.Archives[i][0]*g.Archives[i][1]
		sums := g.Method == retention.Sum || g.Method == retention.AverageZero
		var taken []Point
		for _, p := range points {
			whole := oldest == math.MaxInt64 || p.Time+step <= oldest
			if whole || p.Time < oldest && p.Time < reaches && !sums {
				taken = append(taken, p)
			}
		}
		if len(points) > 0 && points[0].Time < oldest {
			oldest = points[0].Time
			reaches = points[len(points)-1].Time - keep + step
		}
		all = append(taken, all...)
	}
	return all
}

// All points of a path that is younger than its finest archive are in that archive: coarser
// archives add nothing.
func TestHistoryOfAYoungPath(t *testing.T) {
	sent := []Point{{1690, 1}, {1700, 2}, {1950, 3}}
	for _, m := range []retention.Method{retention.Average, retention.Sum, retention.Max} {
		file := write(t, retention.Stages{{Step: 10, Keep: 600}, {Step: 60, Keep: 6000}}, &retention.Aggregation{Method: m}, 2000, sent)
		if got, _ := history(t, open(t, file), 2000); !slices.Equal(got, sent) {
			t.Errorf("%s: %v, want %v", m, got, sent)
		}
	}
}

// A memory is a file in memory.
type memory []byte

func (m memory) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(p)) > int64(len(m)) {
		return 0, fmt.Errorf("write of %d bytes at %d into %d", len(p), at, len(m))
	}
	return copy(m[at:], p), nil
}

// write makes a file. With strict, xFilesFactor applies to old buckets as to new ones.
func write(t testing.TB, stages retention.Stages, a *retention.Aggregation, now int64, points []Point, strict ...bool) []byte {
	t.Helper()
	h, err := NewHeader(stages, a)
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, h.Size())
	w, err := NewWriter(file, h, a, now)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.levels {
		if len(strict) > 0 {
			w.levels[i].finer = 0
		}
	}
	for _, p := range points {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// The points that Whisper was sent give the same archives here.
func TestWriteAsTheOriginal(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			step := g.Archives[0][0]
			var points []Point
			for _, s := range g.Sent {
				p := Point{int64(s[0]), s[1]}
				if n := len(points); n > 0 && points[n-1].Time/step == p.Time/step {
					points = points[:n-1]
				}
				points = append(points, p)
			}
			file := write(t, g.stages(), &retention.Aggregation{Method: g.Method, XFilesFactor: g.XFF}, g.Now, points, true)
			f := open(t, file)
			if head := headerBytes + len(g.Archives)*archiveBytes; !bytes.Equal(file[:head], g.file[:head]) {
				t.Errorf("header % x, want % x", file[:head], g.file[:head])
			}
			for i := range f.Archives {
				got, want := known(t, f, i, after), g.covered(i)
				if !slices.EqualFunc(got, want, almost) {
					t.Errorf("archive %d: %v\nwant %v", i, got, want)
				}
			}
		})
	}
}

// almost compares values and allows for sums in a different order.
func almost(a, b Point) bool {
	return a.Time == b.Time && math.Abs(a.Value-b.Value) <= 1e-9
}

// A file that is written from the history of another file equals that file, although the finer
// points of most coarser ones no longer exist.
func TestHistoryBack(t *testing.T) {
	for _, g := range goldens(t) {
		if g.Method == retention.AverageZero {
			continue // its buckets include points that no longer exist
		}
		t.Run(g.name, func(t *testing.T) {
			points, _ := history(t, open(t, g.file), after)
			f := open(t, write(t, g.stages(), &retention.Aggregation{Method: g.Method, XFilesFactor: g.XFF}, g.Now, points))
			for i := range f.Archives {
				cut := g.Now - g.Archives[max(i-1, 0)][0]*g.Archives[max(i-1, 0)][1] - g.Archives[i][0]
				got, want := known(t, f, i, after), g.covered(i)
				if i > 0 { // compare only before the finer archive begins, where buckets are complete
					late := func(p Point) bool { return p.Time >= cut }
					got, want = slices.DeleteFunc(got, late), slices.DeleteFunc(want, late)
				}
				if !slices.Equal(got, want) {
					t.Errorf("archive %d: %v\nwant %v", i, got, want)
				}
			}
		})
	}
}

func TestHostileFiles(t *testing.T) {
	head := func(method, count uint32, factor float32, archives ...[3]uint32) []byte {
		var b []byte
		for _, v := range []uint32{method, 60, math.Float32bits(factor), count} {
			b = binary.BigEndian.AppendUint32(b, v)
		}
		for _, a := range archives {
			for _, v := range a {
				b = binary.BigEndian.AppendUint32(b, v)
			}
		}
		return b
	}
	points := make([]byte, 10*pointBytes)
	nan := float32(math.NaN())
	for _, tc := range []struct {
		name string
		file []byte
		is   error
		want string
	}{
		{"empty", nil, ErrDamaged, "empty"},
		{"zeros", make([]byte, 5000), ErrDamaged, "nothing but zeros"},
		{"short", head(1, 1, 0)[:15], ErrDamaged, "ends within its header, after 15 bytes"},
		{"text", []byte("this is a file of text, and no points"), ErrNotWhisper, "unknown aggregation method"},
		{"compressed", []byte("whisper_compressed\x01\x02"), ErrCompressed, "go-carbon"},
		{"method 9", head(9, 1, 0, [3]uint32{28, 60, 10}), ErrNotWhisper, "method 9"},
		{"factor 2", head(1, 1, 2, [3]uint32{28, 60, 10}), ErrNotWhisper, "xFilesFactor is 2"},
		{"factor NaN", head(1, 1, nan, [3]uint32{28, 60, 10}), ErrNotWhisper, "xFilesFactor is NaN"},
		{"no archives", head(1, 0, 0), ErrNotWhisper, "0 archives"},
		{"2^32 archives", head(1, math.MaxUint32, 0), ErrNotWhisper, "4294967295 archives"},
		{"64 archives that are not there", head(1, 64, 0), ErrDamaged, "within its header"},
		{"2^32 points", append(head(1, 1, 0, [3]uint32{28, 60, math.MaxUint32}), points...), ErrDamaged, "archive 0 ends at byte 51539607568, and the file at byte 148"},
		{"a point too much", append(head(1, 1, 0, [3]uint32{28, 60, 11}), points...), ErrDamaged, "ends at byte 160"},
		{"far offset", append(head(1, 1, 0, [3]uint32{math.MaxUint32, 60, 1}), points...), ErrDamaged, "archive 0 ends"},
		{"archive in the header", append(head(1, 1, 0, [3]uint32{16, 60, 1}), points...), ErrDamaged, "archive 0 begins at byte 16"},
		{"archives over each other", append(head(1, 2, 0, [3]uint32{40, 60, 2}, [3]uint32{52, 120, 2}), points...), ErrDamaged, "archive 1 begins at byte 52"},
		{"step 0", append(head(1, 1, 0, [3]uint32{28, 0, 1}), points...), ErrDamaged, "one in 0 s"},
		{"no points", append(head(1, 1, 0, [3]uint32{28, 60, 0}), points...), ErrDamaged, "0 points"},
		{"coarse first", append(head(1, 2, 0, [3]uint32{40, 60, 2}, [3]uint32{64, 10, 2}), points...), ErrDamaged, "not coarser"},
	} {
		_, err := Open(bytes.NewReader(tc.file), int64(len(tc.file)))
		if err == nil || !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// Points that are not part of the history are counted, and the others used.
func TestPointsLeftOut(t *testing.T) {
	file := write(t, retention.Stages{{Step: 10, Keep: 100}}, &retention.Aggregation{Method: retention.Last}, 2000,
		[]Point{{1910, 1}, {1920, 2}, {1930, 3}, {1940, 4}, {1950, 5}, {1960, 6}, {1970, 7}, {1990, 9}})
	put := func(slot int, time uint32, v float64) {
		at := headerBytes + archiveBytes + slot*pointBytes
		binary.BigEndian.PutUint32(file[at:], time)
		binary.BigEndian.PutUint64(file[at+4:], math.Float64bits(v))
	}
	put(1, 1921, 2)           // not on the step
	put(2, 1940, 3)           // in the wrong slot
	put(3, 1940, math.Inf(1)) // infinite
	put(4, 1950+300, 5)       // later than now
	put(7, 1980-700, 8)       // of an earlier revolution, which is no damage
	put(9, 2000, math.NaN())  // not a number
	got, left := history(t, open(t, file), 2000)
	want := []Point{{1910, 1}, {1960, 6}, {1970, 7}, {1990, 9}}
	if !slices.Equal(got, want) || left != (Left{Misplaced: 2, NotFinite: 2, Future: 1}) {
		t.Errorf("%v, left out %+v, want %v", got, left, want)
	}
}

func TestHistoryEnds(t *testing.T) {
	g := goldens(t)[0]
	ctx, cancel := context.WithCancelCause(context.Background())
	over := errors.New("over")
	cancel(over)
	if _, err := open(t, g.file).History(ctx, after, nil); !errors.Is(err, over) {
		t.Errorf("with a context that ended: %v", err)
	}
	_, err := open(t, g.file).History(context.Background(), after, func(int, []Point) error { return over })
	if !errors.Is(err, over) {
		t.Errorf("the error of yield: %v", err)
	}
	if f, err := Open(bytes.NewReader(g.file[:headerBytes]), int64(len(g.file))); f != nil || !errors.Is(err, io.EOF) {
		t.Errorf("a file that became shorter than its header: %v, %v", f, err)
	}
	cut := bytes.NewReader(g.file[:len(g.file)-1])
	f, err := Open(cut, int64(len(g.file)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.History(context.Background(), after, func(int, []Point) error { return nil }); err == nil {
		t.Error("a file that became shorter is read without an error")
	}
}

// A ring that was filled more than once is read whole, up to the first error.
func TestHistoryOfManyRevolutions(t *testing.T) {
	const slots, n = 3 * pieceBytes / pointBytes, 7*pieceBytes/pointBytes + 1
	var points []Point
	for i := range int64(n) {
		points = append(points, Point{1000 + i, float64(i)})
	}
	f := open(t, write(t, retention.Stages{{Step: 1, Keep: slots}}, &retention.DefaultAggregation, 1000, points))
	if got, left := history(t, f, after); !slices.Equal(got, points[n-slots:]) || left != (Left{}) {
		t.Errorf("%d points, left out %+v; want %d points", len(got), left, slots)
	}
	over := errors.New("over")
	for at := 1; at <= 3; at++ {
		calls := 0
		_, err := f.History(t.Context(), after, func(int, []Point) error {
			if calls++; calls == at {
				return over
			}
			return nil
		})
		if !errors.Is(err, over) || calls != at {
			t.Errorf("after an error of call %d, there were %d calls, %v", at, calls, err)
		}
	}
}

// A fullDisk fails at one write.
type fullDisk struct {
	memory
	writes, at int
}

var errFull = errors.New("the disk is full")

func (d *fullDisk) WriteAt(p []byte, at int64) (int, error) {
	if d.writes++; d.writes == d.at {
		return 0, errFull
	}
	return d.memory.WriteAt(p, at)
}

// If any write fails, the file is not read as a complete one.
func TestWriterOnAFullDisk(t *testing.T) {
	h, err := NewHeader(retention.Stages{{Step: 1, Keep: 100}, {Step: 10, Keep: 1000}}, &retention.DefaultAggregation)
	must(t, err)
	fill := func(d *fullDisk) error {
		w, err := NewWriter(d, h, &retention.DefaultAggregation, 1100)
		for at := int64(1001); at <= 1100 && err == nil; at += 1 + at%3 { // with gaps, each of which ends a write
			err = w.Add(Point{at, 1})
		}
		if err != nil {
			return err
		}
		if err := w.SetPoint(1, Point{1090, 2}); err != nil {
			return err
		}
		return w.Close()
	}
	for at := 1; ; at++ {
		d := &fullDisk{memory: make(memory, h.Size()), at: at}
		err := fill(d)
		if d.writes < at {
			must(t, err)
			break
		}
		if !errors.Is(err, errFull) {
			t.Errorf("write %d failed: %v", at, err)
		}
	}
}

func TestHeadersThatDoNotFit(t *testing.T) {
	for want, s := range map[string]retention.Stages{
		"does not fit into a file": {{Step: 1, Keep: 400_000_000}},
		"times below 2^32":         {{Step: 1 << 30, Keep: 1 << 33}},
		"0 archives":               {},
	} {
		if _, err := NewHeader(s, &retention.DefaultAggregation); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", s, err, want)
		}
	}
	if _, err := NewHeader(retention.Stages{{Step: 1, Keep: 10}}, &retention.Aggregation{Method: retention.Count}); err == nil {
		t.Error("a method that Whisper does not have is taken")
	}
}

func TestNames(t *testing.T) {
	hash := "15eff2ea0e94d9c3d92ff5bbcff30a1f9dc7a5a4a9c1c3d6d0f5d4d0c2b1a09f"
	series := "disk.used;datacenter=dc1;rack=a1"
	sum := Hash(series)
	for _, tc := range []struct{ file, path, hash string }{
		{"a/b/c.wsp", "a.b.c", ""},
		{"a.wsp", "a", ""},
		{"a/b c/ü.wsp", "a.b c.ü", ""},
		{strings.Repeat("a", 251) + ".wsp", strings.Repeat("a", 251), ""},
		{"_tagged/" + sum[:3] + "/" + sum[3:6] + "/disk_DOT_used;datacenter=dc1;rack=a1.wsp", series, ""},
		{"_tagged/15e/ff2/" + hash + ".wsp", "", hash},
	} {
		path, hash, err := PathOf(tc.file)
		if err != nil || path != tc.path || hash != tc.hash {
			t.Errorf("%s: %q %q %v", tc.file, path, hash, err)
		}
		if tc.path == "" {
			continue
		}
		if file, err := FileOf(tc.path, false); file != tc.file || err != nil {
			t.Errorf("%s: file %q, want %q (%v)", tc.path, file, tc.file, err)
		}
	}
	if file, _ := FileOf(series, true); file != "_tagged/"+sum[:3]+"/"+sum[3:6]+"/"+sum+Suffix {
		t.Errorf("with its hash: %s", file)
	}
	for _, file := range []string{"a.b/c.wsp", ".wsp", "a//b.wsp", "a;b=c.wsp", "_tagged/a;b=c.wsp", "_tagged/123/456/plain.wsp", "_tagged/12/3456/a;b=c.wsp"} {
		if path, hash, err := PathOf(file); err == nil {
			t.Errorf("%s is taken for %q %q", file, path, hash)
		}
	}
	for _, path := range []string{"a/b", "a\x00", "_tagged.a", "", "..", "a..b", ".a", "a.", strings.Repeat("a", 252), "n;t=" + strings.Repeat("v", 250)} {
		if file, err := FileOf(path, false); err == nil {
			t.Errorf("%.20q has the file %q", path, file)
		}
	}
}

// TestNamesWithTheTextOfADot: a path in which the text that stands for a dot occurs is told from
// one with a dot by the hash in the directories.
func TestNamesWithTheTextOfADot(t *testing.T) {
	for _, path := range []string{
		"a.b;t=v", "a_DOT_b;t=v", "a.b_DOT_c.d;t=1.5", "a_DOT_.b;t=v_DOT_", "_DOT__DOT_;t=.",
		strings.Repeat("a.", 20) + "b;t=v",
	} {
		file, err := FileOf(path, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := PathOf(file); got != path || err != nil {
			t.Errorf("%s: %q %v, want %q", file, got, err, path)
		}
	}
	const moved = "_tagged/123/456/a_DOT_b;t=v.wsp" // the hash is another one
	if got, _, err := PathOf(moved); got != "a.b;t=v" || err != nil {
		t.Errorf("%s: %q %v", moved, got, err)
	}
}

func FuzzFile(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		w, err := Open(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			if !errors.Is(err, ErrNotWhisper) && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrCompressed) {
				t.Error(err)
			}
			return
		}
		last, n := int64(0), 0
		_, err = w.History(context.Background(), after, func(_ int, points []Point) error {
			for _, p := range points {
				if p.Time <= last || p.Time > after || !finite(p.Value) {
					t.Fatalf("point %+v behind %d", p, last)
				}
				last = p.Time
				n++
			}
			return nil
		})
		if err != nil || n > len(file)/pointBytes {
			t.Errorf("%d points of %d bytes, %v", n, len(file), err)
		}
	})
}

// Points that are written are read back.
func FuzzWriter(f *testing.F) {
	f.Add(uint16(10), uint16(36), uint16(6), []byte{1, 2, 3, 200, 5, 6, 7})
	f.Fuzz(func(t *testing.T, step, points, ratio uint16, gaps []byte) {
		if step == 0 || points == 0 || ratio < 2 || ratio > 1000 || points < ratio || len(gaps) > 1000 {
			return
		}
		s, n, r := int64(step), int64(points), int64(ratio)
		stages := retention.Stages{{Step: s, Keep: s * n}, {Step: s * r, Keep: s * r * (n + 1)}}
		now := int64(after) - after%s
		var sent []Point
		at := now
		for i, gap := range gaps {
			sent = append(sent, Point{at, float64(i)})
			at -= (int64(gap) + 1) * s
		}
		slices.Reverse(sent)
		file := open(t, write(t, stages, &retention.Aggregation{Method: retention.Last}, now, sent))
		want := slices.DeleteFunc(slices.Clone(sent), func(p Point) bool { return p.Time <= now-s*n })
		if got := known(t, file, 0, now); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		_, left := history(t, file, now)
		if left != (Left{}) {
			t.Errorf("left out %+v", left)
		}
	})
}

func BenchmarkHistory(b *testing.B) {
	var points []Point
	for t := int64(after - 86400*30); t <= after; t += 60 {
		points = append(points, Point{t, float64(t % 1000)})
	}
	file := write(b, retention.Stages{{Step: 60, Keep: 86400 * 7}, {Step: 300, Keep: 86400 * 30}}, &retention.DefaultAggregation, after, points)
	f := open(b, file)
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		history(b, f, after)
	}
}

// A given point replaces the one computed from finer points, if any. Coarser archives are computed
// from it, and other points as usual.
func TestWriterGive(t *testing.T) {
	h, err := NewHeader(retention.Stages{{Step: 10, Keep: 120}, {Step: 60, Keep: 1200}, {Step: 300, Keep: 6000}}, &retention.Aggregation{Method: retention.Sum, XFilesFactor: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, h.Size())
	w, err := NewWriter(file, h, &retention.Aggregation{Method: retention.Sum, XFilesFactor: 0.5}, 6000)
	if err != nil {
		t.Fatal(err)
	}
	add := func(s int64, v float64) { must(t, w.Add(Point{s, v})) }
	set := func(archive int, s int64, v float64) { must(t, w.SetPoint(archive, Point{s, v})) }
	set(2, 4200, 77)
	add(4210, 1) // late, after SetPoint
	for s := int64(5040); s < 5100; s += 10 {
		add(s, 1)
	}
	add(5110, 1) // late, before SetPoint
	set(1, 5100, 42)
	set(1, 5160, 43)
	set(1, 5220, 44)
	set(1, 5280, math.NaN())
	for s := int64(5880); s < 6000; s += 10 {
		add(s, 2)
	}
	must(t, w.Close())
	f := open(t, file)
	want := []string{
		"[{5890 2} {5900 2} {5910 2} {5920 2} {5930 2} {5940 2} {5950 2} {5960 2} {5970 2} {5980 2} {5990 2}]",
		"[{5040 6} {5100 42} {5160 43} {5220 44} {5880 12} {5940 12}]",
		"[{4200 77} {5100 129}]",
	}
	for i, want := range want {
		if got := fmt.Sprint(known(t, f, i, 6000)); got != want {
			t.Errorf("archive %d: %s\nwant %s", i, got, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

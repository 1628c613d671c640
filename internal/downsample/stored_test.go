package downsample

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/store"
)

// Beyond the most spans, the two that are nearest to each other become one.
func TestNearestSpansAreJoined(t *testing.T) {
	for _, tc := range []struct {
		s    Spans
		x    Span
		want Spans
	}{
		{Spans{{0, 1}, {2, 3}, {9, 10}}, Span{20, 21}, Spans{{0, 3}, {9, 10}, {20, 21}}},
		{Spans{{0, 1}, {7, 8}, {9, 10}}, Span{20, 21}, Spans{{0, 1}, {7, 10}, {20, 21}}},
		{Spans{{0, 1}, {7, 8}, {14, 15}}, Span{17, 18}, Spans{{0, 1}, {7, 8}, {14, 18}}},
		{Spans{{0, 6}, {8, 9}, {20, 21}}, Span{22, 23}, Spans{{0, 6}, {8, 9}, {20, 23}}}, // the gap counts, not the beginnings
		{Spans{{0, 5}, {8, 9}, {20, 21}}, Span{30, 31}, Spans{{0, 9}, {20, 21}, {30, 31}}},
		{Spans{{0, 1}, {4, 5}, {8, 9}}, Span{12, 13}, Spans{{0, 5}, {8, 9}, {12, 13}}}, // the first of several
		{Spans{{0, 1}, {100, 200}, {210, 220}}, Span{300, 301}, Spans{{0, 1}, {100, 220}, {300, 301}}},
	} {
		if got, changed := slices.Clone(tc.s).Add(tc.x, len(tc.s)); !changed || !slices.Equal(got, tc.want) {
			t.Errorf("%v and %v: %v, want %v", tc.s, tc.x, got, tc.want)
		}
	}
}

// keeping records the kept notes of each task, and how often they were kept.
type keeping struct {
	late  map[string]map[string]Spans
	times int
	err   error
}

func (k *keeping) keep(_ context.Context, id string, late map[string]Spans) error {
	k.times++
	if k.err != nil {
		return k.err
	}
	if k.late == nil {
		k.late = map[string]map[string]Spans{}
	}
	k.late[id] = late
	return nil
}

// A held span is stored, and recomputed until it is done. Nothing is held for a task or
// target that is gone.
func TestHold(t *testing.T) {
	var k keeping
	l := newList(t, k.keep)
	for _, gone := range [][2]string{{"other", "x"}, {"t", "other"}} {
		must(t, l.Hold(t.Context(), gone[0], gone[1], Span{0, 1}))
		must(t, l.Done(t.Context(), gone[0], map[string]Spans{gone[1]: {{0, 1}}}))
		if got := l.Take(gone[0], gone[1]); got != nil || k.times != 0 || l.Count("", "") != 0 {
			t.Errorf("%v: %v are taken, stored %d times", gone, got, k.times)
		}
	}
	must(t, l.Done(t.Context(), "t", map[string]Spans{"x": {{0, 1}}})) // nothing was taken
	if k.times != 0 {
		t.Errorf("nothing was stored %d times", k.times)
	}
	must(t, l.Hold(t.Context(), "t", "x", Span{0, 3 * hourMS}))
	if got := fmt.Sprint(k.late); got != "map[t:map[x:[{0 10800000}]]]" {
		t.Errorf("stored are %s", got)
	}
	must(t, l.Done(t.Context(), "t", map[string]Spans{"x": {{0, hourMS}}}))
	if got := l.Take("t", "x"); !slices.Equal(got, Spans{{hourMS, 3 * hourMS}}) {
		t.Errorf("%v are left", got)
	}
	must(t, l.Done(t.Context(), "t", map[string]Spans{"x": {{hourMS, 3 * hourMS}}}))
	if got := fmt.Sprint(k.late); got != "map[t:map[]]" || l.Count("", "") != 0 {
		t.Errorf("stored are %s, %d wait", got, l.Count("", ""))
	}
	k.err = errors.New("away")
	if err := l.Hold(t.Context(), "t", "x", Span{0, 1}); !errors.Is(err, k.err) {
		t.Errorf("an error is not told: %v", err)
	}
}

// Notes that could not be stored are stored by the next run, once. Stored notes are not
// stored again, and none of a task that was forgotten meanwhile.
func TestNotesAreStoredOnce(t *testing.T) {
	var k keeping
	l := newList(t, k.keep)
	none := func() {}
	compute := func(taken Spans) error {
		c := computed{most: 9, fails: -1}
		return l.ComputeLate(t.Context(), "t", "x", taken, math.MaxInt64, c.batches(9), none)
	}
	must(t, compute(nil))
	must(t, l.Settle(t.Context(), "other"))
	if k.times != 0 {
		t.Errorf("nothing was stored %d times", k.times)
	}
	late(t, l, 1)()
	taken := l.Take("t", "x")
	k.err = errors.New("away")
	if err := compute(taken); !errors.Is(err, k.err) {
		t.Errorf("a note that stays is not told: %v", err)
	}
	if err := compute(nil); !errors.Is(err, k.err) {
		t.Errorf("a note that stays is not told by the next run: %v", err)
	}
	k.err, k.times = nil, 0
	must(t, compute(nil))
	must(t, compute(nil))
	if k.times != 1 || !slices.Equal(k.late["t"]["x"], Spans{{0, hourMS}}) { // nothing was computed
		t.Errorf("stored %d times: %v", k.times, k.late)
	}
	if err := l.ComputeLate(t.Context(), "t", "x", Spans{{0, hourMS}}, -1, nil, none); err != nil {
		t.Errorf("nothing is before that time: %v", err)
	}
	l.mu.Lock()
	one := l.tasks["t"]
	one.version++
	l.mu.Unlock()
	l.Forget("t")
	k.times = 0
	must(t, l.persist(t.Context(), one, one.version, l.o.Keep))
	if k.times != 0 || l.Count("", "") != 0 {
		t.Error("notes of a task were stored that was forgotten")
	}
}

// What it costs to store the progress of a run does not grow with the square of the spans that it
// computes: they are stored as time passes, and at the end.
func TestProgressIsStoredNowAndThen(t *testing.T) {
	const spans = 50
	for each, want := range map[time.Duration]int{0: 2, progressEvery / 5: 2 + spans/5, progressEvery: 2 + spans} {
		var k keeping
		now := time.UnixMilli(1000 * hourMS)
		l := NewLateList(Options{Keep: k.keep, Horizon: time.Hour, Most: 100, Now: func() time.Time { return now }, What: "task"})
		watchSource(t, l)
		var all Spans
		for i := range int64(spans) {
			all = append(all, Span{2 * i * hourMS, (2*i + 1) * hourMS})
		}
		must(t, l.Include(t.Context(), "t", map[string]Spans{"x": all}))
		c := computed{most: 9, fails: -1}
		b := c.batches(9)
		once := b.Once
		b.Once = func(ctx context.Context, from, until int64) error {
			now = now.Add(each)
			return once(ctx, from, until)
		}
		taken := l.Take("t", "x")
		k.times = 0
		must(t, l.ComputeLate(t.Context(), "t", "x", taken, 1000*hourMS, b, func() {}))
		if len(c.spans) != spans || len(k.late["t"]) != 0 || k.times > want {
			t.Errorf("%s for each span: %d are computed, %v is stored, %d times; want %d", each, len(c.spans), k.late, k.times, want)
		}
	}
}

// Spans of several targets that are done are stored once.
func TestDoneStoresOnce(t *testing.T) {
	var k keeping
	l := unwatched(k.keep)
	watchMany(t, l, 1, 3, func(int, int) string { return "src" })
	two := Spans{{0, hourMS}, {2 * hourMS, 3 * hourMS}}
	must(t, l.Include(t.Context(), "0", map[string]Spans{"0": two, "1": two, "2": two}))
	for _, name := range []string{"0", "1", "2"} {
		l.Take("0", name)
	}
	k.times = 0
	must(t, l.Done(t.Context(), "0", map[string]Spans{"0": two, "1": two[:1]}))
	if got := fmt.Sprint(k.late["0"]); k.times != 1 || got != "map[1:[{7200000 10800000}] 2:[{0 3600000} {7200000 10800000}]]" {
		t.Errorf("stored %d times: %s", k.times, got)
	}
}

// Samples that live longer than most are noted for complete buckets although they
// arrive in time, if runs may not go back to these buckets: after a pause of a week,
// most of their samples may have expired.
func TestSamplesThatLiveLonger(t *testing.T) {
	const day, now = 24 * hourMS, 100 * hourMS
	for _, tc := range []struct {
		what            string
		usual, life, ms int64
		ttl             uint32
		noted           bool
	}{
		{what: "for ever", usual: 7 * day, ms: 99 * hourMS, noted: true},
		{what: "as long as most", usual: 7 * day, ttl: 5, life: 7 * day, ms: 99 * hourMS},
		{what: "a little longer", usual: 7 * day, ttl: 5, life: 7*day + 1, ms: 99 * hourMS, noted: true},
		{what: "as most, for ever", usual: 0, ms: 99 * hourMS},
		{what: "the bucket ends when it is stored at the latest", usual: day, ms: 101 * hourMS, noted: true},
		{what: "the bucket goes on", usual: day, ms: 102 * hourMS},
		{what: "begins when samples of a week ago expire", usual: 7*day + hourMS, ms: 99 * hourMS, noted: true},
		{what: "begins later", usual: 7*day + hourMS + 1, ms: 99 * hourMS},
	} {
		l := NewLateList(Options{
			Keep: keepNothing, Horizon: 4 * time.Hour, Most: 9, Now: func() time.Time { return time.UnixMilli(now) }, What: "task",
			DefaultMS: tc.usual, Lifetime: func(*store.Sample, int64) int64 { return tc.life },
		})
		watchSource(t, l)
		l.Resolved(1, 3, "src")
		b := store.Batch{Epoch: 1}
		b.AddLong(3, tc.ms, 1, tc.ttl)
		done, err := l.Appending(t.Context(), &b)
		if err != nil {
			t.Fatal(err)
		}
		done()
		if got := l.Count("t", "x") == 1; got != tc.noted {
			t.Errorf("%s: noted %t, want %t", tc.what, got, tc.noted)
		}
	}
}

// A sample counts as late once it is older than half the horizon.
func TestAgeOfLateSamples(t *testing.T) {
	const now = 100 * hourMS
	for ms, want := range map[int64]int{98 * hourMS: 0, 98*hourMS - 1: 1} {
		l := NewLateList(Options{Keep: keepNothing, Horizon: 4 * time.Hour, Most: 9, Now: func() time.Time { return time.UnixMilli(now) }, What: "task"})
		watchSource(t, l)
		late(t, l, ms)()
		if got := l.Count("t", "x"); got != want {
			t.Errorf("%d ms before now: %d are noted, want %d", now-ms, got, want)
		}
	}
}

// Notes of a task in the store move into its file, even if the file already has the
// same task. The file of an unchanged task is not rewritten.
func TestNotesOfTheStoreGoIntoTheNotebook(t *testing.T) {
	mem := vfs.NewMem()
	task := Task{ID: "t", JSON: `{"a":1}`, Targets: map[string]Target{"x": {Metric: "src", Grid: hours{}}}}
	parse := func(text []byte, id string) (Task, error) {
		one := task
		one.JSON = string(text)
		return one, nil
	}
	var k keeping
	open := func() *LateList {
		l := journaled(k.keep)
		must(t, l.OpenBook(mem, "notes", parse))
		return l
	}
	watch := func(l *LateList, stored map[string]Spans) {
		t.Helper()
		if _, err := l.Watch(t.Context(), task, stored); err != nil {
			t.Fatal(err)
		}
	}
	file := func() string {
		t.Helper()
		b := &notebook{fs: mem, dir: "notes"}
		f, err := mem.Open(b.path("t"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	watch(open(), nil)
	if got, want := file(), `{"id":"t","task":{"a":1},"late":{},"crc32c":"39e45adc"}`; got != want || k.times != 0 {
		t.Errorf("the file has %s, want %s; stored %d times", got, want, k.times)
	}
	l := open()
	if !l.HasBook() || !l.HasJournal() || newList(t, keepNothing).HasJournal() || newList(t, keepNothing).HasBook() {
		t.Error("a list does not know what it has")
	}
	watch(l, map[string]Spans{"x": {{0, hourMS}}})
	if got, want := file(), `{"id":"t","task":{"a":1},"late":{"x":[[0,3600000]]},"crc32c":"60119207"}`; got != want {
		t.Errorf("the file has %s, want %s", got, want)
	}
	if late, ok := k.late["t"]; !ok || late != nil || k.times != 1 {
		t.Errorf("the store has %v, written %d times", k.late, k.times)
	}
	b := &notebook{fs: mem, dir: "notes"}
	must(t, mem.Remove(b.path("t")))
	watch(l, nil)
	if _, err := mem.Stat(b.path("t")); err == nil {
		t.Error("the file of a task that is the same was written again")
	}
	task.JSON = `{"a":2}`
	watch(l, nil)
	if got, want := file(), `{"id":"t","task":{"a":2},"late":{"x":[[0,3600000]]},"crc32c":"5edc511c"}`; got != want {
		t.Errorf("the file has %s, want %s", got, want)
	}
}

// LogNotes of a log that is only read have no hours. Hours that cannot be forgotten
// stay.
func TestLogNotesThatStay(t *testing.T) {
	var reading LogNotes
	replayed(&reading, 5, "a", 7)
	reading.EndReplay()
	if !reading.Unnoted().Empty() {
		t.Errorf("a log that is only read has %s", reading.Unnoted().Text())
	}
	n := (&keptText{}).notes()
	away := errors.New("away")
	n.Forget = func(context.Context) error { return away }
	replayed(n, 5, "a", 7)
	n.EndReplay()
	if n.last != nil {
		t.Error("a replay that has ended keeps memory")
	}
	if err := n.Settle(t.Context()); !errors.Is(err, away) || !strings.Contains(err.Error(), "remove the record of hours") {
		t.Error(err)
	}
	wantUnnoted(t, n, `{"a":[[0,3600000]]}`)
	replayed(n, 5, "a", 7+hourMS, -1) // the next replay starts over
	wantUnnoted(t, n, `{"a":[[-3600000,7200000]]}`)
	broken := errors.New("broken")
	n.BeforeTrim(func(context.Context) error { return broken })
	if err := n.Trim(t.Context()); !errors.Is(err, broken) {
		t.Errorf("notes that were not stored do not keep the log: %v", err)
	}
}

// After an error of the journal or the notebook, the hours of early samples stay until
// the next attempt.
func TestAllReadAfterAFault(t *testing.T) {
	mem := vfs.NewMem()
	kept := &keptText{}
	n := kept.notes()
	fault := errors.New("away")
	forgotten := 0
	n.Forget = func(context.Context) error { forgotten++; return fault }
	l := NewLateList(Options{Keep: keepNothing, Journal: logged{n}, Horizon: time.Hour, Most: 100, Now: time.Now, What: "task"})
	must(t, l.OpenBook(mem, "notes", nil))
	late(t, l, 1)()
	watchSource(t, l)
	if err := l.AllRead(t.Context()); !errors.Is(err, fault) {
		t.Errorf("the fault is not told: %v", err)
	}
	fault = nil
	must(t, l.AllRead(t.Context()))
	must(t, l.AllRead(t.Context()))
	if forgotten != 2 {
		t.Errorf("hours were forgotten in %d attempts, want 2", forgotten)
	}
	if got := l.Take("t", "x"); !slices.Equal(got, Spans{{0, hourMS}}) {
		t.Errorf("%v are noted", got)
	}
}

// A batch is early even if some of its samples are not late. A series that no task
// reads is forgotten once all tasks are known.
func TestSeriesOfUnknownTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := journaled(keepNothing)
		for ref, metric := range map[store.Ref]string{3: "src", 4: "other"} {
			l.Resolved(1, ref, metric)
		}
		b := store.Batch{Epoch: 1}
		b.AddLong(4, time.Now().UnixMilli(), 1, 0)
		b.AddLong(3, 1, 1, 0)
		b.AddLong(4, 2*hourMS, 1, 0)
		done, err := l.Appending(t.Context(), &b)
		if err != nil {
			t.Fatal(err)
		}
		done()
		if got := string(l.o.Journal.Unnoted().Text()); got != `{"other":[[7200000,10800000]],"src":[[0,3600000]]}` {
			t.Errorf("hours %s", got)
		}
		watchSource(t, l)
		if l.Series() != 2 {
			t.Errorf("%d series are known", l.Series())
		}
		must(t, l.AllRead(t.Context()))
		if got := l.Take("t", "x"); l.Series() != 1 || !slices.Equal(got, Spans{{0, hourMS}}) {
			t.Errorf("%d series are known, %v is noted", l.Series(), got)
		}
	})
}

// Beyond the most metrics, hours are added to any metric.
func TestHoursOfManyMetrics(t *testing.T) {
	var h Hours
	for i := range hoursMetrics + 1 {
		h.Add(fmt.Sprint(i), int64(i)*2*hourMS)
	}
	if got := h.of("0"); !slices.Equal(got, Spans{{0, hourMS}, {hoursMetrics * 2 * hourMS, (hoursMetrics*2 + 1) * hourMS}}) {
		t.Errorf("%v", got)
	}
	if got := h.of(fmt.Sprint(hoursMetrics)); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if got := h.of("unheard of"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	for ms, want := range map[int64]Span{-hourMS: {-hourMS, 0}, -1: {-hourMS, 0}, 0: {0, hourMS}, hourMS - 1: {0, hourMS}, hourMS: {hourMS, 2 * hourMS}} {
		if got := hourOf(ms); got != want {
			t.Errorf("the hour of %d is %v, want %v", ms, got, want)
		}
	}
	if got := hourOf(math.MaxInt64); got.FromMS >= got.UntilMS {
		t.Errorf("the last hour is %v", got)
	}
}

// A failed batch, or a watermark that is not stored, ends a run with its error. Later
// batches are not computed, and the watermark stays before them.
func TestAdvanceFails(t *testing.T) {
	away := errors.New("away")
	now := 9*hourMS + 5
	c := computed{most: 9, fails: -1}
	if err := c.batches(2).Advance(t.Context(), 0, now, func(Watermark) error { return away }); !errors.Is(err, away) || len(c.spans) != 1 {
		t.Errorf("%v, computed %v", err, c.spans)
	}
	c = computed{most: 9, fails: 5 * hourMS}
	var marks []Watermark
	err := c.batches(2).Advance(t.Context(), 0, now, func(w Watermark) error { marks = append(marks, w); return nil })
	if !errors.Is(err, errBroken) || !slices.Equal(marks, []Watermark{until(2*hourMS, now), until(4*hourMS, now)}) {
		t.Errorf("%v, watermarks %v", err, marks)
	}
}

// An unfinished file that a crash left behind is removed when notes are read. If it
// cannot be removed, that is an error.
func TestUnfinishedNotes(t *testing.T) {
	mem := vfs.NewMem()
	b, err := openNotebook(mem, "notes", "task")
	must(t, err)
	must(t, b.write(page{ID: "t"}))
	write(t, mem, "notes/x.tmp", "{")
	stuck := errors.New("stuck")
	b.fs = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove {
			return stuck
		}
		return nil
	}))
	if pages, err := b.pages(); !errors.Is(err, stuck) {
		t.Errorf("%v, %v", pages, err)
	}
	b.fs = mem
	if pages, err := b.pages(); err != nil || len(pages) != 1 {
		t.Errorf("%v, %v", pages, err)
	}
	if names, err := mem.List("notes"); err != nil || len(names) != 1 {
		t.Errorf("the directory has %v, %v", names, err)
	}
}

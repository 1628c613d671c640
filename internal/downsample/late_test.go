package downsample

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/safefile"
	"varve/internal/store"
)

// hours is a grid of hours that are computed in days.
type hours struct{}

func (hours) Start(ms int64) int64 { return ms - (ms%hourMS+hourMS)%hourMS }

func (g hours) Next(ms int64) int64 { return g.Start(ms) + hourMS }

func (hours) Run(start int64) (int64, bool) {
	const dayMS = 24 * hourMS
	return start - (start%dayMS+dayMS)%dayMS + dayMS, true
}

// newList watches the metric "src" for one target of a task.
func newList(t *testing.T, keep Keep) *LateList {
	t.Helper()
	l := unwatched(keep)
	watchSource(t, l)
	return l
}

func unwatched(keep Keep) *LateList {
	return NewLateList(Options{Keep: keep, Horizon: time.Hour, Most: 100, Now: time.Now, What: "task"})
}

func watchSource(t *testing.T, l *LateList) {
	t.Helper()
	if _, err := l.Watch(t.Context(), Task{ID: "t", JSON: "{}", Targets: map[string]Target{"x": {Metric: "src", Grid: hours{}}}}, nil); err != nil {
		t.Fatal(err)
	}
}

func keepNothing(context.Context, string, map[string]Spans) error { return nil }

// References of another epoch may be those of other series: nothing is noted for them.
func TestNotesOfAnotherEpoch(t *testing.T) {
	l := newList(t, keepNothing)
	l.Resolved(7, 3, "src")
	for _, tc := range []struct {
		epoch uint64
		ref   store.Ref
		want  int
	}{{7, 3, 1}, {7, 4, 0}, {8, 3, 0}, {6, 3, 0}} {
		b := store.Batch{Epoch: tc.epoch}
		b.AddLong(tc.ref, 1, 1, 0)
		if got, _ := l.notes(&b, 0, time.Now().UnixMilli()); len(got) != tc.want {
			t.Errorf("%+v: %d notes", tc, len(got))
		}
	}
	if got, _ := l.notes(&store.Batch{Epoch: 9}, 0, 1); got != nil {
		t.Error(got)
	}
	for _, tc := range []struct {
		epoch  uint64
		ref    store.Ref
		metric string
		want   string // references
	}{
		{7, 4, "src", "[3 4]"},
		{6, 5, "src", "[3 4]"}, // it has been another since
		{7, 6, "another", "[3 4]"},
		{8, 5, "another", "[3 4]"},
		{8, 5, "src", "[5]"},
		{7, 3, "src", "[5]"},
	} {
		l.Resolved(tc.epoch, tc.ref, tc.metric)
		if got := fmt.Sprint(slices.Sorted(maps.Keys(l.refs))); got != tc.want || l.Series() != len(l.refs) {
			t.Errorf("%+v: %d references: %s", tc, l.Series(), got)
		}
	}
}

// A run that takes notes waits for their samples.
func TestTakeWaitsForSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, keepNothing)
		done := late(t, l, 1)
		var taken Spans
		go func() { taken = l.Take("t", "x") }()
		synctest.Wait()
		if taken != nil {
			t.Errorf("%v were taken before the samples were stored", taken)
		}
		done()
		synctest.Wait()
		if len(taken) != 1 || taken[0] != (Span{0, hourMS}) {
			t.Errorf("%v were taken", taken)
		}
	})
}

// While a batch is appended, its task changes twice, before or after the batch is
// noted. A run of the new target takes the notes of the batch, and waits for its
// samples.
func TestTaskChangesWhileSamplesComeIn(t *testing.T) {
	for name, before := range map[string]bool{"before the notes": true, "after the notes": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newList(t, keepNothing)
				l.Resolved(1, 1, "src")
				b := store.Batch{Epoch: 1}
				b.AddLong(1, hourMS+1, 1, 0)
				notes, _ := l.notes(&b, 0, time.Now().UnixMilli())
				change := func() {
					for _, name := range []string{"y", "z"} {
						task := Task{ID: "t", JSON: name, Targets: map[string]Target{name: {Metric: "src", Grid: hours{}}, "other": {Metric: "other", Grid: hours{}}}}
						if _, err := l.Watch(t.Context(), task, nil); err != nil {
							t.Fatal(err)
						}
					}
				}
				if before {
					change()
				}
				done, err := l.keepNotes(t.Context(), notes)
				if err != nil {
					t.Fatal(err)
				}
				if !before {
					change()
				}
				var taken Spans
				go func() { taken = l.Take("t", "z") }()
				synctest.Wait()
				if taken != nil {
					t.Errorf("%v were taken before the samples were stored", taken)
				}
				done()
				synctest.Wait()
				if len(taken) != 1 || taken[0] != (Span{hourMS, 2 * hourMS}) {
					t.Errorf("%v were taken", taken)
				}
				if others := l.Take("t", "other"); others != nil {
					t.Errorf("%v were taken of another metric", others)
				}
			})
		})
	}
}

// A late sample whose note cannot be kept is refused, and no run waits for it.
func TestNotesThatCannotBeKept(t *testing.T) {
	failing := false
	l := newList(t, func(context.Context, string, map[string]Spans) error {
		if failing {
			return errBroken
		}
		return nil
	})
	l.Resolved(1, 3, "src")
	b := store.Batch{Epoch: 1}
	b.AddLong(3, 1, 1, 0)
	failing = true
	if done, err := l.Appending(t.Context(), &b); !errors.Is(err, errBroken) || done != nil {
		t.Fatalf("it is taken: %v", err)
	}
	l.Take("t", "x")
}

// Hours that cannot be removed once they are divided among the tasks are an error, and a later start divides them again.
// So are hours that cannot be noted for the tasks: they are not removed before.
func TestUnreadHoursThatStay(t *testing.T) {
	for what, fails := range map[string]errorfs.OpKind{"a removal": errorfs.OpRemove, "a write": errorfs.OpCreate} {
		fs := vfs.NewMem()
		must(t, fs.MkdirAll("notes", 0o750))
		must(t, safefile.Replace(fs, "notes/unread", []byte(`{"src":[[0,3600000]]}`)))
		broken := false
		l := journaled(func(context.Context, string, map[string]Spans) error {
			if broken {
				return errorfs.ErrInjected
			}
			return nil
		})
		must(t, l.OpenBook(errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken && op.Kind == fails {
				return errorfs.ErrInjected
			}
			return nil
		})), "notes", func([]byte, string) (Task, error) { return Task{}, nil }))
		watchSource(t, l)
		broken = true
		if err := l.AllRead(t.Context()); !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("while %s fails: %v", what, err)
		}
		if _, err := fs.Stat("notes/unread"); err != nil {
			t.Errorf("while %s fails: %v", what, err)
		}
		broken = false
		must(t, l.AllRead(t.Context()))
		if _, err := fs.Stat("notes/unread"); err == nil {
			t.Errorf("after %s has failed, hours are left", what)
		}
	}
}

// late notes a sample of an instant.
func late(t *testing.T, l *LateList, ms int64) (done func()) {
	t.Helper()
	l.Resolved(1, 3, "src")
	b := store.Batch{Epoch: 1}
	b.AddLong(3, ms, 1, 0)
	done, err := l.Appending(t.Context(), &b)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// The files of a notebook have the format of all earlier versions.
func TestFilesOfANotebook(t *testing.T) {
	fs := vfs.NewMem()
	parse := func(text []byte, id string) (Task, error) {
		return Task{ID: id, JSON: string(text), Targets: map[string]Target{"x": {Metric: "src", Grid: hours{}}}}, nil
	}
	open := func() *LateList {
		l := journaled(keepNothing)
		if err := l.OpenBook(fs, "notes", parse); err != nil {
			t.Fatal(err)
		}
		return l
	}
	must(t, fs.MkdirAll("notes", 0o750))
	must(t, safefile.Replace(fs, "notes/unread", []byte(`{"src":[[18000000,21600000]]}`))) // of a version that kept it here
	l := open()
	late(t, l, 9*hourMS)() // before any task is known
	task, err := parse([]byte(`{"a":1}`), "t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Watch(t.Context(), task, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.AllRead(t.Context()); err != nil {
		t.Fatal(err)
	}
	late(t, l, 1)()
	must(t, l.Persist(t.Context(), keepNothing))
	want := map[string]string{"e3b98a4da31a127d4bde6e43033f66ba.json": `{"id":"t","task":{"a":1},"late":{"x":[[0,3600000],[18000000,21600000],[32400000,36000000]]},"crc32c":"c876abc7"}`}
	wantFiles(t, fs, want)
	if got := open().Take("t", "x"); !slices.Equal(got, Spans{{0, hourMS}, {5 * hourMS, 6 * hourMS}, {9 * hourMS, 10 * hourMS}}) {
		t.Errorf("after a restart %v are noted", got)
	}
}

// A logged is a Journal that releases nothing.
type logged struct{ *LogNotes }

func newLogged() logged { return logged{(&keptText{}).notes()} }

func (logged) BeforeTrim(func(context.Context, store.KeyValues) error) {}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Samples that arrive before the tasks are known are stored before a run takes their
// notes.
func TestAllReadWaitsForEarlySamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := journaled(keepNothing)
		done := late(t, l, 1)
		if _, err := l.Watch(t.Context(), Task{ID: "t", Targets: map[string]Target{"x": {Metric: "src", Grid: hours{}}}}, nil); err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() { read <- l.AllRead(t.Context()) }()
		synctest.Wait()
		if n := l.Count("t", "x"); n != 0 {
			t.Errorf("%d spans are noted before the samples are stored", n)
		}
		late(t, l, 5*hourMS)() // it finds its target
		done()
		must(t, <-read)
		if got := l.Take("t", "x"); !slices.Equal(got, Spans{{0, hourMS}, {5 * hourMS, 6 * hourMS}}) {
			t.Errorf("%v are noted", got)
		}
	})
}

func wantFiles(t *testing.T, fs vfs.FS, want map[string]string) {
	t.Helper()
	names, err := fs.List("notes")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range names {
		f, err := fs.Open("notes/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		got[name] = string(text)
	}
	if !maps.Equal(got, want) {
		t.Errorf("files\n%v, want\n%v", got, want)
	}
}

// A sample that arrives after others of its bucket have expired is not noted, whether
// the task is known or not.
func TestOutlivedSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UnixMilli() // midnight
		life := int64(0)
		o := Options{Keep: keepNothing, Journal: newLogged(), Horizon: time.Hour, Most: 100, Now: time.Now, What: "task"}
		o.Lifetime = func(s *store.Sample, nowMS int64) int64 {
			if s.TTL != 7 || nowMS != now {
				t.Errorf("asked for %+v at %d", s, nowMS)
			}
			return life
		}
		l := NewLateList(o)
		lateFor := func(ttl uint32, ms int64) {
			l.Resolved(1, 3, "src")
			b := store.Batch{Epoch: 1}
			b.AddLong(3, ms, 1, ttl)
			done, err := l.Appending(t.Context(), &b)
			if err != nil {
				t.Fatal(err)
			}
			done()
		}
		check := func(want Spans) {
			t.Helper()
			for _, tc := range []struct {
				life, ms int64
			}{{5 * hourMS, now - 5*hourMS}, {5*hourMS + 1, now - 8*hourMS}, {5*hourMS + 1, now - 5*hourMS}, {1, now - hourMS}} {
				life = tc.life
				lateFor(7, tc.ms)
			}
			lateFor(0, now-20*hourMS)
			if got := l.Take("t", "x"); !slices.Equal(got, want) {
				t.Errorf("noted %v, want %v", got, want)
			}
		}
		check(nil)
		if _, err := l.Watch(t.Context(), Task{ID: "t", JSON: "{}", Targets: map[string]Target{"x": {Metric: "src", Grid: hours{}}}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := l.AllRead(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := Spans{{now - 20*hourMS, now - 19*hourMS}, {now - 5*hourMS, now - 4*hourMS}}
		check(want)
		if got := l.Outlived(); got != 3 {
			t.Errorf("%d samples were not noted", got)
		}
	})
}

// A batch has one note per target, as long as each bucket touches the previous ones.
func TestNotesOfABatchAreFew(t *testing.T) {
	x, y := &target{grid: hours{}}, &target{grid: hours{}}
	for _, tc := range []struct {
		times []int64
		want  string
	}{
		{[]int64{0, 1, hourMS - 1}, "[{0 3600000}]"},
		{[]int64{0, hourMS, 2 * hourMS}, "[{0 10800000}]"},
		{[]int64{2 * hourMS, hourMS, 0}, "[{0 10800000}]"},
		{[]int64{hourMS, 0, hourMS - 1, 2*hourMS - 1}, "[{0 7200000}]"},
		{[]int64{0, 2 * hourMS, 3*hourMS - 1}, "[{0 3600000} {7200000 10800000}]"},
		{[]int64{-1, 0}, "[{-3600000 3600000}]"},
	} {
		var notes batchNotes
		for _, ms := range tc.times {
			for _, to := range []*target{x, y} {
				if !notes.add(to, ms, math.MinInt64, 1000) {
					t.Errorf("%v: %d counts as outlived", tc.times, ms)
				}
			}
		}
		spans := map[*target][]Span{}
		for _, n := range notes.all {
			spans[n.target] = append(spans[n.target], n.span)
		}
		if fmt.Sprint(spans[x]) != tc.want || fmt.Sprint(spans[y]) != tc.want {
			t.Errorf("%v: %v and %v, want %s", tc.times, spans[x], spans[y], tc.want)
		}
	}
}

// Where a store moves samples to earlier times, a sample may get into the bucket before its own. If samples at
// the beginning of that bucket have expired, its result stays as it is.
func TestBucketBeforeThatHasOutlivedSamples(t *testing.T) {
	for _, tc := range []struct {
		moved        bool
		oldest, left int64
	}{
		{true, 4 * hourMS, 4 * hourMS},
		{true, 4*hourMS - 1, 0},
		{true, 5*hourMS - 1, 4 * hourMS},
		{false, 5*hourMS - 1, 0},
	} {
		x := &target{grid: hours{}}
		notes := batchNotes{moved: tc.moved}
		if !notes.add(x, 5*hourMS+1, tc.oldest, 1000) {
			t.Errorf("%+v: the sample counts as outlived", tc)
		}
		if left := x.leftMS.Load(); left != tc.left {
			t.Errorf("%+v: results from %d on are left alone", tc, left)
		}
	}
}

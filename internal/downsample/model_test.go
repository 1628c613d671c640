package downsample

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"varve/internal/store"
)

var errKeep = errors.New("cannot be kept")

// hourSet is a set of hours since 1970.
type hourSet map[int64]bool

func (h hourSet) addAll(spans Spans) {
	for _, s := range spans {
		for ms := s.FromMS; ms < s.UntilMS; ms += hourMS {
			h[ms/hourMS] = true
		}
	}
}

func hoursOf(spans Spans) hourSet {
	h := hourSet{}
	h.addAll(spans)
	return h
}

// within reports whether all of h are in other.
func (h hourSet) within(other hourSet) bool {
	for hour := range h {
		if !other[hour] {
			return false
		}
	}
	return true
}

// A modelTarget is the expected state of a target: must are the hours that a run still
// has to compute; may includes those of refused samples.
type modelTarget struct {
	must, may hourSet
	stale     hourSet // stored of what was computed, or of an earlier target of this name: a restart may find it
}

// targetMetrics are the metrics of the targets of all tasks.
var targetMetrics = map[string]string{"x": "m", "y": "n", "z": "m"}

// lateModel compares a LateList with sets of hours.
type lateModel struct {
	list    *LateList
	tasks   map[string]map[string]*modelTarget
	kept    map[string]map[string]Spans // by Keep
	failing bool                        // what notes are stored in

	fs      vfs.FS // of a notebook; nil: none
	journal *modelJournal
}

// modelJournal is the log of a store, and its known hours.
type modelJournal struct {
	model   *lateModel
	log     Hours // of samples in the log
	unnoted Hours
	stored  Hours // of unnoted
	seen    Hours // what Unnoted has returned
}

func (j *modelJournal) BeforeTrim(func(context.Context, store.KeyValues) error) {}

func (j *modelJournal) Unnoted() *Hours {
	j.seen = Hours{}
	j.seen.Merge(&j.unnoted)
	return &j.seen
}

func (j *modelJournal) AddUnnoted(h *Hours) { j.unnoted.Merge(h) }

func (j *modelJournal) Settle(context.Context) error {
	if j.model.failing {
		return errKeep
	}
	j.unnoted, j.stored = Hours{}, Hours{}
	return nil
}

func (j *modelJournal) trim() {
	j.stored = Hours{}
	j.stored.Merge(&j.unnoted)
	j.log = Hours{}
}

func (j *modelJournal) restart() {
	j.unnoted = Hours{}
	j.unnoted.Merge(&j.stored)
	j.unnoted.Merge(&j.log)
}

// modelNow is the constant time of the model. Samples more than ten hours older are
// late.
const modelNow = 100 * hourMS

func (m *lateModel) keep(_ context.Context, id string, late map[string]Spans) error {
	if m.failing {
		return errKeep
	}
	m.kept[id] = late
	return nil
}

func modelTask(id string, names []string) Task {
	t := Task{ID: id, JSON: `"` + strings.Join(names, " ") + `"`, Targets: map[string]Target{}}
	for _, name := range names {
		t.Targets[name] = Target{Metric: targetMetrics[name], Grid: hours{}}
	}
	return t
}

func parseModelTask(text []byte, id string) (Task, error) {
	return modelTask(id, strings.Fields(strings.Trim(string(text), `"`))), nil
}

func (m *lateModel) open(t *rapid.T) {
	o := Options{
		Keep: m.keep, Horizon: 20 * time.Hour, Most: 1000, What: "task",
		Now: func() time.Time { return time.UnixMilli(modelNow) },
	}
	if m.journal != nil {
		o.Journal = m.journal
	}
	m.list = NewLateList(o)
	if m.fs == nil {
		return
	}
	broken := errorfs.Wrap(m.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if m.failing && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errKeep
		}
		return nil
	}))
	if err := m.list.OpenBook(broken, "notes", parseModelTask); err != nil {
		t.Fatal(err)
	}
}

// watched are the metrics of all tasks.
func (m *lateModel) watched() map[string]bool {
	metrics := map[string]bool{}
	for _, targets := range m.tasks {
		for name := range targets {
			metrics[targetMetrics[name]] = true
		}
	}
	return metrics
}

func (m *lateModel) resolveAll() {
	for ref, metric := range []string{"m", "n", "m", "other"} {
		m.list.Resolved(1, store.Ref(ref), metric)
	}
}

func (m *lateModel) check(t *rapid.T, err error) {
	if (err != nil) && (!m.failing || !errors.Is(err, errKeep)) {
		t.Fatalf("%v while storing notes fails: %t", err, m.failing)
	}
}

// watch watches a task with some targets.
func (m *lateModel) watch(t *rapid.T, id string, names []string, wantFresh bool) {
	var stored map[string]Spans
	if !m.list.Watches(id) {
		stored = m.kept[id]
	}
	fresh, err := m.list.Watch(t.Context(), modelTask(id, names), stored)
	m.check(t, err)
	if fresh != wantFresh {
		t.Fatalf("watch %s %q: fresh %t", id, names, fresh)
	}
	if fresh {
		m.resolveAll()
	}
}

func (m *lateModel) Watch(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "task")
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 3, rapid.ID[string]).Draw(t, "targets")
	before, fresh := m.watched(), false
	targets := map[string]*modelTarget{}
	for _, name := range names {
		fresh = fresh || !before[targetMetrics[name]]
		targets[name] = &modelTarget{hourSet{}, hourSet{}, hoursOf(m.stored(t, id)[name])}
		if old := m.tasks[id][name]; old != nil {
			targets[name] = old
			continue
		}
		for former, old := range m.tasks[id] {
			if !slices.Contains(names, former) && targetMetrics[former] == targetMetrics[name] {
				targets[name].must = maps.Clone(old.must)
				targets[name].may = maps.Clone(old.may)
			}
		}
	}
	for name, x := range targets {
		// A former target is back, and storing has always failed: a restart does not
		// know that others have inherited its notes.
		if m.tasks[id][name] == nil && len(x.stale) > 0 {
			for _, heir := range targets {
				heir.must = hourSet{}
			}
		}
	}
	m.tasks[id] = targets
	m.watch(t, id, names, fresh)
}

func (m *lateModel) Forget(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "task")
	if m.fs != nil && m.failing {
		return // its file is removed later, or is that of a task that is forgotten after a start
	}
	m.list.Forget(id)
	delete(m.tasks, id)
	delete(m.kept, id)
}

// append appends samples of some series.
func (m *lateModel) append(t *rapid.T) {
	b := store.Batch{Epoch: 1}
	touched := map[string]hourSet{"m": {}, "n": {}, "other": {}}
	for range rapid.IntRange(1, 6).Draw(t, "samples") {
		ref := rapid.IntRange(0, 3).Draw(t, "ref")
		ms := rapid.Int64Range(-20, 120).Draw(t, "hour")*hourMS + rapid.SampledFrom([]int64{-1, 0, 1, hourMS / 2}).Draw(t, "in it")
		b.AddLong(store.Ref(ref), ms, 1, 0)
		if metric := []string{"m", "n", "m", "other"}[ref]; ms < modelNow-10*hourMS {
			touched[metric][int64(math.Floor(float64(ms)/float64(hourMS)))] = true
		}
	}
	done, err := m.list.Appending(t.Context(), &b)
	m.check(t, err)
	if err == nil {
		done()
	}
	for _, targets := range m.tasks {
		for name, x := range targets {
			maps.Copy(x.may, touched[targetMetrics[name]])
			if err == nil {
				maps.Copy(x.must, touched[targetMetrics[name]])
			}
		}
	}
	if err == nil && m.journal != nil {
		for metric, h := range touched {
			for hour := range h {
				m.journal.log.Add(metric, hour*hourMS)
			}
		}
	}
}

func (m *lateModel) Append(t *rapid.T) { m.append(t) }

// spans draws spans of whole hours.
func drawSpans(t *rapid.T) (all Spans) {
	for range rapid.IntRange(1, 3).Draw(t, "spans") {
		from := rapid.Int64Range(-20, 90).Draw(t, "from")
		all, _ = all.Add(Span{from * hourMS, (from + rapid.Int64Range(1, 30).Draw(t, "length")) * hourMS}, 1000)
	}
	return all
}

func (m *lateModel) Include(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "task")
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "target")
	spans := drawSpans(t)
	err := m.list.Include(t.Context(), id, map[string]Spans{name: spans})
	m.check(t, err)
	of := m.tasks[id] // all, if the task does not have the target
	if x := of[name]; x != nil {
		of = map[string]*modelTarget{name: x}
	}
	for _, x := range of {
		x.may.addAll(spans)
		if err == nil {
			x.must.addAll(spans)
		}
	}
	if err == nil && len(of) > 0 {
		m.wantStored(t, id)
	}
}

func (m *lateModel) Take(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "none"}).Draw(t, "task")
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "target")
	taken := hoursOf(m.list.Take(id, name))
	x := m.tasks[id][name]
	if x == nil {
		x = &modelTarget{}
	}
	if !x.must.within(taken) || !taken.within(x.may) {
		t.Fatalf("%s %s: %v is taken, want %v", id, name, taken, x.must)
	}
}

// Done computes a part of the taken spans.
func (m *lateModel) Done(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "none"}).Draw(t, "task")
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "target")
	from := rapid.Int64Range(-20, 90).Draw(t, "from")
	until := from + rapid.Int64Range(0, 50).Draw(t, "hours")
	err := m.list.Done(t.Context(), id, map[string]Spans{name: {{from * hourMS, until * hourMS}}})
	m.check(t, err)
	x := m.tasks[id][name]
	if x == nil {
		return
	}
	again := m.again(id, name)
	for hour := from; hour < until; hour++ {
		if !again[hour] {
			if err != nil && x.may[hour] {
				x.stale[hour] = true
			}
			delete(x.must, hour)
			delete(x.may, hour)
		}
	}
}

// again are the hours that were noted after the last Take: they are not part of what is
// computed.
func (m *lateModel) again(id, name string) hourSet {
	m.list.mu.RLock()
	defer m.list.mu.RUnlock()
	return hoursOf(m.list.tasks[id].targets[name].notes.spans)
}

func (m *lateModel) Fail(*rapid.T) { m.failing = true }

func (m *lateModel) Cure(*rapid.T) { m.failing = false }

func (m *lateModel) Settle(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "none"}).Draw(t, "task")
	err := m.list.Settle(t.Context(), id)
	m.check(t, err)
	if err == nil {
		m.wantStored(t, id)
	}
}

// Trim releases the log of a store, as far as notes allow.
func (m *lateModel) Trim(t *rapid.T) {
	err := m.list.Persist(t.Context(), m.keep)
	m.check(t, err)
	if err == nil && m.journal != nil {
		m.journal.trim()
	}
}

// wantStored fails unless the stored notes of a task are those of the list.
func (m *lateModel) wantStored(t *rapid.T, id string) {
	late := m.stored(t, id)
	for name, x := range m.tasks[id] {
		most := maps.Clone(x.may)
		maps.Copy(most, x.stale)
		if got := hoursOf(late[name]); !x.must.within(got) || !got.within(most) {
			t.Fatalf("%s %s: %v is stored, want %v", id, name, got, x.must)
		}
	}
}

// stored are the stored notes of a task.
func (m *lateModel) stored(t *rapid.T, id string) map[string]Spans {
	if m.fs == nil {
		return m.kept[id]
	}
	b, err := openNotebook(m.fs, "notes", "task")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := b.pages()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if p.ID == id {
			return p.Late
		}
	}
	return nil
}

// Restart continues with the stored state. If there is a log, samples arrive before it is
// known which tasks exist.
func (m *lateModel) Restart(t *rapid.T) {
	m.failing = false
	for _, targets := range m.tasks {
		for _, x := range targets {
			maps.Copy(x.may, x.stale)
		}
	}
	for id, targets := range m.tasks {
		for former, spans := range m.stored(t, id) { // of a target that the task did not have any more when storing failed
			for _, x := range targets {
				if targets[former] == nil {
					x.may.addAll(spans)
				}
			}
		}
	}
	if m.journal != nil {
		m.journal.restart()
	}
	m.open(t)
	known := map[string]bool{}
	if m.journal != nil {
		known["m"], known["n"] = true, true // as is any metric, until it is known which tasks exist
		m.resolveAll()
		m.append(t)
	}
	if m.fs != nil {
		if gone := rapid.SampledFrom([]string{"a", "b", "none"}).Draw(t, "deleted meanwhile"); m.tasks[gone] != nil {
			delete(m.tasks, gone)
			defer func() {
				if late := m.stored(t, gone); late != nil {
					t.Fatalf("%v is stored of %s, which was deleted", late, gone)
				}
			}()
		}
	}
	ids := slices.Sorted(maps.Keys(m.tasks))
	if rapid.Bool().Draw(t, "in reverse") {
		slices.Reverse(ids)
	}
	for _, id := range ids {
		names := slices.Sorted(maps.Keys(m.tasks[id]))
		fresh := false
		for _, name := range names {
			fresh = fresh || !known[targetMetrics[name]]
		}
		for _, name := range names {
			known[targetMetrics[name]] = true
		}
		m.watch(t, id, names, fresh)
		if m.journal != nil {
			m.append(t)
		}
	}
	exist := map[string]bool{}
	for id := range m.tasks {
		exist[id] = true
	}
	m.list.ForgetOthers(exist)
	if rapid.Bool().Draw(t, "fails at first") {
		m.failing = true
		unnoted := m.journal != nil && !m.journal.unnoted.Empty()
		err := m.list.AllRead(t.Context())
		if m.check(t, err); unnoted && err == nil {
			t.Fatal("what was not noted is forgotten")
		}
		m.failing = false
		m.replayed()
		m.Take(t)
		m.Done(t)
	}
	m.check(t, m.list.AllRead(t.Context()))
	m.replayed()
	if m.journal != nil && !m.journal.unnoted.Empty() {
		t.Fatal("what was handed over is still held")
	}
	m.Check(t)
	for id := range m.tasks {
		m.wantStored(t, id)
	}
}

// replayed allows the hours found in the log, even if they were computed since.
func (m *lateModel) replayed() {
	if m.journal == nil {
		return
	}
	for _, targets := range m.tasks {
		for name, x := range targets {
			maps.Copy(x.may, hoursOf(m.journal.seen.of(targetMetrics[name])))
		}
	}
}

// Check compares the list with its expected state.
func (m *lateModel) Check(t *rapid.T) {
	all := 0
	for id, targets := range m.tasks {
		if !m.list.Watches(id) {
			t.Fatalf("%s is not watched", id)
		}
		for name, x := range targets {
			m.list.mu.RLock()
			spans := m.list.tasks[id].targets[name].allLocked(1000)
			m.list.mu.RUnlock()
			all += len(spans)
			if n := m.list.Count(id, name); n != len(spans) {
				t.Fatalf("%s %s: count %d, want %d", id, name, n, len(spans))
			}
			if got := hoursOf(spans); !x.must.within(got) || !got.within(x.may) {
				t.Fatalf("%s %s: %v, want %v", id, name, got, x.must)
			}
		}
	}
	for _, id := range []string{"a", "b", "none"} {
		if m.list.Watches(id) != (m.tasks[id] != nil) {
			t.Fatalf("%s is watched: %t", id, m.list.Watches(id))
		}
	}
	if n := m.list.Count("", ""); n != all {
		t.Fatalf("count %d, want %d", n, all)
	}
}

// TestLateListAgainstModel: whatever is noted, taken, computed, forgotten and
// restarted, late points of a target are noted until they are computed, and no others.
// The test runs with notes that are kept before samples are stored, and with a log,
// with and without a notebook.
func TestLateListAgainstModel(t *testing.T) {
	for name, m := range map[string]func() *lateModel{
		"store":            func() *lateModel { return &lateModel{} },
		"log":              func() *lateModel { return &lateModel{journal: &modelJournal{}} },
		"log and notebook": func() *lateModel { return &lateModel{journal: &modelJournal{}, fs: vfs.NewMem()} },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := m()
				if m.journal != nil {
					m.journal.model = m
				}
				m.tasks, m.kept = map[string]map[string]*modelTarget{}, map[string]map[string]Spans{}
				m.open(t)
				m.resolveAll()
				if err := m.list.AllRead(t.Context()); err != nil {
					t.Fatal(err)
				}
				t.Repeat(map[string]func(*rapid.T){
					"": m.Check, "watch": m.Watch, "forget": m.Forget, "append": m.Append, "include": m.Include, "take": m.Take,
					"done": m.Done, "fail": m.Fail, "cure": m.Cure, "settle": m.Settle, "trim": m.Trim, "restart": m.Restart,
				})
			})
		})
	}
}

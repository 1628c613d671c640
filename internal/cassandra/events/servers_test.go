package events

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/diskfs/crashfs"
	"varve/internal/originals"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/timeline/spooled"
	"varve/internal/units"
)

var (
	histories    = flag.Int("events.histories", 1, "histories of several servers that are tried")
	historySteps = flag.Int("events.steps", 50, "steps of a history")
	historySeed  = flag.Uint64("events.seed", 0, "seed of the first history; 0: a random one")
)

// TestServers compares several servers over one keyspace with a model: appends, deletes, layouts,
// retention, upkeep, spools, kills, statements that fail or whose answer is lost, and outages, up to
// three at a time. Each reader sees each acknowledged event, none that was deleted, and a follower
// misses none.
func TestServers(t *testing.T) {
	address := originals.Cassandra(t)
	session := keyspace(t, address)
	openShelf(t, session, Options{Node: "first"}) // makes the tables
	seed := *historySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i := range *histories {
		t.Run(fmt.Sprint("seed=", seed+uint64(i)), func(t *testing.T) {
			f := newFleet(t, seed+uint64(i), address, session.KeyspaceName())
			defer f.end()
			for range *historySteps {
				f.step()
				if t.Failed() {
					return
				}
			}
			f.mendAll()
			f.flushAll()
			f.spawnServer()
			f.calm = true
			f.readAll()
			f.followAll()
		})
	}
}

// A fleet is some servers, and what is known of their timelines.
type fleet struct {
	*testing.T
	address, keyspace string
	offset            atomic.Int64 // of the clock, ns

	names   []string
	servers []*member

	mu        sync.Mutex
	random    *rand.Rand
	tick      int64 // orders the beginnings and ends of operations
	number    int
	spots     map[spot][]*deed
	stray     map[string]bool // timelines that may have events whose ids are unknown
	kept      map[string]time.Duration
	unsure    map[string]bool      // timelines whose retention is unknown
	former    map[string]time.Time // until when servers may know another retention
	removals  map[*removal]bool    // deletes that have begun and not ended
	following map[string]*following
	script    []string
	calm      bool // nothing may fail
}

// A deed is an operation on one position: an event that is put, or a delete. It is sure from done on.
type deed struct {
	data       string // "": a delete
	begin, end int64
	done       int64   // math.MaxInt64: it is not known whether it has been done
	spool      *member // in whose spool it waits
	spooled    bool    // it has waited
	byID       bool    // a delete that has searched for the id
	expired    bool
	part       bool // a delete that was interrupted: the data may be missing
}

// A following is a reader that follows a timeline, through any server.
type following struct {
	next  []byte
	begun int64
	seen  map[timeline.Position]int64 // when each position was last delivered
}

// A member is a server.
type member struct {
	id      string
	node    *cqltest.FailingNode
	session *cql.Session
	shelf   *Shelf
	engine  *timeline.Engine
	disk    *crashfs.FS
	spool   *spooled.Spool
	spools  []string
	outage  int // steps until it ends
}

func newFleet(t *testing.T, seed uint64, address, keyspace string) *fleet {
	f := &fleet{
		T: t, address: address, keyspace: keyspace, random: rand.New(rand.NewPCG(seed, 1)), spots: map[spot][]*deed{},
		stray: map[string]bool{}, kept: map[string]time.Duration{}, unsure: map[string]bool{}, former: map[string]time.Time{}, removals: map[*removal]bool{}, following: map[string]*following{},
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		f.names = append(f.names, fmt.Sprint(seed, "/", name))
	}
	f.spawnServer()
	f.spawnServer()
	f.followAll()
	return f
}

func (f *fleet) now() time.Time { return time.Now().Add(time.Duration(f.offset.Load())) }

func (f *fleet) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tick++
	f.script = append(f.script, fmt.Sprintf("%4d %s ", f.tick, f.now().Format("15:04:05.000000"))+fmt.Sprintf(format, args...))
}

func (f *fleet) time() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tick++
	return f.tick
}

func (f *fleet) pick(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

func (f *fleet) name() string { return f.names[f.pick(len(f.names))] }

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) end() {
	if f.Failed() {
		f.Log("\n" + strings.Join(f.script, "\n"))
	}
	for _, m := range f.servers {
		m.node.Mend()
		m.stop()
	}
}

func (f *fleet) spawnServer() {
	m := &member{id: fmt.Sprint("server", len(f.servers)), node: cqltest.NewFailingNode(f.T, f.address), disk: crashfs.New()}
	config := cqltest.Config(m.node.Address)
	config.Keyspace, config.Attempts, config.RetryPause, config.OutageGrace = f.keyspace, 2, time.Millisecond, 0
	m.session = cqltest.Open(f.T, config, cql.Options{})
	m.spools = f.names[2:]
	if len(f.servers)%2 == 1 {
		m.spools = f.names[3:]
	}
	f.start(m)
	f.servers = append(f.servers, m)
}

func (f *fleet) start(m *member) {
	m.shelf = Open(m.session, Options{Node: m.id, Now: f.now})
	ctx, cancel := context.WithTimeout(f.Context(), cqltest.Patience)
	defer cancel()
	var err error
	m.engine, err = timeline.Open(m.shelf, timeline.Options{Upkeep: -1, Now: f.now, Config: timeline.Config{Adapt: f.pick(2) == 0}})
	f.must(err)
	m.spool, err = spooled.Open(m.disk, "spool", spooled.Options{Engine: m.engine, Names: m.spools, Keyspace: f.keyspace, BytesMax: units.GiB})
	f.must(err)
	if m.outage == 0 {
		f.must(m.shelf.WaitReady(ctx))
	}
}

func (m *member) stop() {
	m.spool.Close()
	m.engine.Close()
	m.shelf.Close()
}

// restart ends a server as a kill or a power cut does, and starts it again.
func (f *fleet) restart(m *member) {
	f.say("%s is killed", m.id)
	disk := m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: f.random})
	m.stop()
	m.disk = disk
	f.start(m)
}

// step does up to three things at a time.
func (f *fleet) step() {
	f.mendSome()
	f.expire()
	var doing []func()
	for range 1 + f.pick(3) {
		doing = append(doing, f.choose())
	}
	for _, m := range f.servers {
		if m.outage == 0 && f.pick(3) == 0 {
			f.trouble(m)
		}
	}
	var group sync.WaitGroup
	for _, do := range doing {
		group.Go(do)
	}
	group.Wait()
	for _, m := range f.servers {
		m.node.Fail(nil)
	}
	switch n := f.pick(100); {
	case n < 20:
		f.offset.Add(int64(time.Second) * int64(f.pick([]int{10, 90, 400}[f.pick(3)])))
	case n < 26:
		f.restart(f.servers[f.pick(len(f.servers))])
	case n < 32:
		m := f.servers[f.pick(len(f.servers))]
		m.outage = 1 + f.pick(4)
		f.say("%s loses its nodes for %d steps", m.id, m.outage)
		m.node.Cut()
	case n < 37:
		f.mendAll()
		f.flushAll()
	}
}

func (f *fleet) choose() func() {
	m := f.servers[f.pick(len(f.servers))]
	name := f.name()
	switch n := f.pick(100); {
	case n < 45:
		return f.append(m)
	case n < 62:
		return func() { f.read(m, name) }
	case n < 74:
		return func() { f.follow(m, name) }
	case n < 84:
		return f.erase(m, name)
	case n < 87:
		return func() { f.eraseTimeline(m, name) }
	case n < 92:
		return f.propose(m, name)
	case n < 95:
		return f.retain(m, name)
	default:
		return func() {
			err := m.engine.Upkeep(f.Context())
			f.say("%s: upkeep: %v", m.id, err)
		}
	}
}

// trouble lets some statements of a server fail.
func (f *fleet) trouble(m *member) {
	kinds := []string{"INSERT INTO timeline_events", "INSERT INTO timeline_buckets", "INSERT INTO timeline_arrivals", "INSERT INTO timeline_logs", "INSERT INTO timeline_deletions",
		"INSERT INTO timeline_payloads", "UPDATE varve_registers", "DELETE FROM timeline_events", "DELETE FROM timeline_buckets", "DELETE FROM timeline_payloads", "SELECT", "INSERT", "DELETE", ""}
	kind := kinds[f.pick(len(kinds))]
	first, last := int64(f.pick([]int{1, 2, 5, 30}[f.pick(4)])), int64(0)
	last = first + int64([]int{1, 1, 2, 8}[f.pick(4)])
	writes := []*cqltest.Trouble{cqltest.AppliedTimeout, cqltest.AppliedTimeout, cqltest.WriteTimeout, cqltest.Unavailable, cqltest.ServerError, cqltest.HangUp}
	reads := []*cqltest.Trouble{cqltest.ReadTimeout, cqltest.Unavailable, cqltest.HangUp}
	write, read := f.pick(len(writes)), f.pick(len(reads))
	f.say("%s: of statements %q, those from %d to %d fail: %s or %s", m.id, kind, first, last, writes[write].Message, reads[read].Message)
	var n atomic.Int64
	m.node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		if !slices.ContainsFunc(r.Statements, func(b cqltest.Bound) bool {
			return strings.HasPrefix(b.Text, kind) && (strings.Contains(b.Text, "timeline_") || strings.Contains(b.Text, "varve_registers"))
		}) {
			return nil
		}
		if at := n.Add(1) - 1; at < first || at >= last {
			return nil
		}
		if strings.HasPrefix(r.Statements[0].Text, "SELECT") {
			return reads[read]
		}
		return writes[write]
	})
}

func (f *fleet) mendSome() {
	for _, m := range f.servers {
		if m.outage > 0 {
			if m.outage--; m.outage == 0 {
				f.mend(m)
			}
		}
	}
}

func (f *fleet) mend(m *member) {
	m.node.Mend()
	m.outage = 0
	f.say("%s has its nodes again", m.id)
	ctx, cancel := context.WithTimeout(f.Context(), cqltest.Patience)
	defer cancel()
	f.must(m.shelf.WaitReady(ctx))
	for {
		if _, err := m.shelf.History(ctx, "none"); err == nil {
			return
		} else if ctx.Err() != nil {
			f.Fatal(err)
		}
	}
}

func (f *fleet) mendAll() {
	for _, m := range f.servers {
		f.mend(m)
	}
}

// flushAll drains all spools.
func (f *fleet) flushAll() {
	f.expire()
	for _, m := range f.servers {
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		f.must(m.spool.Flush(ctx))
		cancel()
		f.say("%s is drained", m.id)
		at := f.time()
		f.mu.Lock()
		for _, deeds := range f.spots {
			for _, d := range deeds {
				if d.spool == m {
					d.spool = nil
					if d.done == math.MaxInt64-1 {
						d.done = at
					}
				}
			}
		}
		f.mu.Unlock()
	}
}

func (f *fleet) note(at spot, d *deed) *deed {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.spots[at]) == 0 {
		for r := range f.removals {
			if r.name == at.timeline && r.match(at.Position) {
				f.spots[at] = append(f.spots[at], r.of(f))
			}
		}
	}
	f.spots[at] = append(f.spots[at], d)
	return d
}

// somewhere returns a position, often one that has an event.
func (f *fleet) somewhere(name string) timeline.Position {
	f.mu.Lock()
	var all []timeline.Position
	for at := range f.spots {
		if at.timeline == name && len(at.ID) < 4 { // see round-robin in docs/timelines.md
			all = append(all, at.Position)
		}
	}
	f.mu.Unlock()
	slices.SortFunc(all, timeline.Position.Compare)
	if len(all) > 0 && f.pick(3) == 0 {
		return all[f.pick(len(all))]
	}
	age := []time.Duration{5 * time.Second, time.Minute, 30 * time.Minute, 3 * time.Hour, 40 * time.Hour}[f.pick(5)]
	at := f.now().Add(-time.Duration(f.pick(int(age/time.Microsecond))) * time.Microsecond).UnixMicro()
	if f.pick(10) == 0 {
		at += 40 * second
	}
	return timeline.Position{Time: at, ID: fmt.Sprint(f.pick(8))}
}

func (f *fleet) append(m *member) func() {
	var events []timeline.Addressed
	taken := map[spot]bool{}
	for range 1 + f.pick(6) {
		to := []string{f.name()}
		if other := f.name(); f.pick(4) == 0 && other != to[0] {
			to = append(to, other)
		}
		p := f.somewhere(to[0])
		if f.pick(8) == 0 {
			p.ID = ""
		}
		double := false
		for _, name := range to {
			double = double || taken[spot{name, p}]
			taken[spot{name, p}] = true
		}
		if double {
			continue
		}
		f.mu.Lock()
		f.number++
		data := fmt.Sprint("v", f.number)
		f.mu.Unlock()
		if size := []int{0, 30, 100, 40 << 10}[f.pick(4)]; size > 0 {
			data += strings.Repeat("x", size)
		}
		events = append(events, event(p.Time, p.ID, data, to...))
	}
	return func() { f.send(m, events) }
}

func (f *fleet) send(m *member, events []timeline.Addressed) {
	begin := f.time()
	deeds := map[spot]*deed{}
	open := func(e *timeline.Addressed) {
		if e.ID == "" {
			return
		}
		for _, name := range e.Timelines {
			at := spot{name, e.Position()}
			if deeds[at] == nil {
				deeds[at] = f.note(at, &deed{data: string(e.Data), begin: begin, end: math.MaxInt64, done: math.MaxInt64})
			}
		}
	}
	for i := range events {
		open(&events[i])
	}
	r, err := m.spool.Append(f.Context(), events)
	end := f.time()
	var told []string
	for i := range events {
		e := events[i]
		if e.ID == "" && len(r.IDs) > 0 {
			e.ID = r.IDs[i]
		}
		if e.ID == "" {
			for _, name := range e.Timelines {
				f.mu.Lock()
				f.stray[name] = true
				f.mu.Unlock()
			}
			continue
		}
		open(&e)
		for _, name := range e.Timelines {
			d := deeds[spot{name, e.Position()}]
			f.mu.Lock()
			d.end = end
			outcome := "acknowledged"
			if why := failure(r, err, i, name); why != nil {
				outcome = why.Error()
				if refused(why) {
					d.begin = math.MaxInt64 // it was never put
				}
			} else {
				d.done = end
			}
			if m.takes(e.Timelines) {
				d.spool, d.spooled = m, true
				outcome += ", spooled"
				if d.done == end {
					d.done = math.MaxInt64 - 1 // until it is drained
				}
			}
			f.mu.Unlock()
			told = append(told, fmt.Sprintf("%s %d/%s=%.8s %s", name, e.Time, e.ID, e.Data, outcome))
		}
	}
	f.say("%s from %d: append\n\t%s", m.id, begin, strings.Join(told, "\n\t"))
}

func (m *member) takes(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(m.spools, name) })
}

func failure(r timeline.Result, err error, i int, name string) error {
	if err != nil {
		return err
	}
	for _, j := range r.Rejected {
		if j.Index == i && (j.Timeline == "" || j.Timeline == name) {
			return j.Err
		}
	}
	return nil
}

func refused(err error) bool {
	return errors.As(err, new(*store.InputError)) || errors.As(err, new(*store.LimitError))
}

// A removal is a delete that has begun.
type removal struct {
	name  string
	begin int64
	byID  bool
	match func(timeline.Position) bool
	deeds []*deed
}

func (r *removal) of(f *fleet) *deed {
	d := &deed{begin: r.begin, end: math.MaxInt64, done: math.MaxInt64, byID: r.byID, part: true}
	r.deeds = append(r.deeds, d)
	return d
}

// remove notes a delete of positions that match, before it begins, and returns what notes its end.
func (f *fleet) remove(name string, byID bool, match func(timeline.Position) bool) (ended func(error)) {
	r := &removal{name: name, begin: f.time(), byID: byID, match: match}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removals[r] = true
	for at := range f.spots {
		if at.timeline == name && match(at.Position) {
			f.spots[at] = append(f.spots[at], r.of(f))
		}
	}
	return func(err error) {
		end := f.time()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.removals, r)
		for _, d := range r.deeds {
			if d.end = end; err == nil {
				d.done = end
			}
		}
	}
}

func (f *fleet) erase(m *member, name string) func() {
	var d timeline.Deletion
	p := f.somewhere(name)
	what := f.pick(3)
	if what == 0 || what == 1 {
		until := p.Time
		if what == 0 {
			until += int64(f.pick(600)) * second
		}
		d.From, d.Until = &p.Time, &until
	}
	if what >= 1 {
		d.ID = p.ID
	}
	return func() {
		begin := f.time()
		ended := f.remove(name, what == 2, func(at timeline.Position) bool {
			return (d.From == nil || at.Time >= *d.From && at.Time <= *d.Until) && (d.ID == "" || at.ID == d.ID)
		})
		err := m.engine.Delete(f.Context(), name, d)
		ended(err)
		f.say("%s from %d: delete of %s, %d/%s, kind %d: %v", m.id, begin, name, p.Time, p.ID, what, err)
	}
}

func (f *fleet) eraseTimeline(m *member, name string) {
	begin := f.time()
	f.mu.Lock()
	f.unsure[name] = true
	f.mu.Unlock()
	ended := f.remove(name, false, func(timeline.Position) bool { return true })
	err := m.engine.DeleteTimeline(f.Context(), name)
	ended(err)
	f.say("%s from %d: delete of timeline %s: %v", m.id, begin, name, err)
}

func (f *fleet) propose(m *member, name string) func() {
	p := timeline.Proposal{
		Size: []int64{0, 10 * second, 60 * second, 20 * second}[f.pick(4)], Factor: f.pick(5),
		Mode:      []timeline.Mode{"", timeline.Materialised, timeline.Index, timeline.Hybrid}[f.pick(4)],
		Threshold: 50, Placement: []timeline.Placement{"", timeline.Hash, timeline.RoundRobin}[f.pick(3)],
	}
	return func() {
		h, err := m.engine.Propose(f.Context(), name, p)
		f.say("%s: propose %s %+v: version %d, %v", m.id, name, p, h.Version, err)
	}
}

func (f *fleet) retain(m *member, name string) func() {
	keep := []time.Duration{0, 0, time.Hour, 24 * time.Hour}[f.pick(4)]
	return func() {
		f.mu.Lock()
		f.unsure[name] = true
		f.mu.Unlock()
		_, err := m.engine.SetRetention(f.Context(), name, keep)
		f.say("%s: retention of %s: %v, %v", m.id, name, keep, err)
	}
}

// expire notes which events may be removed from now on because they are past the retention, and
// which no longer.
func (f *fleet) expire() {
	for _, name := range f.names {
		f.learn(name)
		now := f.time()
		f.mu.Lock()
		oldest := int64(math.MinInt64)
		switch kept := f.kept[name]; {
		case f.unsure[name] || f.now().Before(f.former[name]):
			oldest = f.now().Add(-58 * time.Minute).UnixMicro()
		case kept > 0:
			oldest = f.now().Add(-kept + 2*time.Minute).UnixMicro()
		}
		for at, deeds := range f.spots {
			if at.timeline != name {
				continue
			}
			i := slices.IndexFunc(deeds, func(d *deed) bool { return d.expired && d.end == math.MaxInt64 })
			if i >= 0 && oldest == math.MinInt64 {
				deeds[i].end = now
			} else if i < 0 && at.Time < oldest {
				f.spots[at] = append(deeds, &deed{begin: now, end: math.MaxInt64, done: math.MaxInt64, expired: true, part: true})
			}
		}
		f.mu.Unlock()
	}
}

// hides reports whether a change of the retention of this step may hide a position.
func (f *fleet) hides(at spot, now time.Time) bool {
	return (f.unsure[at.timeline] || now.Before(f.former[at.timeline])) && at.Time < now.Add(-58*time.Minute).UnixMicro()
}

// learn reads the retention of a timeline if a change of it may have failed.
func (f *fleet) learn(name string) {
	for _, m := range f.servers {
		if !f.unsure[name] || m.outage > 0 {
			continue
		}
		if h, err := m.shelf.History(f.Context(), name); err == nil {
			f.kept[name], f.unsure[name], f.former[name] = h.Retention, false, f.now().Add(75*time.Second)
		}
	}
}

// sure reports whether a deed has surely been done before a time. A delete that failed, or the
// retention, may have prevented it while it waited in a spool.
func (y *deed) sure(deeds []*deed, before int64) bool {
	if y.done >= before || y.begin == math.MaxInt64 {
		return false
	}
	return !y.spooled || !slices.ContainsFunc(deeds, func(z *deed) bool {
		return z.data == "" && z.done == math.MaxInt64 && z.end > y.begin && z.begin < y.done
	})
}

// possible returns the data that a position may have for a reader between two times; "" is none.
// part says that an event may lack its data, because a delete was interrupted.
func possible(deeds []*deed, from, to int64) (may map[string]bool, part bool) {
	may = map[string]bool{}
	none := true // nothing was there at first
	for _, x := range deeds {
		over := slices.ContainsFunc(deeds, func(y *deed) bool {
			// The spooled event may have been put beside a search for its id.
			return y.begin > x.end && y.sure(deeds, from) && !(y.byID && x.spool != nil)
		})
		none = none && !x.sure(deeds, from)
		if over || x.begin >= to {
			continue
		}
		may[x.data] = true
		part = part || x.part && x.done >= from
	}
	if none {
		may[""] = true
	}
	return may, part
}

func (f *fleet) read(m *member, name string) {
	q := timeline.Query{Timelines: []string{name}, Limit: 1 + f.pick(40), Order: timeline.Direction(f.pick(2))}
	if f.pick(3) == 0 {
		q.Timelines = slices.Clone(f.names)
	}
	from := f.time()
	clock := f.now()
	var found []timeline.Found
	for pages := 0; ; pages++ {
		p, err := m.engine.Read(f.Context(), q)
		if err != nil {
			f.say("%s from %d: read: %v", m.id, from, err)
			if f.calm {
				f.Error(err)
			}
			return
		}
		found = append(found, p.Events...)
		if p.End {
			break
		}
		if q.Cursor = p.Cursor; pages > 10_000 {
			f.Error("the pages do not end")
			return
		}
	}
	to := f.time()
	f.say("%s from %d: read %q: %d events", m.id, from, q.Timelines, len(found))
	f.compare(m, q.Timelines, found, from, to, clock)
}

func (f *fleet) compare(m *member, names []string, found []timeline.Found, from, to int64, clock time.Time) {
	got := map[spot]string{}
	missing := map[spot]bool{}
	for _, e := range found {
		at := spot{e.Timeline, e.Position()}
		if _, twice := got[at]; twice {
			f.Errorf("%s from %d: %s %d/%s is there twice", m.id, from, at.timeline, at.Time, at.ID)
		}
		got[at], missing[at] = string(e.Data), e.Missing
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range got {
		if len(f.spots[at]) == 0 && !f.stray[at.timeline] && len(at.ID) < 4 {
			f.Errorf("%s from %d: %s %d/%s was never sent", m.id, from, at.timeline, at.Time, at.ID)
		}
	}
	for at, deeds := range f.spots {
		if !slices.Contains(names, at.timeline) {
			continue
		}
		may, part := possible(deeds, from, to)
		data := got[at]
		if f.hides(at, clock) {
			may[""] = true
		}
		if missing[at] && part {
			continue
		}
		if kept := f.kept[at.timeline]; data != "" && kept > 0 && !f.unsure[at.timeline] && clock.After(f.former[at.timeline]) && at.Time < clock.Add(-kept-time.Minute).UnixMicro() {
			f.Errorf("%s from %d: %s %d/%s is past the retention", m.id, from, at.timeline, at.Time, at.ID)
		}
		if may[data] && !missing[at] {
			continue
		}
		var want []string
		for data := range may {
			want = append(want, fmt.Sprintf("%.8q", data))
		}
		var all []string
		for _, d := range deeds {
			all = append(all, fmt.Sprintf("%.8q begin %d end %d done %d spool %v", d.data, d.begin, d.end, d.done, d.spool != nil))
		}
		f.Errorf("%s from %d to %d: %s %d/%s is %.8q, missing %v, want one of %s\n\t%s", m.id, from, to, at.timeline, at.Time, at.ID, data, missing[at], want, strings.Join(all, "\n\t"))
	}
}

func (f *fleet) readAll() {
	for _, m := range f.servers {
		for _, name := range f.names {
			f.read(m, name)
		}
	}
}

func (f *fleet) followAll() {
	for i, name := range f.names {
		f.follow(f.servers[i%len(f.servers)], name)
	}
}

// follow continues to follow a timeline through a server.
func (f *fleet) follow(m *member, name string) {
	f.mu.Lock()
	w := f.following[name]
	if w == nil {
		w = &following{seen: map[timeline.Position]int64{}}
		f.following[name] = w
	}
	next := w.next
	f.following[name] = &following{seen: map[timeline.Position]int64{}} // a concurrent follower starts over
	f.mu.Unlock()
	from := f.time()
	limit := timeline.Limit{Entries: 1 + f.pick(20), Bytes: 1 << 20}
	var told []string
	for {
		a, err := m.shelf.Arrivals(f.Context(), name, next, limit)
		if errors.Is(err, timeline.ErrBehind) {
			f.say("%s from %d: the follower of %s is behind", m.id, from, name)
			return
		}
		if err != nil {
			f.say("%s from %d: follow %s: %v", m.id, from, name, err)
			if f.calm {
				f.Error(err)
			}
			break
		}
		if next == nil {
			w.begun = f.time()
		}
		next = a.Next
		at := f.time()
		for i := range a.Entries {
			e := &a.Entries[i]
			w.seen[e.Position()] = at
			told = append(told, fmt.Sprintf("%d/%s", e.Time, e.ID))
			f.delivered(m, name, e, from, at)
		}
		if !a.More {
			f.say("%s from %d: followed %s: %q", m.id, from, name, told)
			f.missed(m, name, w, from, at)
			break
		}
	}
	w.next = next
	f.mu.Lock()
	f.following[name] = w
	f.mu.Unlock()
}

func (f *fleet) delivered(m *member, name string, e *timeline.Entry, from, to int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	deeds := f.spots[spot{name, e.Position()}]
	may, _ := possible(deeds, from, to)
	if len(deeds) == 0 {
		return
	}
	delete(may, "")
	if len(may) == 0 || e.Pointer == (timeline.PayloadKey{}) && !may[string(e.Data)] {
		f.Errorf("%s from %d to %d: a follower of %s is given %d/%s=%.8q", m.id, from, to, name, e.Time, e.ID, e.Data)
	}
}

// missed looks for events that were acknowledged before from and not delivered.
func (f *fleet) missed(m *member, name string, w *following, from, to int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, deeds := range f.spots {
		if at.timeline != name {
			continue
		}
		if may, _ := possible(deeds, from, to); may[""] || f.hides(at, f.now()) {
			continue
		}
		for _, d := range deeds {
			if d.data != "" && d.begin > w.begun && d.done < from && w.seen[at.Position] < d.begin {
				f.Errorf("%s from %d: a follower of %s, begun at %d, missed %d/%s=%.8q of %d", m.id, from, name, w.begun, at.Time, at.ID, d.data, d.begin)
			}
		}
	}
}

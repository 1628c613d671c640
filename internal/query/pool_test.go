package query

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/units"
)

// All queries have one budget: a query that finds it used up waits, goes on
// when another one gives back, and is refused as overload after max_wait.
func TestQueriesShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxWait = 3*grantBytes, 10*time.Second
		f := newFixture(t, config)
		hold := func() error {
			s, err := f.Begin(t.Context(), Request{})
			if err != nil {
				return err
			}
			l := s.Lease()
			err = l.Take(grantBytes)
			s.Close(err)
			return err
		}
		held := func() float64 {
			var m dto.Metric
			if err := f.metrics.memory.Write(&m); err != nil {
				t.Fatal(err)
			}
			return m.Gauge.GetValue()
		}

		if err := f.take(t.Context(), "", 3*grantBytes, 0); err != nil {
			t.Fatal(err)
		}
		var limit *store.LimitError
		began := time.Now()
		err := hold()
		if !errors.As(err, &limit) || !limit.Busy || limit.Limit != "query.total_memory" || limit.Need <= limit.Max || outcome(err) != "busy" {
			t.Errorf("beside an answer that is not sent: %v", err)
		}
		if waited := time.Since(began); waited != config.MaxWait {
			t.Errorf("waited %s", waited)
		}
		if counted(t, f.metrics.memoryRefused) != 1 || held() != 3*grantBytes {
			t.Errorf("%v bytes are held", held())
		}

		time.AfterFunc(5*time.Second, func() { f.give("", 3*grantBytes) })
		began = time.Now()
		if err := hold(); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if held() != 0 {
			t.Errorf("%v bytes are held at rest", held())
		}

		if err := f.take(t.Context(), "", 3*grantBytes, 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.take(ctx, "", 1, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that is cancelled: %v", err)
		}
		f.give("", 3*grantBytes)
	})
}

// TestQueriesThatWaitForMemory: queries that hold all memory and wait for more keep neither memory
// nor slots from a query with little work. The one that began last is refused, so that others end.
func TestQueriesThatWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxConcurrent = 3*reserveShare*grantBytes, 3
		f := newFixture(t, config)
		begin := func() *Session {
			s, err := f.Begin(t.Context(), Request{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		began, each := time.Now(), f.pool.most()/3
		var outcomes [3]error
		var ended sync.WaitGroup
		sessions := []*Session{begin(), begin(), begin()}
		for _, s := range sessions {
			if err := s.Reserve(each); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range slices.Backward(sessions) { // the youngest waits first
			ended.Go(func() {
				outcomes[i] = s.Reserve(each)
				s.Close(outcomes[i])
			})
			synctest.Wait()
		}

		small := begin()
		if err := small.Reserve(smallGrant); err != nil || time.Since(began) != 0 {
			t.Errorf("a small query: %v after %s", err, time.Since(began))
		}
		small.Close(nil)
		ended.Wait()
		var limit *store.LimitError
		if err := outcomes[2]; !errors.As(err, &limit) || !limit.Busy || limit.Limit != "query.total_memory" || !strings.Contains(err.Error(), "3 queries hold all of it") {
			t.Errorf("the one that began last: %v", err)
		}
		if outcomes[0] != nil || outcomes[1] != nil || time.Since(began) != stuckTime {
			t.Errorf("the others: %v after %s", outcomes[:2], time.Since(began))
		}
		if n := counted(t, f.metrics.memoryRefused); n != 1 {
			t.Errorf("%v refusals are counted", n)
		}
		if free, taken := f.slots.free, f.slots.taken; free != config.MaxConcurrent || taken != 0 {
			t.Errorf("at the end %d slots are free and %d are taken", free, taken)
		}
	})
}

// TestOrderOfMemory: the oldest session has memory first, and a session is not taken for stuck
// while another that holds memory computes.
func TestOrderOfMemory(t *testing.T) {
	const large = 2 * smallGrant
	p := &pool{max: 8*smallGrant - 1, metrics: newMetrics(prometheus.NewRegistry()), held: map[uint64]int64{}, senders: map[netip.Prefix]int64{}, idle: func() bool { return false }}
	has := func(yes bool, w want) {
		t.Helper()
		if _, ok := p.try(w); ok != yes {
			t.Fatalf("session %d has memory: %t", w.session, ok)
		}
	}
	stuck := func(n int, session uint64) {
		t.Helper()
		if got := p.stuck(session, p.freed); got != n {
			t.Errorf("%d are stuck with session %d, want %d", got, session, n)
		}
	}
	has(true, want{bytes: large, held: large, session: 1})
	has(true, want{bytes: large, held: large, session: 2})
	has(true, want{bytes: large, held: large, session: 3})
	has(true, want{bytes: smallGrant, held: smallGrant, session: 4})
	has(false, want{bytes: large, held: 2 * large, session: 3})
	has(false, want{bytes: large, held: large, session: 5})
	has(false, want{bytes: large, held: 2 * large, session: 2})
	stuck(0, 3) // session 1 computes
	has(false, want{bytes: large, held: large, session: 1})
	stuck(3, 3)
	stuck(0, 2)
	stuck(0, 5) // it holds nothing that others could have
	p.end(3, netip.Prefix{}, large)
	p.leave(3)
	has(false, want{bytes: large, held: 2 * large, session: 2}) // session 1 is older
	stuck(0, 2)                                                 // session 1 has been woken, too, and will find memory
	has(true, want{bytes: 1, held: 1})
	has(true, want{bytes: large, held: large, session: 1})
	p.leave(1)
	stuck(0, 2)
	has(false, want{bytes: large, held: 2 * large, session: 2})
	freed := p.freed
	p.end(1, netip.Prefix{}, 2*large)
	if n := p.stuck(2, freed); n != 0 {
		t.Error("a session is stuck although there is memory")
	}
	has(true, want{bytes: large, held: 2 * large, session: 2})
	p.leave(2)
	p.leave(5)

	has(true, want{bytes: large, held: large, session: 6}) // an answer
	has(false, want{bytes: large, held: 2 * large, session: 6})
	has(false, want{bytes: large, held: 3 * large, session: 2})
	stuck(0, 2) // session 6 began later
	stuck(2, 6)
}

// TestWhichIsStuck: a session is refused if all that hold much wait for more, it began last of them, and the oldest
// could not go on with what those hold that wait.
func TestWhichIsStuck(t *testing.T) {
	const g = smallGrant
	freed := make(chan struct{})
	p := &pool{max: 16 * g, freed: freed}
	if p.most() != 15*g {
		t.Fatalf("large owners have %d", p.most())
	}
	wait := func(bytes ...int64) (line []waiting) {
		for i, n := range bytes {
			line = append(line, waiting{session: uint64(i + 1), bytes: n})
		}
		return line
	}
	for name, tc := range map[string]struct {
		line []waiting
		held map[uint64]int64
		n    int
		last uint64 // that is refused, 0: none
	}{
		"both":                        {wait(14*g, g), map[uint64]int64{1: 2 * g, 2: 3 * g}, 2, 2},
		"another computes":            {wait(14*g, g), map[uint64]int64{1: 2 * g, 2: 3 * g, 3: 2 * g}, 0, 0},
		"one with little computes":    {wait(14*g, g), map[uint64]int64{1: 2 * g, 2: 3 * g, 3: g}, 2, 2},
		"one with little waits":       {wait(14*g, g, g), map[uint64]int64{1: 2 * g, 2: 3 * g, 3: g}, 2, 2},
		"enough for the oldest":       {wait(10*g, 14*g), map[uint64]int64{1: 2 * g, 2: 3 * g}, 0, 0},
		"not enough for it":           {wait(10*g+1, g), map[uint64]int64{1: 2 * g, 2: 3 * g}, 2, 2},
		"enough with what little has": {wait(9*g, g, g), map[uint64]int64{1: 2 * g, 2: 3 * g, 3: g}, 0, 0},
		"one":                         {wait(13*g, g), map[uint64]int64{1: 2 * g, 2: g}, 1, 1},
		"little":                      {wait(15*g, g), map[uint64]int64{1: g, 2: g}, 0, 0},
		"nobody":                      {nil, nil, 0, 0},
	} {
		p.line, p.held = tc.line, tc.held
		for session := range uint64(4) {
			want := 0
			if session == tc.last {
				want = tc.n
			}
			if got := p.stuck(session, freed); got != want {
				t.Errorf("%s: session %d is stuck among %d, want %d", name, session, got, want)
			}
			if got := p.stuck(session, nil); got != 0 {
				t.Errorf("%s: session %d is stuck among %d although memory became free", name, session, got)
			}
		}
	}
}

// TestWhichWaiterBlocks: while no query computes and others wait for a slot, the session that is refused is one that
// keeps its slot: of the sender with the most in line, the one that began last.
func TestWhichWaiterBlocks(t *testing.T) {
	sender, other, nobody := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32"), netip.Prefix{}
	lends, keeps := &atomic.Bool{}, &atomic.Bool{}
	lends.Store(true)
	queued, idle := true, true
	p := &pool{queued: func() bool { return queued }, idle: func() bool { return idle }}
	blocks := func(session uint64) bool {
		w := want{session: session}
		if session > 0 {
			w.lent = p.line[session-1].lent
		}
		return p.blocks(w)
	}
	for name, tc := range map[string]struct {
		line []waiting
		want uint64 // 0: none
	}{
		"nobody waits":        {nil, 0},
		"one":                 {[]waiting{{1, 0, sender, keeps}}, 1},
		"the last":            {[]waiting{{1, 0, sender, keeps}, {2, 0, sender, keeps}}, 2},
		"of those that keep":  {[]waiting{{1, 0, sender, keeps}, {2, 0, sender, lends}, {3, 0, sender, nil}}, 1},
		"of the largest":      {[]waiting{{1, 0, sender, keeps}, {2, 0, sender, keeps}, {3, 0, other, keeps}}, 2},
		"of equals":           {[]waiting{{1, 0, sender, keeps}, {2, 0, other, keeps}}, 2},
		"largest by all":      {[]waiting{{1, 0, sender, keeps}, {2, 0, other, keeps}, {3, 0, sender, lends}}, 1},
		"others lend":         {[]waiting{{1, 0, other, lends}, {2, 0, other, lends}, {3, 0, sender, keeps}}, 3},
		"unknown senders":     {[]waiting{{1, 0, nobody, lends}, {2, 0, nobody, lends}, {3, 0, sender, keeps}}, 3},
		"none keeps its slot": {[]waiting{{1, 0, sender, lends}, {2, 0, sender, nil}}, 0},
		"none has begun":      {[]waiting{{1, 0, sender, nil}}, 0},
	} {
		p.line = tc.line
		for session := range uint64(len(tc.line) + 1) {
			queued, idle = true, true
			if got, want := blocks(session), session == tc.want && session > 0; got != want {
				t.Errorf("%s: session %d is refused: %t, want %t", name, session, got, want)
			}
			for _, state := range [][2]bool{{false, true}, {true, false}, {false, false}} {
				if queued, idle = state[0], state[1]; blocks(session) {
					t.Errorf("%s: session %d is refused; others wait for a slot: %t, no query computes: %t", name, session, queued, idle)
				}
			}
		}
	}
}

// TestOrderOfModestSenders: of the sessions of senders with little memory, the oldest has more first.
func TestOrderOfModestSenders(t *testing.T) {
	const large = 2 * grantBytes
	modest, other, slow := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("10.0.0.3/32")
	p := &pool{max: 128 * grantBytes, metrics: newMetrics(prometheus.NewRegistry()), held: map[uint64]int64{}, senders: map[netip.Prefix]int64{}}
	has := func(yes bool, sender netip.Prefix, session uint64, bytes int64) {
		t.Helper()
		if _, ok := p.try(want{bytes: bytes, held: bytes + smallGrant, session: session, sender: sender}); ok != yes {
			t.Errorf("session %d has memory: %t", session, ok)
		}
	}
	has(true, slow, 1, p.most())
	has(false, slow, 2, large) // it is the oldest in line, but its sender has much
	has(true, other, 5, p.modest()-large)
	has(false, modest, 4, 2*large)
	has(false, other, 5, large) // there is as much, but session 4 is older
	has(true, modest, 3, large) // session 4 is younger
	has(false, other, 5, large)
	p.leave(4)
	p.shrink(3, modest, large)
	has(true, other, 5, large)
}

// TestStuckBesideAQueryWithoutSlot: a query waits for memory that one holds which waits for the slot of
// the first. The one that began last is refused soon, and the other goes on.
func TestStuckBesideAQueryWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxConcurrent = reserveShare*grantBytes, 1
		config.MaxQueued = 1 // so few that no slot is lent
		f := newFixture(t, config)
		f.lent.Store(1)
		first, err := f.Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close(nil)
		if err := first.Reserve(grantBytes); err != nil {
			t.Fatal(err)
		}
		var began time.Time
		var refused error
		var second sync.WaitGroup
		second.Go(func() {
			s, err := f.Begin(t.Context(), Request{})
			if err != nil {
				t.Error(err)
				return
			}
			began = time.Now()
			if err := s.Reserve(grantBytes); err != nil {
				t.Error(err)
			}
			refused = s.Reserve(f.pool.most() - grantBytes)
			s.Close(refused)
		})
		synctest.Wait() // it waits for the slot
		time.Sleep(turnTime)
		if err := first.Yield(); err != nil {
			t.Fatal(err)
		}
		second.Wait()
		var limit *store.LimitError
		if !errors.As(refused, &limit) || !limit.Busy || time.Since(began) > 2*stuckTime {
			t.Errorf("after %s: %v", time.Since(began), refused)
		}
	})
}

// TestWaitForAnswers: a query that waits for memory which answers hold is not refused as one that waits
// for other queries.
func TestWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory = reserveShare * grantBytes
		f := newFixture(t, config)
		answer := int64(reserveShare-3) * grantBytes
		if err := f.take(t.Context(), "", answer, answer); err != nil {
			t.Fatal(err)
		}
		s, err := f.Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(nil)
		if err := s.Reserve(grantBytes); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(4*stuckTime, func() { f.give("", answer) })
		if err := s.Reserve(2 * grantBytes); err != nil || time.Since(began) != 4*stuckTime {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestOneSlotIsLent: a query of which two goroutines wait for memory lends its slot once, and again when
// one of them waits again.
func TestOneSlotIsLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxConcurrent = reserveShare*grantBytes, 1
		f := newFixture(t, config)
		most := f.pool.most()
		if err := f.take(t.Context(), "", most, most); err != nil {
			t.Fatal(err)
		}
		s, err := f.Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		wait := func(f func() error) {
			waiting.Go(func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		lent := func(want int64) {
			t.Helper()
			if n := f.lent.Load(); n != want {
				t.Errorf("%d slots are lent, want %d", n, want)
			}
		}
		wait(func() error { return s.Reserve(grantBytes) })
		lent(1)
		wait(func() error { return f.takeFor(s, grantBytes, grantBytes) })
		lent(1)
		if free := f.slots.free; free != 1 {
			t.Errorf("%d slots are free beside a query that waits twice", free)
		}
		f.give("", most)
		waiting.Wait()
		lent(0)
		if err := f.take(t.Context(), "", most-2*grantBytes, 0); err != nil {
			t.Fatal(err)
		}
		wait(func() error { return s.Reserve(grantBytes) })
		lent(1)
		f.give("", most-2*grantBytes)
		waiting.Wait()
		f.give("", grantBytes) // the answer
		s.Close(nil)
	})
}

// TestImpossibleAnswer: an answer that total_memory has no room for fails at once, and younger
// queries do not wait behind it.
func TestImpossibleAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory = reserveShare * grantBytes
		f := newFixture(t, config)
		began := time.Now()
		s, err := f.Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(nil)
		var limit *store.LimitError
		for _, err := range []error{f.takeFor(s, grantBytes, reserveShare*grantBytes), f.take(t.Context(), "", grantBytes, reserveShare*grantBytes)} {
			if !errors.As(err, &limit) || limit.Busy || limit.Limit != "query.total_memory" || limit.Need <= limit.Max {
				t.Errorf("an answer as large as total_memory: %v", err)
			}
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %s", waited)
		}
		if len(f.pool.line) != 0 {
			t.Error("it stands in line")
		}
	})
}

// Memory that a query no longer uses goes back to the pool before the query ends.
func TestSpareMemoryIsGivenBackEarly(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	b := &budget{max: 1 << 40, ctx: t.Context(), engine: f.Engine}
	f.pool.max = 1 << 40
	for range 100 {
		if err := b.take(grantBytes); err != nil {
			t.Fatal(err)
		}
	}
	b.release(90 * grantBytes)
	if n := f.pool.inUse(); n > 10*grantBytes+keptGrant {
		t.Errorf("%d bytes are held", n)
	}
	b.release(10 * grantBytes)
	b.close()
	if n := f.pool.inUse(); n != 0 {
		t.Errorf("%d bytes are held at the end", n)
	}
}

// A query that needs more than all queries may have is told of that setting.
func TestLimitOfMemoryIsNamed(t *testing.T) {
	for _, tc := range []struct {
		own, all int64
		want     string
	}{
		{1 << 10, 1 << 20, "query.max_memory"}, {1 << 20, 1 << 10, "query.total_memory"},
	} {
		config := DefaultConfig()
		config.MaxMemory, config.TotalMemory = units.Bytes(tc.own), units.Bytes(tc.all)
		run, err := newFixture(t, config).Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		var limit *store.LimitError
		if err := run.budget.take(1 << 12); !errors.As(err, &limit) || limit.Limit != tc.want || limit.Max != 1<<10 {
			t.Errorf("%d of %d: %v, want %s", tc.own, tc.all, err, tc.want)
		}
		run.Close(nil)
	}
}

// One that stands in line and gives up lets those behind it have the memory that it waited for.
func TestLeavingTheLineOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxConcurrent = 3*reserveShare*grantBytes, 3
		f := newFixture(t, config)
		ctx, giveUp := context.WithCancel(t.Context())
		first, second, holds := f.session(t, ctx), f.session(t, t.Context()), f.session(t, t.Context())
		began := time.Now()
		if err := holds.Reserve(f.pool.most() - 2*grantBytes); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			err := first.Reserve(f.pool.most() / 2)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the one that gave up: %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if err := second.Reserve(smallGrant + 1); err != nil {
				t.Errorf("the one behind it: %v", err)
			}
		})
		synctest.Wait()
		if n := len(f.pool.line); n != 2 {
			t.Errorf("%d stand in line, want 2", n)
		}
		giveUp()
		all.Wait()
		if time.Since(began) != 0 {
			t.Errorf("the one behind it waited for %s", time.Since(began))
		}
		for _, s := range []*Session{first, second, holds} {
			s.Close(nil)
		}
	})
}

// A query without a slot, as after its end, lends none while its answer waits for memory.
func TestAnswerOfAQueryWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxConcurrent = 3*reserveShare*grantBytes, 3
		f := newFixture(t, config)
		most := f.pool.most()
		if err := f.take(t.Context(), "", most, most); err != nil {
			t.Fatal(err)
		}
		s := f.session(t, t.Context())
		f.slots.leave()
		s.outside = true
		var all sync.WaitGroup
		all.Go(func() {
			if err := f.takeFor(s, most/2, most/2); err != nil {
				t.Errorf("its answer: %v", err)
			}
		})
		synctest.Wait()
		if taken, free, lent := f.slots.inUse(), f.slots.free, f.lent.Load(); taken != 0 || free != 3 || lent != 0 {
			t.Errorf("while it waits %d slots are taken, %d are free and %d are lent", taken, free, lent)
		}
		f.give("", most)
		all.Wait()
		f.give("", most/2)
		s.Close(nil)
		if taken, free := f.slots.inUse(), f.slots.free; taken != 0 || free != 3 {
			t.Errorf("at the end %d slots are taken and %d are free", taken, free)
		}
	})
}

// A remote is a store on other machines: its calls take a while.
type remote struct{ *reference.Store }

func (s remote) View(ctx context.Context) (store.View, error) {
	v, err := s.Store.View(ctx)
	return remoteView{v}, err
}

type remoteView struct{ store.View }

const remoteTime = time.Second

func (remoteView) ReadCurrent() {}

func (v remoteView) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	return func(yield func(store.Series, error) bool) {
		time.Sleep(remoteTime)
		for s, err := range v.View.Select(ctx, sel) {
			if !yield(s, err) {
				return
			}
			time.Sleep(remoteTime)
		}
	}
}

func (v remoteView) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	time.Sleep(remoteTime)
	return v.View.Names(ctx, q)
}

func (v remoteView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	return remoteCursor{v.View.Read(ctx, s, o)}
}

type remoteCursor struct{ store.Cursor }

func (c remoteCursor) Next() (*store.Block, error) {
	time.Sleep(remoteTime)
	return c.Cursor.Next()
}

// TestQueriesThatWaitForTheStore: a query that waits for a store on other machines lends its slot, unless
// much of the memory is used. A query that waits for a slot begins at once, and computes meanwhile.
func TestQueriesThatWaitForTheStore(t *testing.T) {
	selects := func(s *Session) error {
		for _, err := range s.choose(store.Selection{Metric: "m", Range: model.AllTime}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	names := func(s *Session) error {
		_, _, err := s.NamesPage(store.NamesQuery{Kind: store.MetricNames})
		return err
	}
	reads := func(s *Session) error {
		for series, err := range s.view.Select(s.ctx, store.Selection{Metric: "m", Range: model.AllTime}) {
			if err != nil {
				return err
			}
			for c := s.Open(series, store.ReadOptions{Range: model.AllTime}); ; {
				if b, err := c.Next(); b == nil || err != nil {
					c.Close()
					return err
				}
			}
		}
		return nil
	}
	for name, tc := range map[string]struct {
		work func(*Session) error
		used bool          // half of the memory
		came time.Duration // when the other query comes
		want time.Duration // when it begins
	}{
		"a selection":         {work: selects, want: storeTime},
		"the next series":     {work: selects, came: remoteTime + storeTime/2, want: remoteTime + storeTime},
		"names":               {work: names, want: storeTime},
		"samples":             {work: reads, want: remoteTime + storeTime}, // the selection is not asked for by the session here
		"samples, later":      {work: reads, came: remoteTime + storeTime/2, want: remoteTime + storeTime},
		"much memory is used": {work: names, used: true, want: remoteTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				samples := reference.New(nil)
				defer samples.Close()
				config := DefaultConfig()
				config.MaxConcurrent = 1
				f := fixtureOver(t, remote{samples}, config)
				f.store = samples
				f.put("m", model.MustTags("h", "a"), sample{1, 1})
				if tc.used {
					if err := f.take(t.Context(), "", f.pool.max/2+1, 0); err != nil {
						t.Fatal(err)
					}
				}
				s := f.session(t, t.Context())
				began := time.Now()
				var ended sync.WaitGroup
				ended.Go(func() {
					if err := tc.work(s); err != nil {
						t.Error(err)
					}
					s.Close(nil)
				})
				time.Sleep(tc.came)
				other := f.session(t, t.Context())
				if got := time.Since(began); got != tc.want {
					t.Errorf("the other query begins after %v, want %v", got, tc.want)
				}
				other.Close(nil)
				ended.Wait()
				if taken, free, lent := f.slots.inUse(), f.slots.free, f.lent.Load(); taken != 0 || free != 1 || lent != 0 {
					t.Errorf("at the end %d slots are taken, %d are free, %d are lent", taken, free, lent)
				}
			})
		})
	}
}

// A matching is a remote store that compares each of some row keys with patterns, which takes a while.
type matching struct{ *reference.Store }

func (s matching) View(ctx context.Context) (store.View, error) {
	v, err := s.Store.View(ctx)
	return matchingView{remoteView{v}}, err
}

type matchingView struct{ remoteView }

const matchingKeys = 10

func (matchingView) Names(_ context.Context, q store.NamesQuery) ([]string, bool, error) {
	for range matchingKeys {
		time.Sleep(storeTime * 3 / 4)
		if err := q.Tick(lookEvery); err != nil {
			return nil, false, err
		}
	}
	return nil, false, nil
}

// TestQueriesWhoseStoreComputes: a query lends no slot while a store on other machines computes for it, and
// none while it waits for its next turn.
func TestQueriesWhoseStoreComputes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		samples := reference.New(nil)
		defer samples.Close()
		config := DefaultConfig()
		config.MaxConcurrent = 1
		f := fixtureOver(t, matching{samples}, config)
		s := f.session(t, t.Context())
		began := time.Now()
		var ended sync.WaitGroup
		ended.Go(func() {
			other := f.session(t, t.Context())
			if got, want := time.Since(began), 2*(storeTime*3/4); got != want { // the first Tick after turnTime
				t.Errorf("the other query begins after %v, want %v", got, want)
			}
			time.Sleep(time.Second)
			other.Close(nil)
		})
		if _, _, err := s.NamesPage(store.NamesQuery{Kind: store.MetricNames}); err != nil {
			t.Error(err)
		}
		if got, want := time.Since(began), time.Second+matchingKeys*(storeTime*3/4); got != want {
			t.Errorf("the names are there after %v, want %v: those queries computed one after the other", got, want)
		}
		s.Close(nil)
		ended.Wait()
		if taken, free, lent := f.slots.inUse(), f.slots.free, f.lent.Load(); taken != 0 || free != 1 || lent != 0 {
			t.Errorf("at the end %d slots are taken, %d are free, %d are lent", taken, free, lent)
		}
	})
}

// TestWaitersForMemoryKeepNoSlots: more queries than may lend their slots wait for memory that answers hold whose
// clients read slowly. They do not keep the slots from a query with little work of another sender. Of the sender with the most,
// the last ones are refused; the large query of another sender goes on waiting.
func TestWaitersForMemoryKeepNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxConcurrent = reserveShare*grantBytes, 3
		f := newFixture(t, config)
		most := f.pool.most()
		if err := f.take(t.Context(), "", most, most); err != nil { // answers
			t.Fatal(err)
		}
		began := time.Now()
		large := func(client string) (err error) {
			s, err := f.Begin(t.Context(), Request{Client: client})
			if err != nil {
				return err
			}
			err = s.Reserve(2 * grantBytes)
			s.Close(err)
			return err
		}
		senders := int(f.mostLent()) + config.MaxConcurrent
		var crowd, other sync.WaitGroup
		var refused atomic.Int64
		for range senders - 1 {
			crowd.Go(func() {
				err := large("127.0.0.1:1")
				var limit *store.LimitError
				if errors.As(err, &limit) && limit.Busy && strings.Contains(err.Error(), "wait for it keep all slots") {
					refused.Add(1)
				}
			})
			synctest.Wait()
		}
		other.Go(func() {
			if err := large("127.0.0.3:1"); err != nil {
				t.Errorf("a large query of another sender: %v", err)
			}
		})
		time.Sleep(4 * stuckTime)
		if n := refused.Load(); n > 0 {
			t.Errorf("%d are refused although no query waits for a slot", n)
		}
		for range 3 {
			asked := time.Now()
			small, err := f.Begin(t.Context(), Request{Client: "127.0.0.2:1"})
			if err != nil {
				t.Fatal(err)
			}
			if err := small.Reserve(smallGrant); err != nil || time.Since(asked) > 2*stuckTime {
				t.Errorf("a small query: %v after %s", err, time.Since(asked))
			}
			small.Close(nil)
		}
		synctest.Wait() // until the one that was refused has counted that
		if n := refused.Load(); n != 1 {
			t.Errorf("%d are refused, want the one that has a slot that three small queries need", n)
		}
		f.give("", most)
		other.Wait()
		crowd.Wait()
		if took := time.Since(began); took > 10*stuckTime {
			t.Errorf("it took %s", took)
		}
		if lent, paused := f.lent.Load(), f.paused.Load(); lent != 0 || paused != 0 {
			t.Errorf("at the end %d slots are lent, and %d goroutines wait for memory", lent, paused)
		}
		if free, taken := f.slots.free, f.slots.taken; free != config.MaxConcurrent || taken != 0 {
			t.Errorf("at the end %d slots are free and %d are taken", free, taken)
		}
	})
}

// TestSendersShareMemory: a sender whose answers and queries hold all that it can have, as when its
// clients read slowly, leaves memory for large queries of others, also when its own stand in line before
// them. A sender has no more than its part of that.
func TestSendersShareMemory(t *testing.T) {
	const slow, other, third = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory = 16 * 8 * grantBytes
		f := newFixture(t, config)
		part, most := f.pool.modest(), f.pool.most()
		if part != 16*grantBytes || most != 104*grantBytes {
			t.Fatalf("of %d bytes, %d are for each sender, and %d for all", config.TotalMemory, part, most)
		}
		begin := func(client string) *Session {
			s, err := f.Begin(t.Context(), Request{Client: client})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if err := f.take(t.Context(), slow, most, most); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 1)
		go func() {
			s := begin(slow)
			err := s.Reserve(2 * grantBytes)
			s.Close(err)
			waits <- err
		}()
		synctest.Wait()

		began := time.Now()
		query := begin(other)
		if err := query.Reserve(part / 2); err != nil {
			t.Errorf("half of the part: %v", err)
		}
		if err := f.takeFor(query, part/2, part/2); err != nil {
			t.Errorf("its answer: %v", err)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("they waited for %v", waited)
		}
		if err := f.take(t.Context(), other, grantBytes, grantBytes); !store.IsBusy(err) || time.Since(began) != config.MaxWait {
			t.Errorf("more than its part: %v after %v", err, time.Since(began))
		}
		if err := f.take(t.Context(), third, grantBytes, grantBytes); !store.IsBusy(err) {
			t.Errorf("beyond the part of all senders: %v", err)
		}
		query.Close(nil)
		f.give(other, part/2)
		if err := <-waits; !store.IsBusy(err) {
			t.Errorf("the query of the slow sender: %v", err)
		}
		f.give(slow, most)
		if len(f.pool.senders) != 0 || f.pool.inUse() != 0 {
			t.Errorf("at the end, senders have %v, and %d bytes are in use", f.pool.senders, f.pool.inUse())
		}
	})
}

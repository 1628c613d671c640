package query

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/store"
	"varve/internal/units"
)

func (f *fixture) readText(in io.Reader) (*Text, error) { return f.readTextOf("192.0.2.1:1", in) }

func (f *fixture) readTextOf(client string, in io.Reader) (*Text, error) {
	return f.ReadText(f.Context(), client, in, TextLimit{Key: "bytes of a query", Max: 1 << 20, What: "bytes of a query", Announced: -1})
}

func spaces(n int) io.Reader { return strings.NewReader(strings.Repeat(" ", n)) }

func TestTextsAreLimited(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	for _, n := range []int{0, 1, 511, 512, 513, smallText, smallText + 1, 1 << 20} {
		text, err := f.readText(spaces(n))
		if err != nil || len(text.Bytes()) != n {
			t.Fatalf("%d bytes: %v", n, err)
		}
		text.Close()
	}
	var limit *store.LimitError
	if _, err := f.readText(spaces(1<<20 + 1)); !errors.As(err, &limit) || limit.Limit != "bytes of a query" || limit.Need != 1<<20+1 {
		t.Errorf("one byte too many: %v", err)
	}
	var input *store.InputError
	if _, err := f.readText(io.MultiReader(spaces(100_000), failing{})); !errors.As(err, &input) {
		t.Errorf("a broken body: %v", err)
	}
	if n := f.pool.inUse(); n != 0 {
		t.Errorf("%d bytes are held at rest", n)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken off") }

// Requests take memory of queries from their first bytes to their end. Where large
// ones have taken what they may have, further ones are overload, and small ones are
// served.
func TestTextsTakeMemory(t *testing.T) {
	config := DefaultConfig()
	config.TotalMemory = 32 * units.MiB
	f := newFixture(t, config)
	var held []*Text
	refused := func(err error) {
		t.Helper()
		var limit *store.LimitError
		if !errors.As(err, &limit) || !limit.Busy || limit.Limit != "query.total_memory" {
			t.Errorf("the next text: %v", err)
		}
	}
	for range 4 {
		text, err := f.readText(spaces(1<<20 - 1))
		if len(held) == 3 {
			refused(err)
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, text)
	}
	if n := f.pool.inUse(); n != 3<<20 {
		t.Errorf("three texts of 1 MiB hold %d bytes", n)
	}
	refused(held[0].Parse(nil))
	for _, text := range held[1:] {
		text.Close()
	}
	if err := held[0].Parse(func(text []byte) error { return nil }); err != nil {
		t.Errorf("a text that has all memory of its sender: %v", err)
	}
	if n := f.pool.inUse(); n != f.texts.share() {
		t.Errorf("while it is queried by, a text of 1 MiB holds %d bytes", n)
	}
	refused(func() error { _, err := f.readText(spaces(smallText + 1)); return err }())
	small, err := f.readText(spaces(smallText - 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := small.Parse(func([]byte) error { return nil }); err != nil {
		t.Errorf("a small text: %v", err)
	}
	for range 3 { // closing again gives nothing back
		small.Close()
		held[0].Close()
	}
	if n := f.pool.inUse(); n != 0 {
		t.Errorf("%d bytes are held at rest", n)
	}
	if n := counted(t, f.texts.pool.metrics.textRefused); n != 3 {
		t.Errorf("%v requests are counted as refused", n)
	}
}

// While large texts are parsed and others wait, small ones have slots of their own,
// and so has the operator. The wait has an end.
func TestLargeTextsDoNotHoldUpSmallOnes(t *testing.T) {
	config := DefaultConfig()
	config.MaxWait = 20 * time.Millisecond
	f := newFixture(t, config)
	end, done := make(chan struct{}), make(chan error, 100)
	n := runtime.GOMAXPROCS(0)
	begun := make(chan struct{})
	for range n {
		go func() {
			done <- f.Parse(t.Context(), "", LargeTexts, func() error { begun <- struct{}{}; <-end; return nil })
		}()
	}
	for range n {
		<-begun
	}
	for _, lane := range []Lane{SmallTexts, OperatorTexts} {
		if err := f.Parse(t.Context(), "", lane, func() error { return nil }); err != nil {
			t.Errorf("%s: %v", laneNames[lane], err)
		}
	}
	var limit *store.LimitError
	if err := f.Parse(t.Context(), "", LargeTexts, nil); !errors.As(err, &limit) || !limit.Busy || limit.Limit != "query.max_wait" {
		t.Errorf("a large text that nobody makes room for: %v", err)
	}
	f.SetLimits(DefaultConfig())
	ctx, cancel := context.WithCancel(t.Context())
	for range waitingTexts[LargeTexts] {
		go f.Parse(ctx, "", LargeTexts, func() error { return nil })
	}
	for f.texts.lanes[LargeTexts].waiting.Load() < waitingTexts[LargeTexts] {
		time.Sleep(time.Millisecond)
	}
	if err := f.Parse(ctx, "", LargeTexts, nil); !errors.As(err, &limit) || !limit.Busy || limit.Max != waitingTexts[LargeTexts] {
		t.Errorf("a large text behind as many as may wait: %v", err)
	}
	cancel()
	close(end)
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for f.texts.lanes[LargeTexts].waiting.Load() > 0 || f.texts.lanes[LargeTexts].inUse() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// A text that gets no memory takes none from the texts that come after it.
func TestTextWithoutMemory(t *testing.T) {
	config := DefaultConfig()
	config.TotalMemory = 32 * units.MiB
	f := newFixture(t, config)
	text, err := f.readTextOf("", spaces(smallText+1)) // of the sender of the queries
	if err != nil {
		t.Fatal(err)
	}
	held := f.texts.inLanes()
	ctx, cancel := context.WithCancel(t.Context())
	text.ctx = ctx
	cancel()
	queries := f.pool.most() - f.pool.inUse()
	if err := f.pool.acquire(t.Context(), want{bytes: queries, held: queries}); err != nil {
		t.Fatal(err)
	}
	if err := text.Parse(nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a text beside queries that have all memory: %v", err)
	}
	if now := f.texts.inLanes(); now != held {
		t.Errorf("texts hold %v, held %v before", now, held)
	}
	text.Close()
	f.pool.release(netip.Prefix{}, queries)
	f.restTexts(t)
}

func (f *fixture) restTexts(t *testing.T) {
	t.Helper()
	if n, texts := f.pool.inUse(), f.texts.inLanes(); n != 0 || texts != ([lanes]int64{}) {
		t.Errorf("%d bytes are held at rest, %v by texts", n, texts)
	}
}

func (a *texts) inLanes() (held [lanes]int64) {
	for lane := range a.lanes {
		held[lane] = a.lanes[lane].memory.InUse()
	}
	return held
}

// Texts of one address, however many, leave memory for texts of others, in both lanes.
func TestTextsOfOneAddressLeaveMemory(t *testing.T) {
	config := DefaultConfig()
	config.TotalMemory = 32 * units.MiB
	f := newFixture(t, config)
	for _, size := range []int{smallText - 1, 1<<20 - 1} {
		var held []*Text
		for {
			text, err := f.readText(spaces(size))
			if store.IsBusy(err) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, text)
		}
		for _, client := range []string{"192.0.2.2:1", "192.0.2.3:1"} {
			text, err := f.readTextOf(client, spaces(min(size, smallText/2))) // parsed, it takes half of what is left
			if err == nil {
				err = text.Parse(func([]byte) error { return nil })
				held = append(held, text)
			}
			if err != nil {
				t.Errorf("beside %d texts of %d bytes: %v", len(held), size, err)
			}
		}
		for _, text := range held {
			text.Close()
		}
	}
	f.restTexts(t)
}

// Requests of one address that wait to be parsed, however many, hold up one of another address by
// one request, in each lane. If as many wait as may, one of them makes room for it.
func TestParsingTakesTurns(t *testing.T) {
	for lane := range lanes {
		t.Run(laneNames[lane], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, DefaultConfig())
				f.takesTurns(t, f.texts.lanes[lane].free, int(waitingTexts[lane]), func(client string, do func()) error {
					return f.Parse(t.Context(), client, lane, func() error { do(); return nil })
				})
			})
		})
	}
}

// So do deletes.
func TestDeletesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, DefaultConfig())
		f.takesTurns(t, f.deletes.free, f.config.Load().MaxQueued, func(client string, do func()) error {
			_, err := f.Delete(t.Context(), client, func(context.Context) error { do(); return nil })
			return err
		})
	})
}

// takesTurns fills slots and their line with requests of one address, and tries one of another.
func (f *fixture) takesTurns(t *testing.T, slots, line int, try func(client string, do func()) error) {
	t.Helper()
	var all sync.WaitGroup
	var refused, did atomic.Int64
	next := make(chan struct{})
	for range slots + line {
		all.Go(func() {
			if err := try("192.0.2.1:1", func() { <-next; did.Add(1) }); store.IsBusy(err) {
				refused.Add(1)
			}
		})
	}
	synctest.Wait()
	after := int64(-1)
	all.Go(func() {
		if err := try("192.0.2.2:1", func() { after = did.Load() }); err != nil {
			t.Errorf("a request of another address: %v", err)
		}
	})
	synctest.Wait()
	for range 2 {
		next <- struct{}{}
		synctest.Wait()
	}
	if after < 0 || after > 2 {
		t.Errorf("it was served after %d of the crowd", after)
	}
	close(next)
	all.Wait()
	if n := refused.Load(); n > 1 {
		t.Errorf("%d requests of the crowd were refused", n)
	}
}

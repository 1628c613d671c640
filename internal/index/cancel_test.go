package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// Once its context has ended, a selection by a costly pattern ends before the next
// value, and caches nothing of what it has found.
func TestPatternsLookAtTheContext(t *testing.T) {
	x := New()
	for i := range model.SeriesNumber(3 * scanSlice) {
		x.Add(i+1, model.Series{Metric: "m", Tags: model.MustTags("host", strings.Repeat("a", int(i%100))+string(rune('0'+i))), Type: model.TypeLong})
	}
	costly, err := model.NewPattern("(?:a?b?){900}c")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Select(ctx, "m", []model.Matcher{{Tag: "host", Patterns: []*model.Pattern{costly}}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Select: %v", err)
	}
	if n := len(x.scans.scans); n != 0 {
		t.Errorf("%d results of a cancelled Select were kept", n)
	}
	if _, _, err := x.Names(ctx, store.NamesQuery{Kind: store.TagValues, Metric: "m", Tag: "host", Pattern: costly}); !errors.Is(err, context.Canceled) {
		t.Errorf("Names: %v", err)
	}
}

// A selection and a list report each match of a pattern as work, and end when tick
// returns an error.
func TestPatternsTellOfTheirWork(t *testing.T) {
	x := New()
	const values = 3 * scanSlice
	for i := range model.SeriesNumber(values) {
		x.Add(i+1, model.Series{Metric: "m", Tags: model.MustTags("host", fmt.Sprint("a", i)), Type: model.TypeLong})
	}
	p, err := model.NewPattern("[a-z]+(1|2)+")
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	for name, do := range map[string]func(tick func(int) error) error{
		"select": func(tick func(int) error) error {
			_, err := x.Select(t.Context(), "m", []model.Matcher{{Tag: "host", Patterns: []*model.Pattern{p}}}, tick)
			return err
		},
		"list values": func(tick func(int) error) error {
			_, _, err := x.Names(t.Context(), store.NamesQuery{Kind: store.TagValues, Tag: "host", Pattern: p, Tick: tick})
			return err
		},
		"list values of all tags": func(tick func(int) error) error {
			_, _, err := x.Names(t.Context(), store.NamesQuery{Kind: store.TagValues, Pattern: p, Tick: tick})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := do(func(int) error {
				if calls++; calls == 1000 {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) || calls != 1000 {
				t.Errorf("it ends with %v after %d calls", err, calls)
			}
			work := 0
			if err := do(func(n int) error { work += n; return nil }); err != nil || work < 8*values {
				t.Errorf("%v after work of %d", err, work)
			}
		})
	}
}

// A hookedContext calls between whenever its state is checked.
type hookedContext struct {
	context.Context
	between func()
}

func (c hookedContext) Err() error {
	c.between()
	return c.Context.Err()
}

// alternation is a pattern of many alternatives that each need the expression. runs
// counts how often it runs per text.
func alternation(t *testing.T, runs map[string]int) *model.Pattern {
	t.Helper()
	var alternatives []string
	for _, x := range "bcdefgh" {
		for _, y := range "ijklmnop" {
			alternatives = append(alternatives, "[^"+string(x)+string(y)+"]*[37]")
		}
	}
	p, err := model.NewPattern(strings.Join(alternatives, "|"))
	if err != nil {
		t.Fatal(err)
	}
	p.Plan(func(p *model.Pattern) any {
		pl := newPlan(p)
		pl.full = func(text string) bool { runs[text]++; return p.MatchString(text) }
		return pl
	})
	return p
}

// However many alternatives a pattern has, the expression runs once per text and
// without the lock: neither writers nor readers wait.
func TestPatternsAreMatchedOnceWithoutTheLock(t *testing.T) {
	for _, count := range []int{100, directMax + 100} { // matched directly, and by a scan
		x := New()
		for i, s := range users(count) {
			x.Add(model.SeriesNumber(i), s)
		}
		looks, locked := 0, 0
		ctx := hookedContext{context.Background(), func() {
			looks++
			if !x.mu.TryLock() {
				locked++
				return
			}
			x.mu.Unlock()
		}}
		check := func(what string, found int, runs map[string]int) {
			t.Helper()
			if want := count / 5; found < want-1 || found > want+1 {
				t.Errorf("%s of %d: %d found, want %d", what, count, found, want)
			}
			if len(runs) != count || looks < count {
				t.Errorf("%s of %d: the expression saw %d texts, the context was asked %d times", what, count, len(runs), looks)
			}
			for text, n := range runs {
				if n > 1 {
					t.Fatalf("%s of %d: the expression was run %d times for %s", what, count, n, text)
				}
			}
			if locked > 0 {
				t.Errorf("%s of %d: the index was locked at %d of %d looks", what, count, locked, looks)
			}
			looks, locked = 0, 0
		}
		runs := map[string]int{}
		ids, err := x.Select(ctx, "requests", []model.Matcher{{Tag: "user", Patterns: []*model.Pattern{alternation(t, runs)}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		check("Select", int(ids.GetCardinality()), runs)
		runs = map[string]int{}
		names, _, err := x.Names(ctx, store.NamesQuery{Kind: store.TagValues, Metric: "requests", Tag: "user", Pattern: alternation(t, runs)})
		if err != nil {
			t.Fatal(err)
		}
		check("Names", len(names), runs)
	}
}

// Values are added and removed, and their numbers reused, while a pattern is matched.
// This selection and the next one find every value that existed all the time, and none
// that does not match.
func TestSelectWhileValuesChange(t *testing.T) {
	for _, count := range []int{1000, 2*directMax + 1000} {
		for _, changes := range []int{1, 100, changesMax + 1} {
			x := New()
			all := users(count)
			for i, s := range all {
				x.Add(model.SeriesNumber(i), s)
			}
			matcher := likeUser(t, ".*[37]")
			matches := func(s model.Series) bool {
				user, _ := s.Tags.Get("user")
				return matcher[0].MatchesValue(user)
			}
			// Ten of twenty values are removed, and others reuse their numbers.
			goes := func(i int) bool { return i/10%2 == 0 }
			others := make(map[uint32]model.Series)
			looks, changed := 0, 0
			ctx := hookedContext{context.Background(), func() {
				if looks++; looks%97 != 0 {
					return
				}
				for range changes {
					i := changed/10*20 + changed%10
					if i >= count {
						return
					}
					x.Remove(model.SeriesNumber(i), all[i])
					other := model.Series{Metric: "requests", Type: model.TypeLong, Tags: model.MustTags("user", fmt.Sprintf("other-%06d-%d", i, (i+1)%10))}
					x.Add(model.SeriesNumber(count+i), other)
					others[uint32(count+i)] = other
					changed++
				}
			}}
			for round := range 2 {
				got, err := x.Select(ctx, "requests", matcher, nil)
				if err != nil {
					t.Fatal(err)
				}
				if round == 1 {
					got, err = x.Select(context.Background(), "requests", matcher, nil)
					if err != nil {
						t.Fatal(err)
					}
				}
				missed, wrong := 0, 0
				for i, s := range all {
					switch is := got.Contains(uint32(i)); {
					case is && !matches(s):
						wrong++
					case !is && matches(s) && !goes(i):
						missed++
					}
				}
				for id, s := range others {
					switch is := got.Contains(id); {
					case is && !matches(s):
						wrong++
					case !is && matches(s) && round == 1:
						missed++
					}
				}
				if missed+wrong > 0 || changed == 0 {
					t.Errorf("%d values, %d changes at a time, round %d: %d missed, %d wrong, %d changes", count, changes, round, missed, wrong, changed)
				}
			}
		}
	}
}

package cassandra

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
)

var everyFailure = flag.Bool("cassandra.failures", false, "let every statement meet every failure, some ten minutes; else each third statement one of them")

// failures are the failures of statements. refuses: Cassandra will never accept the sample.
var failures = []struct {
	name    string
	with    *cqltest.Trouble
	refuses bool
}{
	{"unavailable", cqltest.Unavailable, false},
	{"write timeout", cqltest.WriteTimeout, false},
	{"key too long", cqltest.KeyTooLong, true},
	{"tombstones", cqltest.Tombstones, false},
	{"silent", cqltest.Silent, false},
	{"overloaded", cqltest.Overloaded, false},
	{"applied timeout", cqltest.AppliedTimeout, false},
	{"mutation too large", cqltest.MutationTooLarge, true},
	{"read timeout", cqltest.ReadTimeout, false},
	{"late", cqltest.Late(300 * time.Millisecond), false},
	{"server error", cqltest.ServerError, false},
	{"value guardrail", cqltest.ValueGuardrail, true},
	{"other guardrail", cqltest.OtherGuardrail, false},
	{"write failure", cqltest.WriteFailure, false},
	{"rights", cqltest.Unauthorized, false},
	{"hang up", cqltest.HangUp, false},
}

// A failingStore is a store over a node that fails on command, with a second store that reads
// what is in Cassandra.
type failingStore struct {
	t      *testing.T
	node   *cqltest.FailingNode
	store  *Store
	beside *Store
}

func newFailingStore(t *testing.T, change ...func(*settings)) *failingStore {
	f := &failingStore{t: t, node: cqltest.NewFailingNode(t, originals.Cassandra(t))}
	c := clustersConfig(t)
	dropAfter(t, c)
	f.beside = ready(t, openStore(t, c, Options{Node: "beside"}))
	c.Hosts = []string{f.node.Address}
	c.Spool.Linger = 20 * time.Millisecond
	c.Attempts, c.WriteTimeout, c.ReadTimeout, c.StallAfter, c.OutageGrace = 2, 2*time.Second, 2*time.Second, 500*time.Millisecond, time.Second
	for _, f := range change {
		f(&c)
	}
	f.store = ready(t, openStore(t, c, Options{Node: "failing"}))
	return f
}

// TestFailures: a statement of each kind fails in each way, while samples are
// written, queried and deleted. That costs the samples and requests that need the
// statement. All others go on meanwhile, and afterwards everything that was
// acknowledged is there.
func TestFailures(t *testing.T) {
	f := newFailingStore(t)
	kinds := f.kinds()
	for i, k := range kinds {
		for n := range failures {
			story := fmt.Sprintf("%d-%d", i, n)
			if !*everyFailure && (n != i%len(failures) || i%3 != 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", k.name, failures[n].name), func(t *testing.T) {
				f.t = t
				f.story(story, k, n)
			})
		}
	}
}

// A statementKind is one statement as it is sent.
type statementKind struct {
	name, text string
	ofMetric   bool // it has the name of a metric among its values, or in one
}

// kinds lists the statements that a story sends.
func (f *failingStore) kinds() []statementKind {
	var mu sync.Mutex
	found := map[string]bool{}
	f.node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range r.Statements {
			if strings.Contains(b.Text, f.beside.cfg.Keyspace) {
				found[b.Text] = found[b.Text] || bytes.Contains(bytes.Join(b.Values, nil), []byte(".first"))
			}
		}
		return nil
	})
	f.prepare("first")
	f.during("first", statementKind{})
	f.node.Mend()
	f.after("first", false)
	var all []statementKind
	for text, ofMetric := range found {
		words := strings.Fields(text)
		name := words[0]
		for i, w := range words[:len(words)-1] {
			if slices.Contains([]string{"FROM", "INTO", "UPDATE"}, w) {
				_, table, _ := strings.Cut(words[i+1], ".")
				name += " " + table
			}
		}
		all = append(all, statementKind{name, text, ofMetric})
	}
	slices.SortFunc(all, func(a, b statementKind) int { return strings.Compare(a.text, b.text) })
	if len(all) < 20 {
		f.t.Fatalf("only %d kinds of statements: %v", len(all), all)
	}
	return all
}

func (f *failingStore) story(name string, k statementKind, failure int) {
	with := failures[failure]
	defer f.node.Mend()
	f.prepare(name)
	f.node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		for _, b := range r.Statements {
			if b.Text == k.text && (!k.ofMetric || bytes.Contains(bytes.Join(b.Values, nil), []byte("bad."+name))) {
				return with.with
			}
		}
		return nil
	})
	f.during(name, k)
	f.node.Mend()
	f.after(name, with.refuses)
	if f.t.Failed() {
		f.t.Logf("%s: %s", with.name, k.text)
	}
}

const (
	samplesOfAStory = 5
	inAnotherRow    = 400_000 // times 10 s
)

func story(part int) map[int64]int64 {
	samples := map[int64]int64{}
	for i := range int64(samplesOfAStory) {
		samples[1501672887988+int64(part)*10_000+i*1000] = i
	}
	return samples
}

// prepare writes what will be deleted.
func (f *failingStore) prepare(name string) {
	f.t.Helper()
	for _, metric := range []string{"good.", "bad."} {
		put(f.t, f.store, metric+name, "gone", story(0))
		put(f.t, f.store, metric+name, "kept", story(0))
	}
	if err := f.flush(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *failingStore) flush() error {
	ctx, cancel := context.WithTimeout(f.t.Context(), cqltest.Patience)
	defer cancel()
	return f.store.Flush(ctx)
}

// during does everything while statements fail. What has nothing to do with the
// bad metric has to be right, and in time.
func (f *failingStore) during(name string, k statementKind) {
	f.t.Helper()
	for _, metric := range []string{"good.", "bad."} {
		put(f.t, f.store, metric+name, "kept", story(1))
		put(f.t, f.store, metric+name, "new", story(1))
		put(f.t, f.store, metric+name, "later", story(inAnotherRow))
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() {
		err := f.store.Delete(ctx, store.Deletion{Metric: "bad." + name, Matchers: []model.Matcher{{Tag: "host", Values: []string{"gone"}}}, Range: model.AllTime})
		f.expected(ctx, "delete", err)
	})
	tasks.Go(func() {
		_, err := ask(ctx, f.store, "bad."+name, all())
		f.expected(ctx, "query the bad metric", err)
		_, err = ask(ctx, f.store, "bad."+name, all(), model.Matcher{Tag: "host", Values: []string{"kept"}})
		f.expected(ctx, "query the bad metric by a tag", err)
		v, err := f.store.View(ctx)
		if err != nil {
			f.t.Error(err)
			return
		}
		defer v.Close()
		_, _, err = v.Names(ctx, store.NamesQuery{Kind: store.TagValues, Metric: "bad." + name, Tag: "host"})
		f.expected(ctx, "list names", err)
	})
	tasks.Go(func() {
		f.expected(ctx, "set metadata", f.store.Set(ctx, "service", "key", "bad."+name, "value"))
		_, err := f.store.Get(ctx, "service", "key", "bad."+name)
		if !errors.Is(err, store.ErrNotFound) {
			f.expected(ctx, "get metadata", err)
		}
	})
	if k.text != "" && !k.ofMetric { // everything may depend on it
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		f.store.Flush(short)
		return
	}
	f.right(f.store, "good."+name, "gone", "kept", "later", "new")
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if got := f.hosts(f.beside, "good."+name); got == "gone 5, kept 10, later 5, new 5" {
			break
		} else if time.Now().After(end) {
			f.t.Fatalf("the good metric is not drained: Cassandra has %s; %v", got, f.store.Degraded())
		}
	}
	if err := f.store.Healthy(); err != nil {
		f.t.Error(err)
	}
}

// expected: what a request that needs a failing statement may answer.
func (f *failingStore) expected(ctx context.Context, what string, err error) {
	var unavailable *store.UnavailableError
	var refused *cql.RefusedError
	var tombstones *cql.TombstoneError
	if err != nil && !errors.As(err, &unavailable) && !errors.As(err, &refused) && !errors.As(err, &tombstones) {
		f.t.Errorf("%s: %v", what, err)
	}
	if ctx.Err() != nil {
		f.t.Errorf("%s takes 20 s and longer", what)
	}
}

// hosts tells how many samples a store has of each host of a metric.
func (f *failingStore) hosts(s *Store, metric string) string {
	f.t.Helper()
	var parts []string
	for _, line := range answer(f.t, s, metric, all()) {
		host, samples, _ := strings.Cut(line, ": ")
		parts = append(parts, fmt.Sprintf("%s %d", host, len(strings.Fields(samples))))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func (f *failingStore) right(s *Store, metric string, hosts ...string) {
	f.t.Helper()
	var want []string
	for _, h := range hosts {
		n := samplesOfAStory
		if h == "kept" {
			n *= 2
		}
		want = append(want, fmt.Sprintf("%s %d", h, n))
	}
	if got := f.hosts(s, metric); got != strings.Join(want, ", ") {
		f.t.Errorf("%s: %s, want %s", metric, got, strings.Join(want, ", "))
	}
}

// after sees that everything is there once nothing fails any more, and that what
// is deleted goes.
func (f *failingStore) after(name string, refuses bool) {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); !f.store.Status().Written.State.Connected; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatal(f.store.Degraded())
		}
	}
	if err := f.flush(); err != nil {
		f.t.Fatal(err)
	}
	for _, metric := range []string{"good." + name, "bad." + name} {
		if err := f.store.Delete(f.t.Context(), store.Deletion{Metric: metric, Matchers: []model.Matcher{{Tag: "host", Values: []string{"gone"}}}, Range: model.AllTime}); err != nil {
			f.t.Fatal(err)
		}
		for _, s := range []*Store{f.store, f.beside} {
			if refused := f.store.Status().Refused; refuses && len(refused) > 0 && metric == "bad."+name {
				continue // it cost these samples
			}
			f.right(s, metric, "kept", "later", "new")
		}
	}
	if !refuses && len(f.store.Status().Refused) > 0 && f.t.Name() != "" {
		for _, r := range f.store.Status().Refused {
			if strings.Contains(r.Last, name) {
				f.t.Errorf("dropped: %+v", r)
			}
		}
	}
}

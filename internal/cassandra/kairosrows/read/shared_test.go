package read

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/store"
)

// TestMemoryIsGivenBack: a request holds the memory of the row keys that it keeps, not of those that
// an abandoned scan or another matcher has found.
func TestMemoryIsGivenBack(t *testing.T) {
	var keys []rowkey.Key
	for i := range 2000 {
		keys = append(keys, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("a", fmt.Sprintf("%03d", i/20), "b", fmt.Sprintf("%02d", i%20))})
	}
	b := newReadBench(t, readConfig(), nil)
	scanned, indexed := b.Name("scanned"), b.Name("indexed")
	b.FillKairos(scanned, keyspacetest.CityTime(0), keys)
	b.FillKeys(indexed, keyspacetest.CityTime(0), keys)
	for metric, test := range map[string]struct {
		matchers []model.Matcher
		want     int
	}{
		scanned: {[]model.Matcher{keyspacetest.OneOf("b", "00")}, 100},
		indexed: {[]model.Matcher{keyspacetest.OneOf("a", "000", "001", "002", "003", "004", "005", "006", "007"), keyspacetest.OneOf("b", "00", "01", "02", "03")}, 8 * 4},
	} {
		look := b.reader.Look()
		var held atomic.Int64
		found, err := look.Lookup(t.Context(), store.Selection{Metric: metric, Range: model.AllTime, Matchers: test.matchers,
			Hold: func(bytes int64) error { held.Add(bytes); return nil }})
		if err != nil || len(found) != test.want {
			t.Fatalf("%s: %d series, %v", metric, len(found), err)
		}
		kept := int64(0)
		for _, p := range look.partitions {
			if p.full.loaded.Load() {
				kept += p.full.value.bytes
			}
			for _, list := range p.postings {
				kept += list.bytes
			}
		}
		if kept == 0 || held.Load() != kept+rowTimeBytes {
			t.Errorf("%s: %d bytes are held of %d that are kept", metric, held.Load(), kept)
		}
	}
}

// TestMemoryOfSharedReads: a request that lacks memory fails by itself, not those that read the
// same partition with it, and whoever reads takes memory for each of them in its own name.
func TestMemoryOfSharedReads(t *testing.T) {
	const n = 1000
	b := newReadBench(t, readConfig(), nil)
	b.reader.widest = 16 << 10
	metric := b.Name("shared")
	b.FillKairos(metric, keyspacetest.CityTime(0), wideKeys(n))
	b.reader.givenUp.add(kindOf(metric, []literal{{name: "service"}}), time.Now())
	partition := flightKey{Partition: rowkey.Partition{Metric: metric, TimeMS: keyspacetest.CityTime(0)}}
	full := &store.LimitError{Limit: "query.max_memory"}
	for range 12 { // who of them reads is up to chance
		under, end := make(chan struct{}), make(chan struct{})
		var tasks sync.WaitGroup
		tasks.Go(func() {
			b.reader.flights.take(t.Context(), partition, new(harvest), func([]*harvest) (*keyList, error) {
				close(under)
				<-end
				return nil, errMatchesOnly
			})
		})
		<-under
		ask := func(hold func(int64) error) error {
			found, err := b.reader.Look().Lookup(t.Context(), store.Selection{Metric: metric, Range: model.AllTime,
				Matchers: []model.Matcher{keyspacetest.OneOf("service", "gateway")}, Hold: hold})
			if err == nil && len(found) != n {
				t.Errorf("%d series", len(found))
			}
			return err
		}
		tasks.Go(func() {
			left := int64(n / 2 * keyOverhead)
			var mu sync.Mutex
			err := ask(func(bytes int64) error {
				mu.Lock()
				defer mu.Unlock()
				if left -= bytes; left < 0 {
					return full
				}
				return nil
			})
			if !errors.Is(err, full) {
				t.Errorf("with little memory: %v", err)
			}
		})
		var held atomic.Int64
		tasks.Go(func() {
			if err := ask(func(bytes int64) error { held.Add(bytes); return nil }); err != nil {
				t.Errorf("with enough memory: %v", err)
			}
		})
		for waiting := 0; waiting < 2; {
			b.reader.flights.mu.Lock()
			if next := b.reader.flights.next[partition]; next != nil {
				waiting = len(next.harvests)
			}
			b.reader.flights.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		close(end)
		tasks.Wait()
		if held.Load() < n*keyOverhead {
			t.Errorf("%d bytes are held", held.Load())
		}
	}
}

// TestMemoryOfThoseWhoLeft: the read of a partition takes no memory for a request that has ended:
// nobody would give it back.
func TestMemoryOfThoseWhoLeft(t *testing.T) {
	l := (&Reader{}).Look()
	l.holdBy(func(int64) error { t.Error("memory is taken for a request that has ended"); return nil })
	p := &partition{}
	key, under := flightKey{p.key, l.level}, &flight{landed: make(chan struct{})}
	flights := &l.reader.flights
	flights.next, flights.flying = map[flightKey]*flight{}, map[flightKey]*flight{key: under}
	own, _ := flights.join(key, new(harvest))
	h := newHarvest(wish{limit: math.MaxInt, hold: l.hold})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := l.readShared(ctx, p, h)
		left <- err
	}()
	for joined := false; !joined; time.Sleep(time.Millisecond) {
		flights.mu.Lock()
		joined = len(own.harvests) == 2
		flights.mu.Unlock()
	}
	all := flights.begin(key, own)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, h := range all {
		if err := h.see(rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("a", "b")}, true); err != nil {
			t.Error(err)
		}
	}
}

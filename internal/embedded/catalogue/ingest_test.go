package catalogue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/record"
)

// definitions returns n series of a metric, the last first.
func definitions(metric string, from model.SeriesNumber, n int) (all []record.Definition) {
	for i := range n {
		s := model.Series{Metric: metric, Type: model.TypeLong, Tags: model.MustTags("host", fmt.Sprint(i))}
		all = append(all, record.Definition{ID: from + model.SeriesNumber(i), Key: string(s.AppendKey(nil))})
	}
	slices.Reverse(all)
	return all
}

// metrics counts the series of a catalogue by metric.
func (c *Catalogue) metrics(t *testing.T) map[string]int {
	t.Helper()
	n := map[string]int{}
	if err := c.Series(func(_ record.Definition, s model.Series) { n[s.Metric]++ }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Many series at once are there after a power cut, replace those that had their numbers, and
// do not mind what another power cut has left of such a table.
func TestManySeries(t *testing.T) {
	const many = 2 * manySeries
	fs := crashfs.New()
	c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range [][]record.Definition{definitions("few", 0, 10), definitions("old", 10, many), definitions("new", 100, many)} {
		if err := c.Commit(Change{Define: d, Meta: func(*Meta) {}}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"few": 10, "old": 90, "new": many}
	if got := c.metrics(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := c.writeTable("catalogue/"+NewSeries, definitions("cut", 0, many)); err != nil {
		t.Fatal(err)
	}
	cut := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := cut.Stat("catalogue/" + NewSeries); err != nil {
		t.Fatalf("the test leaves no table behind: %v", err)
	}
	for _, fs := range []vfs.FS{cut, fs.CrashClone(vfs.CrashCloneCfg{})} {
		c, err := Open(fs, "catalogue", Options{Logger: Quiet{}})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.metrics(t); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("after a power cut: %v, want %v", got, want)
		}
		if _, err := fs.Stat("catalogue/" + NewSeries); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after a start the table that was left: %v", err)
		}
		if err := c.Commit(Change{Define: definitions("next", 10_000, many), Forget: []model.SeriesNumber{0}}); err != nil {
			t.Fatal(err)
		}
		if got := c.metrics(t); got["next"] != many || got["few"] != 9 {
			t.Errorf("later: %v", got)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Of many series at once compactions write nothing again, however many there are.
func TestManySeriesAreWrittenOnce(t *testing.T) {
	c, err := Open(vfs.NewMem(), "catalogue", Options{Logger: Quiet{}, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var size int64
	for n := range 20 {
		d := definitions(fmt.Sprintf("metric%d", n), model.SeriesNumber(n*manySeries), manySeries)
		for _, one := range d {
			size += int64(len(one.Key))
		}
		if err := c.Commit(Change{Define: d, AddFiles: map[uint64]File{uint64(n): {}}, Meta: func(*Meta) {}}); err != nil {
			t.Fatal(err)
		}
		if err := c.db.Flush(); err != nil { // of the rows that are written with them
			t.Fatal(err)
		}
	}
	if err := c.db.Compact(t.Context(), []byte{TableFile}, []byte{tableMeta + 1}, false); err != nil {
		t.Fatal(err)
	}
	var written uint64
	for _, level := range c.db.Metrics().Levels {
		written += level.TableBytesFlushed + level.TableBytesCompacted
	}
	if written > uint64(size)/8 {
		t.Errorf("%d bytes of keys were added, and %d bytes written by flushes and compactions", size, written)
	}
}

// Of several definitions of a number the last counts, as in batches.
func TestLastDefinitionOfEach(t *testing.T) {
	d := func(id model.SeriesNumber, key string) record.Definition { return record.Definition{ID: id, Key: key} }
	all := []record.Definition{d(2, "a"), d(1, "b"), d(2, "c"), d(1, "d"), d(3, "e"), d(2, "f")}
	if got, want := lastOfEach(all), []record.Definition{d(1, "d"), d(2, "f"), d(3, "e")}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if all[0] != d(2, "a") {
		t.Error("the callers' list was changed")
	}
}

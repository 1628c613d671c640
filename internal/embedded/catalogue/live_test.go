package catalogue

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
)

// What a crash leaves at any moment while many series are added is in tables that are said
// to be in use, also where rows that are not in tables yet are among theirs.
func TestLiveTablesWhileManySeriesAreAdded(t *testing.T) {
	const many = 2 * manySeries
	mem := crashfs.New()
	var mu sync.Mutex
	var on bool
	var crashed []*crashfs.FS
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if on && op.Kind != errorfs.OpFileWrite && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			crashed = append(crashed, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}))
		}
		return nil
	}))
	c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(Change{Define: definitions("old", 0, many)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(Change{Forget: []model.SeriesNumber{7}}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	on = true
	mu.Unlock()
	if err := c.Commit(Change{Define: definitions("new", 0, many)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(fs vfs.FS) (map[string]int, map[string]bool) {
		t.Helper()
		c, err := OpenToRead(fs, "catalogue")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		live, err := c.LiveTables()
		if err != nil {
			t.Fatal(err)
		}
		return c.metrics(t), live
	}
	for i, fs := range crashed {
		want, live := read(fs)
		names, err := fs.List("catalogue")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".sst") && !live[name] {
				if err := fs.Remove("catalogue/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, _ := read(fs); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("crash %d of %d: without the tables that are said to be unused there are %v, with them %v", i, len(crashed), got, want)
		}
	}
	if len(crashed) < 10 {
		t.Errorf("only %d moments were seen", len(crashed))
	}
}

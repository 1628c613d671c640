package rowkey

import (
	"fmt"
	"testing"

	"varve/internal/model"
)

func TestIndexShard(t *testing.T) {
	// The numbers are in tables: they never change.
	for tags, want := range map[model.Tags]int{
		model.MustTags():                         1,
		model.MustTags("host", "a"):              0,
		model.MustTags("host", "b", "dc", "lga"): 0,
	} {
		if got := Shard(tags, 4); got != want {
			t.Errorf("%s: shard %d, want %d", tags, got, want)
		}
	}
	seen := map[int]int{}
	for i := range 1000 {
		seen[Shard(model.MustTags("host", fmt.Sprint(i)), 4)]++
	}
	for shard, n := range seen {
		if n < 200 {
			t.Errorf("shard %d has %d of 1000", shard, n)
		}
	}
}

package local

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/timeline"
	"varve/internal/timeline/timelinetest"
)

var randomSteps = flag.Int("steps", 400, "of TestRandom")

// small makes Pebble flush and compact often.
func small(o *pebble.Options) { o.MemTableSize, o.LBaseMaxBytes = 64<<10, 64<<10 }

func TestRandom(t *testing.T) {
	for name, wrap := range map[string]func(*Shelf) timeline.Shelf{
		"whole":     func(s *Shelf) timeline.Shelf { return s },
		"by bucket": func(s *Shelf) timeline.Shelf { return timelinetest.Buckets(s) },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			timelinetest.Random(t, rand.Uint64(), *randomSteps, func(t *testing.T) timeline.Shelf { return wrap(open(t, fs, Options{tune: small})) })
		})
	}
}

package catalogue

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
)

// TestSoundCatalogueIsSound writes records of all sizes to the catalogue, so that
// its log's blocks end in every way, and expects no damage at any moment:
// refusing to start with a sound store would be worse than the damage that it looks for.
func TestSoundCatalogueIsSound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range 30 {
		fs := crashfs.New()
		v := openValues(t, fs)
		for n := range 250 {
			text := strings.Repeat("x", rng.IntN(900))
			if err := v.Set(context.Background(), "service", "key", "name", text); err != nil {
				t.Fatal(err)
			}
			if n%10 == 0 {
				// Of one moment: in the background Pebble removes files that it no longer needs.
				now := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
				if err := Verify(now, "catalogue"); err != nil {
					t.Fatalf("round %d, record %d: %v", round, n, err)
				}
			}
		}
		if err := v.catalogue.Close(); err != nil {
			t.Fatal(err)
		}
		if err := Verify(fs, "catalogue"); err != nil {
			t.Fatalf("round %d, closed: %v", round, err)
		}
	}
}

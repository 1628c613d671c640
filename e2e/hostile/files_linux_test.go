package hostile

import (
	"context"
	"testing"

	"varve/e2e/process"
)

// Where the process may open fewer files than the settings allow connections, those that are
// idle keep nobody out, and the store still opens its files.
func TestFewFiles(t *testing.T) {
	skip(t)
	const files = 512
	dir, flags := t.TempDir(), withStore(t, nil)
	w := watch(t, process.StartWithFiles(t, files, dir, flags...), dir, flags)
	w.under(100*mib, func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for _, address := range []string{w.HTTP, w.Telnet, w.Carbon(t, "lines"), w.Carbon(t, "pickles")} {
			for range files {
				if c, err := connect(ctx, address); err == nil {
					defer c.Close()
				}
			}
		}
		if err := w.settle(ctx); err != nil {
			t.Errorf("beside idle connections: %v", err)
		}
		pause(ctx, *attackFor)
	})
}

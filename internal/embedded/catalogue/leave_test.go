package catalogue

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCloseTellsOfErrors: Close returns what Pebble has to say.
func TestCloseTellsOfErrors(t *testing.T) {
	c, err := Open(vfs.NewMem(), "catalogue", Options{Logger: Quiet{}, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	open := c.db.NewSnapshot()
	if err := c.Close(); err == nil || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("closed beside an open snapshot: %v", err)
	}
	_ = open.Close()
}

// TestListThatIsCancelled: a list of keys ends within a page when its context does.
func TestListThatIsCancelled(t *testing.T) {
	v := openValues(t, vfs.NewMem())
	defer v.catalogue.Close()
	for _, key := range []string{"a", "b", "c"} {
		v.must(t, v.Set(t.Context(), "service", "x", key, ""))
	}
	ctx, cancel := context.WithCancel(t.Context())
	named := 0
	_, _, err := v.page(ctx, []byte{0}, []byte{0xff}, nil, func(rest []byte) (string, int, bool) {
		named++
		cancel()
		return string(rest), len(rest), true
	})
	if named != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d keys are read, %v", named, err)
	}
}

package kairos

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// opener opens an empty store that the caller closes.
type opener func(t testing.TB) store.Store

func openReference(testing.TB) store.Store { return reference.New(nil) }

func openEmbedded(t testing.TB) store.Store {
	s, err := embedded.Open(vfs.NewMem(), "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

package cql

import (
	"testing"
	"time"
)

// SetSchemaAgreement shortens the wait for agreement; it returns what undoes it.
func SetSchemaAgreement(d time.Duration) (undo func()) {
	before := schemaAgreement
	schemaAgreement = d
	return func() { schemaAgreement = before }
}

// Sent is what a session of the keyspace sends of st.
func (st *Statement) Sent(keyspace string) string { return st.qualified(keyspace) }

// Packs reports whether a batch of entries is written by this package.
func Packs(entries []Entry) bool {
	_, ok := pack(entries)
	return ok
}

// TakePageRoom takes all room for pages of long rows.
func (s *Session) TakePageRoom(t *testing.T) (release func()) {
	t.Helper()
	if err := s.pages.acquire(t.Context(), pageRoom); err != nil {
		t.Fatal(err)
	}
	return func() { s.pages.release(pageRoom) }
}

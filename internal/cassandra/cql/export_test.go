package cql

import "time"

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

// Package datatype knows the types of values beside longs, doubles and texts: how
// requests name them, how their JSON becomes the bytes that are stored, and how
// those become JSON again.
//
// To add a type, write a file with a function that returns its Type, name that
// in All, and write a test of its faults. Ingest, queries, imports and exports
// know it then, and tests in those packages run its Example through all of them.
// Nothing else in Varve looks into the bytes: what is stored of a type that is
// not registered goes through exports and imports unchanged, and comes out of
// queries as base64.
package datatype

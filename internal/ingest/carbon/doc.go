// Package carbon accepts samples by the protocols of Graphite's carbon: text lines and pickles.
// docs/formats/carbon.md has both grammars.
//
//	PATH VALUE TIME\n
//	LENGTH (u32, big-endian) PICKLE, which is a list of (PATH, (TIME, VALUE))
//
// Lines come over TCP, or whole in datagrams of UDP.
//
// A path is the name of a metric, or name;tag=value;tag=value. Times are in seconds, values are
// doubles. An invalid line or item is refused alone, counted by reason and shown at
// /admin/rejected. Nothing is ever answered, and the only input that closes its connection is a
// pickle longer than the limit.
package carbon

// Package carbon takes samples by the protocols of Graphite's carbon: text lines and
// pickles. docs/formats/carbon.md has both grammars.
//
//	PATH VALUE TIME\n
//	LENGTH (u32, big-endian) PICKLE, which is a list of (PATH, (TIME, VALUE))
//
// Lines come over TCP, or whole in datagrams of UDP.
//
// A path is the name of a metric, or name;tag=value;tag=value. Times are in seconds,
// values are doubles. A faulty line or item is refused alone, counted by reason and
// shown at /admin/rejected; nothing is ever answered, and nothing that a client sends
// closes its connection, but a pickle that is longer than the limit.
package carbon

// Package kairosconf reads the configuration of a KairosDB server and says which
// of Varve's settings do the same.
//
// KairosDB reads HOCON (kairosdb.conf), JSON, which is a subset of it, and in
// older releases Java properties (kairosdb.properties). Every key stands below
// "kairosdb.". What comes of a key is one of these:
//
//   - settings of Varve, by their key
//   - nothing, for a reason that Mapping.Notes gives, because Varve has no such
//     part or needs no such setting
//   - nothing, although it matters: Mapping.Warnings
//   - nothing, because the key is not known here: Mapping.Unknown
//
// Keys that are not in the file keep the defaults of Varve, not of KairosDB.
//
// The reader of HOCON is our own: a configuration of which one key is silently
// lost opens another keyspace, or reads at another consistency. It knows
// comments, objects, lists, keys with dots, +=, joined and multi-line texts, and
// substitutions from the file and the environment; it refuses include.
//
// Source of names and defaults: the kairosdb.conf shipped with KairosDB 1.3.0-1
// and the properties files of 1.0 to 1.2.
package kairosconf

// Package kairosconf reads the configuration of a KairosDB server and maps it to
// settings of Varve.
//
// KairosDB reads HOCON (kairosdb.conf), its subset JSON, and in older releases Java
// properties (kairosdb.properties). All keys have the prefix "kairosdb.".
// Settings whose keys are not in the file keep Varve's defaults, not KairosDB's.
//
// The package has its own HOCON parser, which refuses what it does not understand:
// a key that is silently lost could open another keyspace, or read at another
// consistency. It supports comments, objects, lists, keys with dots, +=,
// concatenated and multi-line strings, and substitutions from the file and the
// environment. It refuses include.
//
// Source of names and defaults: the kairosdb.conf shipped with KairosDB 1.3.0-1
// and the properties files of 1.0 to 1.2.
package kairosconf

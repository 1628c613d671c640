// Package pytext writes and replaces text as Python does: numbers in names and
// tags, printf's formats, regular expressions. Graphite's names are made that
// way, and people match them.
//
// Everything here may come from a client. No result is longer than MaxReplaced
// or a format's width allows, and no expression takes longer than in proportion
// to the text.
package pytext

// Package pytext formats and replaces text as Python does: numbers in names and
// tags, printf formats, regular expressions. Graphite's names of series are made
// that way, and users match them.
//
// All input may come from a client. The length of results is limited by
// MaxReplaced and by the width of formats, and the time of an expression by its
// size and the length of the text.
package pytext

// Package archtest holds the tests that keep the shape of the code: which
// package may import which, as docs/architecture.md says, what no package imports,
// that no package is longer than 5,000 lines, and that each has exactly one package comment. It has no
// code of its own.
package archtest

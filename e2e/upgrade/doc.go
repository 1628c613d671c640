// Package upgrade moves stores between builds of earlier commits and this one. This
// build must open a store of an earlier build and give the same answers. An earlier
// build must read a store of this build, or refuse it with an error that says what to
// do.
package upgrade

// Package storetest says what the words of package store mean, as tests that
// every store passes unchanged.
package storetest

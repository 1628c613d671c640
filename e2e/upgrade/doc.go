// Package upgrade carries stores between builds of earlier commits and this one: what an
// earlier build has written this one opens and answers the same from, and what this one
// has written an earlier build reads, or refuses with the way out.
package upgrade

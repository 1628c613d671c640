//go:build !race

package fastpath

const detectsRaces = false

package model

import (
	"strings"
	"testing"
)

func TestPatternSizes(t *testing.T) {
	for expr, fits := range map[string]bool{
		"host-[0-9]{1,3}":                           true,
		strings.Repeat("a", MaxPatternBytes):        true,
		strings.Repeat("a|", 2000) + "b":            true,
		"(?:a?){1000}":                              true,
		".{0,1000}":                                 true,
		strings.Repeat("(?:a?){1000}", 20):          false,
		"(?:(?:abcdef){30}){33}":                    false,
		strings.Repeat(`\pL`, 1000):                 false,
		"(?:" + strings.Repeat("x", 100) + "){100}": false,
		"[^a]{2,}":                                  true,
		"a{0}":                                      true,
	} {
		p, err := NewPattern(expr)
		if (err == nil) != fits || err != nil && len(err.Error()) > 300 {
			t.Errorf("%.40s: %v", expr, err)
		}
		if err == nil && (p.Size() < 1 || p.Size() > MaxPatternSize) {
			t.Errorf("%.40s has the size %d", expr, p.Size())
		}
	}
}

func TestPatternIsPlannedOnce(t *testing.T) {
	p, err := NewPattern("a+")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for range 3 {
		if got := p.Plan(func(*Pattern) any { calls++; return calls }); got != 1 {
			t.Errorf("plan %v", got)
		}
	}
}

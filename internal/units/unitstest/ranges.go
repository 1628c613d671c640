// Package unitstest checks configurations of other packages.
package unitstest

import (
	"strings"
	"testing"
)

// A Range is what a setting of the configuration C accepts and refuses: at its
// ends, and next to them.
type Range[C any] struct {
	Key              string
	Set              func(c *C, v int64)
	Allowed, Refused []int64
}

// Ranges sets each value in a configuration made by defaults, which must itself be
// valid. A refusal is one line that begins with the key.
func Ranges[C interface{ Validate() error }](t *testing.T, defaults func() C, ranges []Range[C]) {
	t.Helper()
	if err := defaults().Validate(); err != nil {
		t.Error(err)
	}
	for _, r := range ranges {
		validate := func(v int64) error {
			c := defaults()
			r.Set(&c, v)
			return c.Validate()
		}
		for _, v := range r.Allowed {
			if err := validate(v); err != nil {
				t.Errorf("%s of %d: %v", r.Key, v, err)
			}
		}
		for _, v := range r.Refused {
			if err := validate(v); err == nil || !strings.HasPrefix(err.Error(), r.Key+":") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s of %d: %v", r.Key, v, err)
			}
		}
	}
}

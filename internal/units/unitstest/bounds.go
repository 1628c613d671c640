// Package unitstest checks configurations of other packages.
package unitstest

import (
	"strings"
	"testing"
)

// Bounds returns a check of one setting: set puts each of the values into a
// configuration made by defaults, which must itself be valid. A refusal is one line
// that begins with the key.
func Bounds[C interface{ Validate() error }](t *testing.T, defaults func() C) (check func(key string, set func(c *C, v int64), allowed, refused []int64)) {
	if err := defaults().Validate(); err != nil {
		t.Error(err)
	}
	return func(key string, set func(c *C, v int64), allowed, refused []int64) {
		t.Helper()
		validate := func(v int64) error {
			c := defaults()
			set(&c, v)
			return c.Validate()
		}
		for _, v := range allowed {
			if err := validate(v); err != nil {
				t.Errorf("%s of %d: %v", key, v, err)
			}
		}
		for _, v := range refused {
			if err := validate(v); err == nil || !strings.HasPrefix(err.Error(), key+":") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s of %d: %v", key, v, err)
			}
		}
	}
}

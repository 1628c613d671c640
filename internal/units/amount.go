package units

import (
	"fmt"
	"time"
)

// An amount is what a setting counts: a number, a size or a time.
type amount interface{ ~int | ~int64 }

// Positive returns an error that names a setting by its key if its value is not
// greater than 0.
func Positive[T amount](key string, v T) error {
	if v > 0 {
		return nil
	}
	return fmt.Errorf("%s: %v is not greater than 0", key, readable(v))
}

// NotNegative returns an error that names a setting by its key if its value is
// negative.
func NotNegative[T amount](key string, v T) error {
	if v >= 0 {
		return nil
	}
	return fmt.Errorf("%s: %v is negative", key, readable(v))
}

// Range returns an error that names a setting by its key if its value is not from low to
// high, both included.
func Range[T amount](key string, v, low, high T) error {
	return Check(v >= low && v <= high, key, fmt.Sprintf("%v to %v", readable(low), readable(high)), v)
}

// AtLeast returns an error that names a setting by its key if its value is less than low.
func AtLeast[T amount](key string, v, low T) error {
	return Check(v >= low, key, fmt.Sprintf("at least %v", readable(low)), v)
}

// Check returns an error that names a setting by its key, with what it must be and what it
// is, unless ok.
func Check(ok bool, key, want string, got any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s: want %s, got %v", key, want, readable(got))
}

// readable returns v, and a time as configuration files have it.
func readable(v any) any {
	if d, ok := v.(time.Duration); ok {
		return FormatDuration(d)
	}
	return v
}

// Count says how many of something there are. one is its name in the singular.
func Count[T int | int64](n T, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

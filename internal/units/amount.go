package units

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Bounds reports the settings of a struct that violate their tag want: numbers, sizes and times. Their keys are
// in the tags yaml and tune, and follow prefix. A tag want is one of
//
//	positive               greater than 0
//	not negative
//	at least 1s
//	64KiB to 1GiB          both included
//	64KiB to 1GiB, or 0
func Bounds(prefix string, settings any) error {
	var errs []error
	s := reflect.ValueOf(settings)
	for i := range s.NumField() {
		tags := s.Type().Field(i).Tag
		if want := tags.Get("want"); want != "" {
			errs = append(errs, bound(prefix+cmp.Or(tags.Get("yaml"), tags.Get("tune")), want, s.Field(i)))
		}
	}
	return errors.Join(errs...)
}

func bound(key, want string, v reflect.Value) error {
	switch want {
	case "positive":
		if v.Int() <= 0 {
			return fmt.Errorf("%s: %v is not greater than 0", key, readable(v.Interface()))
		}
		return nil
	case "not negative":
		if v.Int() < 0 {
			return fmt.Errorf("%s: %v is negative", key, readable(v.Interface()))
		}
		return nil
	}
	span, orZero := strings.CutSuffix(want, ", or 0")
	low, high, bounded := strings.Cut(strings.TrimPrefix(span, "at least "), " to ")
	ok := v.Int() >= amount(low, v.Type()) && (!bounded || v.Int() <= amount(high, v.Type()))
	return Check(ok || orZero && v.Int() == 0, key, want, v.Interface())
}

// amount reads a bound of a setting of a type. It panics if the tag is wrong.
func amount(text string, t reflect.Type) (n int64) {
	var err error
	switch p := reflect.New(t).Interface().(type) {
	case encoding.TextUnmarshaler:
		err = p.UnmarshalText([]byte(text))
		n = reflect.ValueOf(p).Elem().Int()
	case *time.Duration:
		*p, err = ParseDuration(text)
		n = int64(*p)
	default:
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		panic(fmt.Sprintf("units: the bound %q of a setting: %v", text, err))
	}
	return n
}

// Check returns an error that names a setting by its key, with what it must be and what it
// is, unless ok.
func Check(ok bool, key, want string, got any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s: want %s, got %v", key, want, readable(got))
}

// readable returns v; a time is formatted as in configuration files.
func readable(v any) any {
	if d, ok := v.(time.Duration); ok {
		return FormatDuration(d)
	}
	return v
}

// Count formats a number of things. one is their name in the singular.
func Count[T int | int64](n T, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

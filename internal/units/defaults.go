package units

import (
	"encoding"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Defaults returns settings with their defaults, see [SetDefaults].
func Defaults[C any]() (settings C) {
	SetDefaults(reflect.ValueOf(&settings).Elem())
	return settings
}

// SetDefaults sets the fields of a struct, and of structs in it, that have a tag default to its value. Then it
// calls the method SetDefaults of each struct that has one, for defaults that a tag cannot express.
func SetDefaults(settings reflect.Value) {
	for i := range settings.NumField() {
		f, of := settings.Field(i), settings.Type().Field(i)
		if text, ok := of.Tag.Lookup("default"); ok {
			if err := SetText(f, text); err != nil {
				panic(fmt.Sprintf("units: default of %s in %s: %v", of.Name, settings.Type(), err))
			}
		} else if f.Kind() == reflect.Struct && of.IsExported() {
			SetDefaults(f)
		}
	}
	if own, ok := settings.Addr().Interface().(interface{ SetDefaults() }); ok {
		own.SetDefaults()
	}
}

// SetText sets v to the value that text means. On error it leaves v unchanged.
func SetText(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case *slog.Level:
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%q: want debug, info, warn or error", text)
		}
		return nil
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *[]string:
		*p = splitList(text)
		return nil
	case *time.Duration:
		d, err := ParseDuration(text)
		if err != nil {
			return fmt.Errorf("time %q: want a number with a unit, such as 100ms, 10s, 5m, 24h or 30d", text)
		}
		*p = d
		return nil
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q: want true or false", text)
		}
		v.SetBool(b)
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q: want a whole number of at most %d bits", text, v.Type().Bits())
		}
		v.SetInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q: want a whole number >= 0 of at most %d bits", text, v.Type().Bits())
		}
		v.SetUint(n)
	case v.CanFloat():
		x, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q: want a number", text)
		}
		v.SetFloat(x)
	default:
		panic(fmt.Sprintf("units: %s cannot be set from text", v.Type()))
	}
	return nil
}

// splitList splits a list at its commas. An item with a comma can only be given
// in a file, as one item of a sequence.
func splitList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

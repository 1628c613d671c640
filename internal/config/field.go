package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/units"
)

// A field is one setting, or a section of settings, of a configuration struct.
type field struct {
	key     string // path of yaml keys, for example server.http_addr
	doc     string
	section bool
	items   bool          // a section that is a list of sections; a file sets it
	value   reflect.Value // settable
}

func (f field) name() string { return lastPart(f.key) }

// environment is the variable that sets f.
func (f field) environment() string { return variableOf(f.key) }

// flag is the command line flag that sets f, without dashes.
func (f field) flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(f.key) }

// isList reports whether f holds several values.
func (f field) isList() bool { _, ok := f.value.Interface().([]string); return ok }

// fields lists the settings and sections below root, a pointer to a struct: first
// the settings of the struct, then its sections, both in the order of declaration,
// and each section before what is in it. Fields of an embedded struct belong to
// the struct around it. fields panics on a field that has no tags or a type that
// cannot be set from text.
func fields(root any) []field {
	return appendFields(nil, reflect.ValueOf(root).Elem(), "")
}

// itemFields lists the fields of one item of f, whose keys begin with prefix.
func itemFields(item reflect.Value, prefix string) []field {
	return appendFields(nil, item, prefix+".")
}

// newItem returns a section of the list f with default settings.
func (f field) newItem() reflect.Value {
	item := reflect.New(f.value.Type().Elem()).Elem()
	units.SetDefaults(item)
	return item
}

func appendFields(list []field, s reflect.Value, prefix string) []field {
	own := ownFields(nil, s, prefix)
	for _, f := range own {
		if !f.section {
			list = append(list, f)
		}
	}
	for _, f := range own {
		switch {
		case f.items:
			list = append(list, f)
		case f.section:
			list = appendFields(append(list, f), f.value, f.key+".")
		}
	}
	return list
}

// ownFields lists the settings and sections of s, without the settings in its
// sections.
func ownFields(list []field, s reflect.Value, prefix string) []field {
	for i := range s.NumField() {
		t := s.Type().Field(i)
		if t.Anonymous {
			list = ownFields(list, s.Field(i), prefix)
			continue
		}
		if t.Tag.Get(constantTag) != "" {
			continue
		}
		name, _, _ := strings.Cut(t.Tag.Get("yaml"), ",")
		f := field{key: prefix + name, doc: sentence(t.Tag.Get("doc")), value: s.Field(i)}
		if name == "" || f.doc == "" || !t.IsExported() {
			panic(fmt.Sprintf("config: field %s of %s needs a yaml and a doc tag", t.Name, s.Type()))
		}
		f.items = isSectionList(f.value)
		if f.section = f.items || isSection(f.value); !f.section {
			formatText(f.value) // panics on a type without a text form
		}
		list = append(list, f)
	}
	return list
}

// withSettings leaves out the sections of list that have no settings, only constants.
func withSettings(list []field) []field {
	var kept []field
	for _, f := range list {
		has := func(other field) bool {
			return (!other.section || other.items) && strings.HasPrefix(other.key, f.key+".")
		}
		if !f.section || f.items || slices.ContainsFunc(list, has) {
			kept = append(kept, f)
		}
	}
	return kept
}

// sentence begins text with a capital and ends it with a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

func isSection(v reflect.Value) bool {
	_, text := v.Addr().Interface().(encoding.TextUnmarshaler)
	return v.Kind() == reflect.Struct && !text
}

func isSectionList(v reflect.Value) bool {
	return v.Kind() == reflect.Slice && isSection(reflect.New(v.Type().Elem()).Elem())
}

// settings lists the fields that hold a value.
func settings(root any) []field {
	var list []field
	for _, f := range fields(root) {
		if !f.section {
			list = append(list, f)
		}
	}
	return list
}

// formatText is the inverse of [units.SetText].
func formatText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("config: %s has no text form: %v", v.Type(), err))
		}
		return string(text)
	case time.Duration:
		return units.FormatDuration(x)
	case []string:
		return strings.Join(x, ",")
	}
	switch {
	case v.Kind() == reflect.String:
		return v.String()
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits())
	}
	panic(fmt.Sprintf("config: %s has no text form", v.Type()))
}

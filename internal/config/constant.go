package config

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"varve/internal/units"
)

// constantTag marks a field of a configuration struct that is not a setting but a
// constant, which tests and benchmarks change by the flag --tune KEY=VALUE. It
// cannot be set by a file or a variable, and no page of the documentation has it.
const constantTag = "tune"

// tuneFlag is the flag that changes constants.
const tuneFlag = "tune"

// constants lists the constants below s, by key.
func constants(s reflect.Value, prefix string) map[string]field {
	all := map[string]field{}
	for i := range s.NumField() {
		t, v := s.Type().Field(i), s.Field(i)
		name, _, _ := strings.Cut(t.Tag.Get("yaml"), ",")
		var below map[string]field
		switch {
		case t.Tag.Get(constantTag) != "":
			key := prefix + t.Tag.Get(constantTag)
			all[key] = field{key: key, value: v}
		case t.Anonymous:
			below = constants(v, prefix)
		case isSection(v):
			below = constants(v, prefix+name+".")
		}
		maps.Copy(all, below)
	}
	return all
}

// tune changes the constant that text, KEY=VALUE, names.
func (l *layers) tune(text string) {
	key, value, _ := strings.Cut(text, "=")
	f, known := l.constants[key]
	if !known {
		l.fail("flag --%s: unknown constant %q; want KEY=VALUE", tuneFlag, key)
		return
	}
	if err := units.SetText(f.value, value); err != nil {
		l.fail("flag --%s: %s: %w", tuneFlag, key, err)
		return
	}
	l.tuned = append(l.tuned, fmt.Sprintf("%s=%s", key, formatText(f.value)))
}

// Tuned lists the constants that --tune has changed, with their values.
func (l *Loaded) Tuned() []string { return l.tuned }

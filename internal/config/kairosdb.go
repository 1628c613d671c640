package config

import (
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"varve/internal/kairosconf"
)

// applyKairosDB sets what a configuration of KairosDB says, as far as there are
// settings for it.
func (l *layers) applyKairosDB(path string, data []byte, environment []string) {
	file := "file " + filepath.Base(path)
	parsed, err := kairosconf.Parse(path, data, func(name string) (string, bool) {
		text := fromEnvironment(environment, name)
		return text, text != ""
	})
	if err != nil {
		l.fail("file %s: %w", path, err)
		return
	}
	mapping, errs := parsed.Map()
	for _, err := range errs {
		l.fail("%s: %w", file, err)
	}
	for key, n := range lengths(mapping.Settings) {
		if f, known := l.byKey[key]; known && f.items {
			l.setItems(f, n, file)
		}
	}
	for _, s := range mapping.Settings {
		origin := file + ": " + s.From
		f, known := l.byKey[s.Key]
		switch {
		case !known: // a test sees to it that there is none
			l.fail("%s: there is no setting %s", origin, s.Key)
		case s.List != nil && f.isList():
			f.value.Set(reflect.ValueOf(slices.Clone(s.List)))
			l.origins[f.key] = origin
		default:
			l.set(f, s.Value, origin)
		}
	}
	l.kairosDB = &Foreign{path, "KairosDB's configuration", len(mapping.Settings), byReason(mapping.Notes), withUnknown(byReason(mapping.Warnings), mapping.Unknown)}
}

var itemKey = regexp.MustCompile(`^(.+)\[(\d+)\]\.`)

// lengths returns how many items each list of sections has.
func lengths(settings []kairosconf.Setting) map[string]int {
	lists := map[string]int{}
	for _, s := range settings {
		if m := itemKey.FindStringSubmatch(s.Key); m != nil {
			i, _ := strconv.Atoi(m[2])
			lists[m[1]] = max(lists[m[1]], i+1)
		}
	}
	return lists
}

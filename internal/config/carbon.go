package config

import (
	"path/filepath"

	"varve/internal/carbonconf"
)

// applyCarbon sets what a carbon.conf says, as far as there are settings for it. read
// reads the files that it names.
func (l *layers) applyCarbon(path string, data []byte, read func(path string) ([]byte, error)) {
	file := "file " + filepath.Base(path)
	mapping, errs := carbonconf.Parse(path, string(data), func(name string) bool {
		_, err := read(name)
		return err == nil
	})
	for _, err := range errs {
		l.fail("%s: %w", file, err)
	}
	for _, s := range mapping.Settings {
		origin := file + ": " + s.From
		if f, known := l.byKey[s.Key]; known {
			l.set(f, s.Value, origin)
		} else { // a test sees to it that there is none
			l.fail("%s: there is no setting %s", origin, s.Key)
		}
	}
	l.carbon = &Foreign{path, "carbon.conf", len(mapping.Settings), byReason(mapping.Notes), withUnknown(byReason(mapping.Warnings), mapping.Unknown)}
}

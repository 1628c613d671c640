package config

import (
	"io"
	"path/filepath"

	"varve/internal/carbonconf"
)

// Carbon is what became of a carbon.conf.
type Carbon struct {
	Path    string
	Mapping carbonconf.Mapping
}

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
	l.carbon = &Carbon{Path: path, Mapping: mapping}
}

// Notes lists, by reason, the keys that set nothing and need not.
func (c *Carbon) Notes() []Remark { return byReason(c.Mapping.Notes) }

// Warnings lists, by reason, the keys that matter and set nothing.
func (c *Carbon) Warnings() []Remark {
	return withUnknown(byReason(c.Mapping.Warnings), c.Mapping.Unknown)
}

// writeComment says, as comments of YAML, which keys set nothing.
func (c *Carbon) writeComment(w io.Writer) error {
	return writeRemarks(w, c.Path, c.Warnings(), c.Notes())
}

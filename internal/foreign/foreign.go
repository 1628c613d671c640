// Package foreign holds the configuration of another server in terms of Varve. Each key
// that the file has ends up in one of these:
//
//   - Mapping.Settings, if Varve has such a setting
//   - Mapping.Notes, with the reason, if Varve has no such part or needs no such setting
//   - Mapping.Warnings, if the key matters but Varve cannot obey it
//   - Mapping.Unknown
package foreign

import (
	"fmt"
	"slices"
	"strings"
)

// A Setting is a setting of Varve.
type Setting struct {
	Key   string
	Value string   // as text
	List  []string // instead of Value, if the setting is a list
	From  string   // the other server's key
}

// A Remark is one reason, and the keys of the other server that it is about.
type Remark struct {
	Why  string
	Keys []string
}

// A Mapping is a configuration in terms of Varve. Its methods take keys of the other server
// without the prefix Root.
type Mapping struct {
	Root     string
	Settings []Setting
	Notes    []Remark
	Warnings []Remark
	Unknown  []string // keys
	Faults   []error  // of values that are not understood
}

// Set adds a setting with the value of the key from.
func (m *Mapping) Set(from, key, value string) {
	m.Settings = append(m.Settings, Setting{Key: key, Value: value, From: m.Root + from})
}

// SetList adds a setting that is a list.
func (m *Mapping) SetList(from, key string, list []string) {
	m.Settings = append(m.Settings, Setting{Key: key, List: list, From: m.Root + from})
}

// Note adds the reason why a key is not needed.
func (m *Mapping) Note(key, why string) { m.Notes = remarked(m.Notes, m.Root+key, why) }

// Warn adds the reason why a key that matters cannot be obeyed.
func (m *Mapping) Warn(key, why string) { m.Warnings = remarked(m.Warnings, m.Root+key, why) }

func remarked(all []Remark, key, why string) []Remark {
	at := slices.IndexFunc(all, func(r Remark) bool { return r.Why == why })
	if at < 0 {
		return append(all, Remark{why, []string{key}})
	}
	all[at].Keys = append(all[at].Keys, key)
	return all
}

// Fail adds a fault of a value.
func (m *Mapping) Fail(key, format string, args ...any) {
	m.Faults = append(m.Faults, fmt.Errorf("%s%s: %s", m.Root, key, fmt.Sprintf(format, args...)))
}

// Sort sorts the settings, the remarks and their keys.
func (m *Mapping) Sort() {
	slices.SortStableFunc(m.Settings, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	for _, all := range [][]Remark{m.Notes, m.Warnings} {
		slices.SortFunc(all, func(a, b Remark) int { return strings.Compare(a.Why, b.Why) })
		for _, r := range all {
			slices.Sort(r.Keys)
		}
	}
	slices.Sort(m.Unknown)
}

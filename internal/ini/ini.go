// Package ini parses files in the format of Python's ConfigParser, which carbon uses.
package ini

import (
	"fmt"
	"strings"
)

// A Section is a part of a file.
type Section struct {
	Name   string
	Line   int               // of its name, from 1
	Values map[string]string // by key in lower case
}

func (s Section) String() string { return fmt.Sprintf("section [%s] in line %d", s.Name, s.Line) }

// MaxFile limits the bytes of a file.
const MaxFile = 4 << 20

// Parse parses a file as Python's ConfigParser does. Section names are in brackets. The
// first = or : separates a key from its value. Lines that begin with # or ; are comments.
// Lines that begin with white space continue the previous value. A percent sign is
// written twice. A repeated section or key is an error.
func Parse(text string) ([]Section, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("the file has %d bytes, which is more than %d", len(text), MaxFile)
	}
	var sections []Section
	seen := map[string]bool{}
	key := "" // of the value that an indented line continues
	for number, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		number++
		line = strings.TrimRight(line, " \t\r\f\v")
		trimmed := strings.TrimLeft(line, " \t\f\v")
		switch {
		case trimmed == "":
			continue
		case trimmed[0] == '#' || trimmed[0] == ';':
			continue
		case len(trimmed) < len(line) && key != "":
			last := sections[len(sections)-1].Values
			last[key] += "\n" + trimmed
			continue
		}
		if name, ok := strings.CutPrefix(trimmed, "["); ok {
			name, _, ok = strings.Cut(name, "]")
			if !ok || name == "" {
				return nil, fmt.Errorf("line %d: %.80q is not a section; it is written [name]", number, trimmed)
			}
			if seen[name] {
				return nil, fmt.Errorf("line %d: section [%s] already exists", number, name)
			}
			seen[name], key = true, ""
			sections = append(sections, Section{Name: name, Line: number, Values: map[string]string{}})
			continue
		}
		if len(sections) == 0 {
			return nil, fmt.Errorf("line %d: %.80q comes before the first [section]", number, trimmed)
		}
		at := strings.IndexAny(trimmed, "=:")
		if at <= 0 {
			return nil, fmt.Errorf("line %d: %.80q is not of the form key = value", number, trimmed)
		}
		key = strings.ToLower(strings.TrimSpace(trimmed[:at]))
		values := sections[len(sections)-1].Values
		if _, there := values[key]; there {
			return nil, fmt.Errorf("line %d: section [%s] already has the key %s", number, sections[len(sections)-1].Name, key)
		}
		values[key] = strings.TrimSpace(trimmed[at+1:])
	}
	return sections, unescape(sections)
}

// unescape replaces each double percent sign by a single one. Other percent signs are
// errors: they refer to the values of other keys, which carbon's own files never do.
func unescape(sections []Section) error {
	for _, s := range sections {
		for key, value := range s.Values {
			if strings.Contains(strings.ReplaceAll(value, "%%", ""), "%") {
				return fmt.Errorf("%v: %s has a single %% sign; write %%%%", s, key)
			}
			s.Values[key] = strings.ReplaceAll(value, "%%", "%")
		}
	}
	return nil
}

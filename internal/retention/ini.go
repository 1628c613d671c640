package retention

import (
	"fmt"
	"strings"
)

// A section is a part of a configuration file of carbon.
type section struct {
	name   string
	line   int
	values map[string]string // by key in lower case
}

func (s section) String() string { return fmt.Sprintf("section [%s] in line %d", s.name, s.line) }

// maxFile bounds the files that are read.
const maxFile = 4 << 20

// parseINI reads a file as Python's ConfigParser does, which carbon uses: sections in
// brackets, keys and values around the first = or :, lines that begin with # or ; are
// comments, lines that begin with white space go on with the value before. A percent
// sign is written twice. A section of one name twice is an error.
func parseINI(text string) ([]section, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("the file has %d bytes, which is more than %d", len(text), maxFile)
	}
	var sections []section
	seen := map[string]bool{}
	key := "" // of the value that may go on
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
			last := sections[len(sections)-1].values
			last[key] += "\n" + trimmed
			continue
		}
		if name, ok := strings.CutPrefix(trimmed, "["); ok {
			name, _, ok = strings.Cut(name, "]")
			if !ok || name == "" {
				return nil, fmt.Errorf("line %d: %.80q is not a section; it is written [name]", number, trimmed)
			}
			if seen[name] {
				return nil, fmt.Errorf("line %d: there is a section [%s] already", number, name)
			}
			seen[name], key = true, ""
			sections = append(sections, section{name: name, line: number, values: map[string]string{}})
			continue
		}
		if len(sections) == 0 {
			return nil, fmt.Errorf("line %d: %.80q stands before the first [section]", number, trimmed)
		}
		at := strings.IndexAny(trimmed, "=:")
		if at <= 0 {
			return nil, fmt.Errorf("line %d: %.80q is not of the form key = value", number, trimmed)
		}
		key = strings.ToLower(strings.TrimSpace(trimmed[:at]))
		values := sections[len(sections)-1].values
		if _, there := values[key]; there {
			return nil, fmt.Errorf("line %d: section [%s] has a key %s already", number, sections[len(sections)-1].name, key)
		}
		values[key] = strings.TrimSpace(trimmed[at+1:])
	}
	return sections, unescape(sections)
}

// unescape makes one percent sign of two. Another one would stand for the value of
// another key, which carbon's own files never use.
func unescape(sections []section) error {
	for _, s := range sections {
		for key, value := range s.values {
			if strings.Contains(strings.ReplaceAll(value, "%%", ""), "%") {
				return fmt.Errorf("%v: %s has a single %% sign; write %%%%", s, key)
			}
			s.values[key] = strings.ReplaceAll(value, "%%", "%")
		}
	}
	return nil
}

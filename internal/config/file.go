package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"varve/internal/safefile"
)

// maxFileBytes bounds a configuration file. The whole reference is a few KiB.
const maxFileBytes = 1 << 20

// readFile reads a configuration file of at most maxFileBytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%s: longer than %d bytes: not a configuration file", path, maxFileBytes)
	}
	return data, err
}

// ReadAgain reads a configuration file for a reload. Unlike at the start, the file must not be a
// pipe, such as that of a shell's <(command): its writer has ended, so the read would wait for ever.
func ReadAgain(path string) ([]byte, error) { return safefile.ReadRegular(path, maxFileBytes) }

// applyFile applies the YAML document in data. path is for messages.
func (l *layers) applyFile(path string, data []byte) {
	doc, err := parseYAML(data)
	if err != nil {
		l.fail("file %s%w", path, err)
		return
	}
	if doc != nil {
		l.applyMapping(path, "", doc)
	}
}

var yamlErrorLine = regexp.MustCompile(`^yaml: line (\d+): `)

// parseYAML returns the root of the only document in data, nil if it is empty.
// An error's text begins with the place in the file.
func parseYAML(data []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc, second yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		// The parser names the line before or after the tab. In most places a tab in
		// an empty line is valid, so such a line counts only if the parser's error is
		// about a tab.
		if line := tabbedLine(data, tabError.MatchString(err.Error())); line > 0 {
			return nil, fmt.Errorf(":%d: indented with a tab; YAML takes spaces only", line)
		}
		message := yamlErrorLine.ReplaceAllString(err.Error(), ":$1: ")
		return nil, errors.New(strings.Replace(message, "yaml: ", ": ", 1))
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New(": more than one YAML document")
	}
	return doc.Content[0], nil
}

// tabError matches the parser's errors about tabs.
var tabError = regexp.MustCompile(`tab character|cannot start any token`)

// tabbedLine returns the number of the first line with a tab in its indentation, 0
// if there is none. It looks at lines of white space only if empty is set.
func tabbedLine(data []byte, empty bool) int {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := bytes.TrimLeft(line, " \t")
		if indent := line[:len(line)-len(text)]; bytes.IndexByte(indent, '\t') >= 0 && (empty || len(bytes.TrimSpace(text)) > 0) {
			return n
		}
	}
	return 0
}

// applyMapping sets the fields below prefix, which is empty or ends in a dot.
func (l *layers) applyMapping(path, prefix string, n *yaml.Node) {
	section := strings.TrimSuffix(prefix, ".")
	n = resolve(n)
	if isNull(n) {
		return // a section with nothing in it
	}
	if n.Kind != yaml.MappingNode {
		section = cmp.Or(section, "the file")
		l.fail("file %s:%d: %s: want keys and values", path, n.Line, section)
		if strings.HasSuffix(section, "]") {
			l.unread = append(l.unread, section)
		}
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		key := prefix + name.Value
		at := fmt.Sprintf("file %s:%d", path, name.Line)
		if first := lines[key]; first != 0 {
			l.fail("%s: %s: already given on line %d", at, key, first)
			continue
		}
		lines[key] = name.Line
		l.applyNode(path, at, key, value)
	}
}

func (l *layers) applyNode(path, at, key string, value *yaml.Node) {
	f, known := l.byKey[key]
	value = resolve(value)
	switch {
	case !known:
		l.fail("%s: unknown key %s%s", at, key, l.orRemoved(key, func(f field) string { return f.key }, func() string {
			return orNearest(key, l.keysLike(key, value), ".", "")
		}))
	case f.items:
		l.applyItems(path, at, f, value)
	case f.section:
		l.applyMapping(path, key+".", value)
	case isNull(value):
		l.fail("%s: %s: has no value; remove the line to use the default", at, key)
	case value.Kind == yaml.SequenceNode && f.isList():
		l.setList(f, value, at)
	case value.Kind != yaml.ScalarNode:
		l.fail("%s: %s: want a single value", at, key)
	default:
		l.set(f, value.Value, at)
	}
}

// applyItems sets a list of sections.
func (l *layers) applyItems(path, at string, f field, value *yaml.Node) {
	if value.Kind != yaml.SequenceNode {
		l.fail("%s: %s: want a list, each item with keys and values", at, f.key)
		return
	}
	l.setItems(f, len(value.Content), at)
	for i, item := range value.Content {
		l.applyMapping(path, fmt.Sprintf("%s[%d].", f.key, i), item)
	}
}

// setList sets a list to the items of a sequence.
func (l *layers) setList(f field, value *yaml.Node, at string) {
	var list []string
	for _, item := range value.Content {
		if item = resolve(item); item.Kind != yaml.ScalarNode || isNull(item) {
			l.fail("%s: %s: want a list of single values", at, f.key)
			return
		}
		list = append(list, item.Value)
	}
	f.value.Set(reflect.ValueOf(list))
	l.origins[f.key] = at
}

// keysLike lists the keys that an unknown key may have been meant to be: keys of sections if its value is a
// mapping, otherwise keys of settings. For a key in an item of a list, only keys of the same item count:
// otherwise the same mistake in each of a thousand items would take minutes.
func (l *layers) keysLike(key string, value *yaml.Node) []string {
	var keys []string
	for _, f := range slices.Concat(l.fields, l.itemOf(key)) {
		if f.section == (value.Kind == yaml.MappingNode) {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// resolve follows an alias. An alias may stand inside its own anchor; that is
// harmless, since we descend no deeper than the struct does.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

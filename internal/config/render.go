package config

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Loaded is a configuration and where its values come from.
type Loaded struct {
	Config  Config
	Foreign []Foreign // files of other servers
	origins map[string]string
	tuned   []string
}

// SetByFlag returns the key and the flag of the first setting that the command line
// sets and keys does not list, "" if there is none.
func (l *Loaded) SetByFlag(keys ...string) (key, flag string) {
	for _, f := range settings(&l.Config) {
		if flag, ok := strings.CutPrefix(l.origins[f.key], flagOrigin); ok && !slices.Contains(keys, f.key) {
			return f.key, flag
		}
	}
	return "", ""
}

// A SetKey is a setting that a layer has set.
type SetKey struct{ Key, Origin string }

// Set lists the settings that are not left to their default, in the order of the
// reference, and which layer set each.
func (l *Loaded) Set() []SetKey {
	var list []SetKey
	for _, key := range Keys(&l.Config) {
		if origin := l.origins[key]; origin != "" {
			list = append(list, SetKey{key, origin})
		}
	}
	return list
}

// WriteYAML writes the effective configuration as a file that Load takes, with
// the meaning of each setting above it and, where a layer set it, that layer
// and the default beside it.
func (l *Loaded) WriteYAML(w io.Writer) error {
	defaults := Default()
	if err := writeYAML(w, &l.Config, &defaults, l.origins); err != nil {
		return err
	}
	for _, f := range l.Foreign {
		if err := f.writeComment(w); err != nil {
			return err
		}
	}
	return nil
}

func writeYAML(w io.Writer, root, defaults any, origins map[string]string) error {
	var b strings.Builder
	writeFields(&b, withSettings(fields(root)), withSettings(fields(defaults)), "", "", origins)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFields writes fields whose keys begin with prefix, indented by margin and
// by their depth below it.
func writeFields(b *strings.Builder, list, standard []field, prefix, margin string, origins map[string]string) {
	for i, f := range list {
		indent := margin + strings.Repeat("  ", strings.Count(strings.TrimPrefix(f.key, prefix), "."))
		if i > 0 && (f.section || indent == "") {
			b.WriteByte('\n')
		}
		writeWrapped(b, indent+"#", f.doc)
		fmt.Fprintf(b, "%s%s:", indent, f.name())
		was := "[]"
		switch {
		case f.items && f.value.Len() == 0:
			b.WriteString(" []")
		case !f.section:
			b.WriteByte(' ')
			b.WriteString(yamlValue(f))
			was = yamlValue(standard[i])
		}
		if origin := origins[f.key]; origin != "" {
			fmt.Fprintf(b, "  # set by %s, default %s", oneLine(origin), was)
		}
		b.WriteByte('\n')
		if f.items {
			writeItems(b, f, indent, origins)
		}
	}
}

// writeItems writes the sections of a list.
func writeItems(b *strings.Builder, f field, indent string, origins map[string]string) {
	for i := range f.value.Len() {
		key := fmt.Sprintf("%s[%d]", f.key, i)
		b.WriteString(indent + "  -\n")
		writeFields(b, itemFields(f.value.Index(i), key), itemFields(f.newItem(), key), key+".", indent+"    ", origins)
	}
}

// oneLine keeps the name of a file from breaking out of a comment.
func oneLine(s string) string { return strings.Trim(fmt.Sprintf("%q", s), `"`) }

// yamlValue writes a setting on one line.
func yamlValue(f field) string {
	if !f.isList() {
		return yamlScalar(formatText(f.value))
	}
	items := make([]string, f.value.Len())
	for i := range items {
		items[i] = yamlScalar(f.value.Index(i).String())
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// yamlScalar writes a value so that it reads back as the same text on one line.
func yamlScalar(text string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if needsQuotes(text) {
		n.Style = yaml.DoubleQuotedStyle
	}
	out, err := yaml.Marshal(&n)
	if err != nil {
		panic(err) // a scalar node always marshals
	}
	return strings.TrimSuffix(string(out), "\n")
}

// needsQuotes reports whether text would be read back as something else, or
// as a comment or an end of line. Numbers and words stay plain.
func needsQuotes(text string) bool {
	if text == "" || text == "~" || strings.EqualFold(text, "null") {
		return true
	}
	for _, r := range text {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("./_+", r):
		case strings.ContainsRune(":-", r) && text[0] != byte(r) && text[len(text)-1] != byte(r):
		default:
			return true
		}
	}
	return false
}

const textWidth = 96

// writeWrapped writes text as lines of at most textWidth bytes that begin with
// prefix and a blank. A longer word has a line of its own.
func writeWrapped(b *strings.Builder, prefix, text string) {
	line := prefix
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > textWidth && line != prefix {
			b.WriteString(line + "\n")
			line = prefix
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

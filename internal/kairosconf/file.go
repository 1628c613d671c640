package kairosconf

import (
	"bufio"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"varve/internal/clip"
)

const root = "kairosdb."

// A File is a configuration as flat keys without the prefix "kairosdb.". The objects of
// a list have the keys key[0], key[1], ...
type File struct {
	values  map[string]string
	lists   map[string][]string // lists of single values
	foreign []string            // keys that are not below kairosdb
}

// Parse parses a configuration: Java properties if name ends in .properties, HOCON
// otherwise. getenv looks up substitutions that the file does not define; it may be nil.
func Parse(name string, data []byte, getenv func(string) (string, bool)) (*File, error) {
	f := &File{values: map[string]string{}, lists: map[string][]string{}}
	if getenv == nil {
		getenv = func(string) (string, bool) { return "", false }
	}
	var err error
	if filepath.Ext(name) == ".properties" {
		err = f.readProperties(string(data))
	} else {
		var o object
		if o, err = parseHOCON(string(data), getenv); err == nil {
			f.add("", o)
		}
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(f.foreign)
	return f, nil
}

// add adds a value and all values below it.
func (f *File) add(key string, v any) {
	switch v := v.(type) {
	case object:
		for name, inner := range v {
			f.add(strings.TrimPrefix(key+"."+name, "."), inner)
		}
	case list:
		f.addList(key, v)
	case string:
		f.set(key, v)
	}
}

func (f *File) addList(key string, items list) {
	texts := make([]string, 0, len(items))
	for i, v := range items {
		if text, ok := v.(string); ok {
			texts = append(texts, text)
		} else {
			f.add(fmt.Sprintf("%s[%d]", key, i), v)
		}
	}
	name, ok := strings.CutPrefix(key, root)
	switch {
	case len(texts) != len(items):
	case ok:
		f.lists[name] = texts
	default:
		f.foreign = append(f.foreign, key)
	}
}

func (f *File) set(key, value string) {
	if name, ok := strings.CutPrefix(key, root); ok {
		f.values[name] = value
	} else {
		f.foreign = append(f.foreign, key)
	}
}

// readProperties parses key=value lines as Java does, except that it does not know the escapes of
// code points (backslash, u, four digits).
func (f *File) readProperties(text string) error {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	unescape := strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r", `\`, "")
	for n := 1; lines.Scan(); n++ {
		first := n
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continues(line) {
			line = line[:len(line)-1]
			if !lines.Scan() {
				break
			}
			n++
			line += strings.TrimSpace(lines.Text())
		}
		at := strings.IndexAny(line, "=:")
		if at < 1 {
			return fmt.Errorf("line %d%s: no = or : in it; want key=value", first, keyOf(line))
		}
		f.set(unescape.Replace(strings.TrimSpace(line[:at])), unescape.Replace(strings.TrimSpace(line[at+1:])))
	}
	return lines.Err()
}

// keyOf returns the key at the beginning of a line without a value, for a message. The
// message does not quote the rest of the line: it may be a password.
func keyOf(line string) string {
	word, _, _ := strings.Cut(line, " ")
	word, _, _ = strings.Cut(word, "\t")
	if !strings.HasPrefix(word, root) {
		return ""
	}
	return ", " + clip.Text(word, maxKey)
}

// maxKey is the number of bytes of a key that a message quotes.
const maxKey = 100

// continues reports whether the next line continues a line: it ends in a backslash that
// is not itself escaped.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// list returns the value of a key as a list. In properties, commas separate the items.
func (f *File) list(key string) ([]string, bool) {
	if list, ok := f.lists[key]; ok {
		return list, true
	}
	text, ok := f.values[key]
	if !ok {
		return nil, false
	}
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list, true
}

// keys lists all keys, sorted.
func (f *File) keys() []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(f.values)), maps.Keys(f.lists))
	slices.Sort(keys)
	return keys
}

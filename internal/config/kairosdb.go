package config

import (
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"varve/internal/carbonconf"
	"varve/internal/kairosconf"
)

// KairosDB is what became of a configuration file of KairosDB.
type KairosDB struct {
	Path    string
	Mapping kairosconf.Mapping
}

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
	l.kairosDB = &KairosDB{Path: path, Mapping: mapping}
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

// A Remark is one reason and the keys of another server's configuration that it is about.
type Remark struct {
	Why  string
	Keys []string
}

// Notes lists, by reason, the keys that set nothing and need not.
func (k *KairosDB) Notes() []Remark { return byReason(k.Mapping.Notes) }

// Warnings lists, by reason, the keys that matter and set nothing.
func (k *KairosDB) Warnings() []Remark {
	return withUnknown(byReason(k.Mapping.Warnings), k.Mapping.Unknown)
}

// withUnknown appends a remark about keys that are not known, if there are any.
func withUnknown(all []Remark, unknown []string) []Remark {
	if len(unknown) > 0 {
		all = append(all, Remark{"Varve does not know these keys and ignores them", unknown})
	}
	return all
}

// byReason puts the keys of one reason together. notes are sorted by reason.
func byReason[N kairosconf.Note | carbonconf.Note](notes []N) []Remark {
	var all []Remark
	for _, n := range notes {
		n := kairosconf.Note(n)
		if at := len(all) - 1; at >= 0 && all[at].Why == n.Why {
			all[at].Keys = append(all[at].Keys, n.Key)
		} else {
			all = append(all, Remark{n.Why, []string{n.Key}})
		}
	}
	return all
}

// writeComment says, as comments of YAML, which keys set nothing.
func (k *KairosDB) writeComment(w io.Writer) error {
	return writeRemarks(w, k.Path, k.Warnings(), k.Notes())
}

// writeRemarks writes as comments of YAML which keys of a file set nothing.
func writeRemarks(w io.Writer, path string, warnings, notes []Remark) error {
	var b strings.Builder
	for _, part := range []struct {
		title   string
		remarks []Remark
	}{
		{"sets nothing with these keys, which matter:", warnings},
		{"sets nothing with these keys, which Varve can do without:", notes},
	} {
		if len(part.remarks) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n# %s %s\n", oneLine(path), part.title)
		for _, r := range part.remarks {
			writeWrapped(&b, "#  ", r.Why+":")
			for _, key := range r.Keys {
				fmt.Fprintf(&b, "#     %s\n", oneLine(key))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

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
	"varve/internal/foreign"
	"varve/internal/kairosconf"
)

// Foreign describes how the configuration file of another server was applied.
type Foreign struct {
	Path string
	Name string // in messages
	foreign.Mapping
}

// applyKairosDB applies a configuration of KairosDB.
func (l *layers) applyKairosDB(path string, data []byte) {
	parsed, err := kairosconf.Parse(path, data, func(name string) (string, bool) {
		text := fromEnvironment(l.src.Environment, name)
		return text, text != ""
	})
	if err != nil {
		l.fail("file %s: %w", path, err)
		return
	}
	l.applyForeign(Foreign{path, "KairosDB's configuration", parsed.Map()})
}

// applyCarbon applies a carbon.conf, and sets the paths of the files beside it
// that Varve reads.
func (l *layers) applyCarbon(path string, data []byte) {
	l.applyForeign(Foreign{path, "carbon.conf", carbonconf.Parse(path, string(data), func(name string) bool {
		_, err := l.src.ReadFile(name)
		return err == nil
	})})
}

func (l *layers) applyForeign(f Foreign) {
	file := "file " + filepath.Base(f.Path)
	for _, err := range f.Faults {
		l.fail("%s: %w", file, err)
	}
	for key, n := range lengths(f.Settings) {
		if list, known := l.byKey[key]; known && list.items {
			l.setItems(list, n, file)
		}
	}
	for _, s := range f.Settings {
		origin := file + ": " + s.From
		to, known := l.byKey[s.Key]
		switch {
		case !known: // a test checks that this does not happen
			l.fail("%s: there is no setting %s", origin, s.Key)
		case s.List != nil && to.isList():
			to.value.Set(reflect.ValueOf(slices.Clone(s.List)))
			l.origins[to.key] = origin
		default:
			l.set(to, s.Value, origin)
		}
	}
	if len(f.Unknown) > 0 {
		f.Warnings = append(f.Warnings, foreign.Remark{Why: "Varve does not know these keys and ignores them", Keys: f.Unknown})
	}
	l.foreign = append(l.foreign, f)
}

var itemKey = regexp.MustCompile(`^(.+)\[(\d+)\]\.`)

// lengths returns how many items each list of sections has.
func lengths(settings []foreign.Setting) map[string]int {
	lists := map[string]int{}
	for _, s := range settings {
		if m := itemKey.FindStringSubmatch(s.Key); m != nil {
			i, _ := strconv.Atoi(m[2])
			lists[m[1]] = max(lists[m[1]], i+1)
		}
	}
	return lists
}

// writeComment writes YAML comments with the keys that set nothing.
func (f Foreign) writeComment(w io.Writer) error {
	var b strings.Builder
	for _, part := range []struct {
		title   string
		remarks []foreign.Remark
	}{
		{"has keys without effect in Varve that matter:", f.Warnings},
		{"has keys without effect that Varve does not need:", f.Notes},
	} {
		if len(part.remarks) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n# %s %s\n", oneLine(f.Path), part.title)
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

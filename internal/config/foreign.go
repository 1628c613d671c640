package config

import (
	"fmt"
	"io"
	"strings"

	"varve/internal/carbonconf"
	"varve/internal/kairosconf"
)

// Foreign is what became of the configuration file of another server.
type Foreign struct {
	Path     string
	Name     string   // in messages
	Settings int      // that it sets
	Notes    []Remark // keys that set nothing and need not, by reason
	Warnings []Remark // keys that matter and set nothing, by reason
}

// A Remark is one reason and the keys of another server's configuration that it is about.
type Remark struct {
	Why  string
	Keys []string
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
func (f *Foreign) writeComment(w io.Writer) error {
	if f == nil {
		return nil
	}
	var b strings.Builder
	for _, part := range []struct {
		title   string
		remarks []Remark
	}{
		{"sets nothing with these keys, which matter:", f.Warnings},
		{"sets nothing with these keys, which Varve can do without:", f.Notes},
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

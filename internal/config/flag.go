package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// ErrHelp is returned by Load when the flags ask for help.
var ErrHelp = errors.New("help wanted")

// Flags that name files.
const (
	fileFlag   = "config"
	kairosFlag = "kairosdb-conf"
	carbonFlag = "carbon-conf"
)

var fileFlags = []string{fileFlag, kairosFlag, carbonFlag}

// isOwnFlag reports whether a flag that takes a value sets no setting.
func isOwnFlag(name string) bool { return name == tuneFlag || slices.Contains(fileFlags, name) }

// flagOrigin begins the origin of a setting that a flag sets.
const flagOrigin = "flag --"

// An argument is one flag of the command line.
type argument struct{ name, value string }

// applyFlags applies args.
func (l *layers) applyFlags(args []argument) {
	names, byName := l.flags()
	for _, a := range args {
		if isOwnFlag(a.name) {
			if a.name == tuneFlag {
				l.tune(a.value)
			}
			continue
		}
		f, ok := byName[a.name]
		if !ok {
			l.fail("flag --%s: unknown%s", a.name, l.orRemoved(a.name, field.flag, func() string { return orNearest(a.name, names, "-", "--") }))
			continue
		}
		l.set(f, a.value, flagOrigin+a.name)
	}
}

// flags returns all flag names, and the setting of each flag except those that
// name files.
func (l *layers) flags() ([]string, map[string]field) {
	names, byName := l.names(field.flag)
	for _, s := range shortFlags {
		if f, ok := l.byKey[s.key]; ok {
			names = append(names, s.flag)
			byName[s.flag] = f
		}
	}
	return append(names, fileFlags...), byName
}

// parseFlags splits args into flags. Forms are --name value, --name=value,
// both also with one dash, and --name alone for true or false. A value is
// taken as it is, so it may begin with a dash.
func (l *layers) parseFlags(args []string) ([]argument, error) {
	_, byName := l.flags()
	var list []argument
	var errs []error
	alone := "" // the previous flag, if it is a boolean without a value
	for len(args) > 0 {
		word, before := args[0], alone
		args, alone = args[1:], ""
		name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
		f, known := byName[name]
		switch {
		case before != "" && !strings.HasPrefix(word, "-"):
			errs = append(errs, fmt.Errorf("flag --%s: unexpected value %q; write --%[1]s=true or --%[1]s=false", before, word))
			continue
		case !strings.HasPrefix(word, "-") || name == "":
			errs = append(errs, fmt.Errorf("unexpected argument %q; only flags are allowed", word))
			continue
		case name == "help" || name == "h":
			return nil, ErrHelp
		case hasValue:
		case known && f.value.Kind() == reflect.Bool:
			value, alone = "true", name
		case !known && !isOwnFlag(name):
			// The next word may be its value or not: do not report it too.
			if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = args[1:]
			}
		case len(args) == 0:
			errs = append(errs, fmt.Errorf("flag --%s: needs a value", name))
			continue
		default:
			value, args = args[0], args[1:]
		}
		list = append(list, argument{name, value})
	}
	return list, errors.Join(errs...)
}

// Split divides args into the flags that Load accepts, with their values, and all other
// arguments, both in their order. It is for commands that accept more than settings; own are
// the names of their own flags. An unknown flag that resembles none of own goes to Load, whose
// error suggests a flag.
func Split(args []string, own ...string) (settings, rest []string) {
	root := Default()
	_, byName := newLayers(&root).flags()
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		name, _, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
		f, known := byName[name]
		setting := known || isOwnFlag(name)
		if !strings.HasPrefix(word, "-") || !setting && Nearest(name, own) != "" {
			rest = append(rest, word)
			continue
		}
		settings = append(settings, word)
		if !setting && len(args) > 0 && strings.HasPrefix(args[0], "-") {
			continue
		}
		if !hasValue && (!known || f.value.Kind() != reflect.Bool) && len(args) > 0 {
			settings, args = append(settings, args[0]), args[1:]
		}
	}
	return settings, rest
}

package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"varve/internal/units"
)

// layers sets fields of one configuration struct and remembers who set them.
type layers struct {
	src     Sources
	fields  []field
	byKey   map[string]field
	items   map[string][]field // of each list of sections, its items and their fields; they are in byKey too
	origins map[string]string  // key of a setting -> layer and place
	errs    []error
	unread  []string // keys of items that are not mappings; nothing else is reported about them

	constants map[string]field  // by key; see constantTag
	standard  map[string]string // their values before --tune
	tuned     []string

	foreign []Foreign
}

func newLayers(root any) *layers {
	l := &layers{fields: fields(root), byKey: map[string]field{}, items: map[string][]field{}, origins: map[string]string{}}
	for _, f := range l.fields {
		l.byKey[f.key] = f
	}
	l.constants, l.standard = constants(reflect.ValueOf(root).Elem(), ""), map[string]string{}
	for key, f := range l.constants {
		if !f.value.IsZero() { // a zero constant follows a setting, as the text about its removal says
			l.standard[key] = formatText(f.value)
		}
	}
	return l
}

// setItems makes a list of n sections of f, in place of what it had.
func (l *layers) setItems(f field, n int, origin string) {
	for _, old := range l.items[f.key] {
		delete(l.byKey, old.key)
		delete(l.origins, old.key)
	}
	f.value.SetZero()
	if n > 0 {
		f.value.Set(reflect.MakeSlice(f.value.Type(), n, n))
	}
	var list []field
	for i := range n {
		item := f.value.Index(i)
		item.Set(f.newItem())
		key := fmt.Sprintf("%s[%d]", f.key, i)
		list = append(list, field{key: key, section: true, value: item})
		list = append(list, itemFields(item, key)...)
	}
	for _, field := range list {
		l.byKey[field.key] = field
	}
	l.items[f.key] = list
	l.origins[f.key] = origin
	l.unread = slices.DeleteFunc(l.unread, func(key string) bool { return strings.HasPrefix(key, f.key+"[") })
}

// all lists the fields, those of items too.
func (l *layers) all() []field {
	all := slices.Clone(l.fields)
	for _, f := range l.fields {
		all = append(all, l.items[f.key]...)
	}
	return all
}

// itemOf lists the fields of the item that a key is in, none if it is in no item.
func (l *layers) itemOf(key string) []field {
	list, rest, isItem := strings.Cut(key, "[")
	number, _, _ := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	f, known := l.byKey[list]
	if !isItem || !known || !f.items || err != nil || i < 0 || i >= f.value.Len() {
		return nil
	}
	fields := l.items[list] // all items have the same number of fields
	each := len(fields) / f.value.Len()
	return fields[i*each : (i+1)*each]
}

// set gives f the value that text means. origin is the layer and place of the
// text.
func (l *layers) set(f field, text, origin string) {
	if err := units.SetText(f.value, text); err != nil {
		l.fail("%s: %s: %w", origin, f.key, err)
		return
	}
	l.origins[f.key] = origin
}

func (l *layers) fail(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

// err is all failures at once, nil if there are none.
func (l *layers) err() error { return errors.Join(l.errs...) }

// names returns the name that each field goes by in a layer, and the field of
// each name.
func (l *layers) names(of func(field) string) ([]string, map[string]field) {
	byName := make(map[string]field, len(l.fields))
	var names []string
	for _, f := range l.fields {
		if !f.section {
			names = append(names, of(f))
			byName[of(f)] = f
		}
	}
	return names, byName
}

// validate asks root and every section below it that has a Validate method.
// A message that does not begin with the key of its section gets this key as a
// prefix, so that a package can name its settings without knowing the section.
func (l *layers) validate(root any) {
	if v, ok := root.(interface{ Validate() error }); ok {
		for _, err := range flatten(v.Validate()) {
			l.report(err.Error())
		}
	}
	for _, f := range l.all() {
		v, ok := f.value.Interface().(interface{ Validate() error })
		if !ok || !f.section {
			continue
		}
		for _, err := range flatten(v.Validate()) {
			message := err.Error()
			if !strings.HasPrefix(message, f.key+".") {
				message = f.key + "." + message
			}
			if !l.aboutSection(message) {
				l.report(message)
			}
		}
	}
}

// report adds a message of a Validate method, unless it is about an item that was not read.
func (l *layers) report(message string) {
	for _, key := range l.unread {
		if strings.HasPrefix(message, key+".") {
			return
		}
	}
	l.errs = append(l.errs, l.located(message))
}

// aboutSection reports whether message is an error of a section that the
// surrounding section has passed on. Such a message is dropped, because
// validate asks each section itself.
func (l *layers) aboutSection(message string) bool {
	key, _, _ := strings.Cut(message, ":")
	return l.byKey[key].section
}

// located prefixes a message with the origin of the setting with which the
// message begins.
func (l *layers) located(message string) error {
	key := message
	if end := strings.IndexFunc(message, func(r rune) bool { return !isKeyRune(r) }); end >= 0 {
		key = message[:end]
	}
	if origin := l.origins[strings.TrimRight(key, ".")]; origin != "" {
		return fmt.Errorf("%s: %s", origin, message)
	}
	return errors.New(message)
}

func isKeyRune(r rune) bool {
	return strings.ContainsRune("._[]", r) || r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
}

// flatten lists the errors that errors.Join put together.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var list []error
	for _, e := range joined.Unwrap() {
		list = append(list, flatten(e)...)
	}
	return list
}

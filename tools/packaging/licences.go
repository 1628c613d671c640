package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licences are the texts under which modules may be used.
type licences struct {
	own     []byte // Varve's
	modules []licence
}

type licence struct {
	module string
	id     string   // SPDX expression: https://spdx.org/licenses/
	texts  []string // contents of the licence and notice files
}

// readLicences reads the texts in the modules, and Go's own.
func readLicences(ctx context.Context, root string, all []module) (*licences, error) {
	own, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	l := &licences{own: own}
	goroot, err := output(ctx, root, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{"The Go standard library": goroot}
	paths := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	for _, m := range all {
		paths = append(paths, m.Path)
	}
	listed, err := output(ctx, root, "go", paths...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(listed) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[name] = dir
	}
	for name, dir := range dirs {
		one, err := licenceIn(dir)
		if err != nil {
			return nil, fmt.Errorf("licence of %s: %w", name, err)
		}
		one.module = name
		l.modules = append(l.modules, one)
	}
	slices.SortFunc(l.modules, func(a, b licence) int { return strings.Compare(a.module, b.module) })
	return l, nil
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([._-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([._-].*)?$`)
)

// licenceIn reads the licence and the notices in the directory of a module.
func licenceIn(dir string) (l licence, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return l, err
	}
	var ids []string
	for _, e := range entries {
		isLicence := licenceFile.MatchString(e.Name())
		if e.IsDir() || !isLicence && !noticeFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return l, err
		}
		l.texts = append(l.texts, string(text))
		if isLicence {
			ids = append(ids, identify(string(text))...)
		}
	}
	slices.Sort(ids)
	l.id = strings.Join(slices.Compact(ids), " AND ")
	if l.id == "" {
		return l, errors.New("no file has the text of a known licence; read them, and add the licence to known in licences.go")
	}
	return l, nil
}

// known are the licences that are common among Go modules, each with words that only its
// text contains. White space is normalised.
var known = []struct{ id, words string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"Apache-2.0", "Apache License, Version 2.0"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License, version 2.0"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "Neither the name"},
	{"BSD-3-Clause", "names of its contributors may"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
}

// identify returns the SPDX identifiers of the licences in a text, sorted.
func identify(text string) (ids []string) {
	words := strings.Join(strings.Fields(text), " ")
	for _, k := range known {
		if strings.Contains(words, k.words) && !slices.Contains(ids, k.id) {
			ids = append(ids, k.id)
		}
	}
	if strings.Contains(words, "Redistribution and use in source and binary forms") && !slices.Contains(ids, "BSD-3-Clause") {
		ids = append(ids, "BSD-2-Clause")
	}
	slices.Sort(ids)
	return ids
}

// id returns the licence of a module, "" if l does not have the module.
func (l *licences) id(module string) string {
	for _, one := range l.modules {
		if one.module == module {
			return one.id
		}
	}
	return ""
}

// text returns the licence file of a package. It contains the full texts of Varve's
// licence and those of all modules, because the licences require that.
func (l *licences) text() []byte {
	var b strings.Builder
	b.WriteString("Varve is licensed under the Apache License, version 2.0. Its binary contains these modules:\n\n")
	for _, one := range l.modules {
		fmt.Fprintf(&b, "  %s: %s\n", one.module, one.id)
	}
	rule := strings.Repeat("=", 79)
	fmt.Fprintf(&b, "\n%s\nVarve\n%s\n\n%s", rule, rule, l.own)
	for _, one := range l.modules {
		fmt.Fprintf(&b, "\n%s\n%s (%s)\n%s\n", rule, one.module, one.id, rule)
		for _, text := range one.texts {
			b.WriteString("\n" + strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) + "\n")
		}
	}
	return []byte(b.String())
}

// table returns the table rows of docs/dependencies.md.
func (l *licences) table() string {
	var b strings.Builder
	for _, one := range l.modules {
		fmt.Fprintf(&b, "| `%s` | %s |\n", one.module, one.id)
	}
	return b.String()
}

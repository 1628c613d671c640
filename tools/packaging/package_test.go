package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite docs/dependencies.md")

var day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// packed packs a small file in place of a binary.
func packed(t *testing.T, system string) *release {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "varve")
	if err := os.WriteFile(binary, []byte("not really"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &release{root: filepath.Join("..", ".."), out: dir, version: "v1.2.3", when: day, texts: &licences{own: []byte("LICENCE\n")}}
	target := target{os: system, arch: "arm64", binary: binary}
	bill, err := r.bill(target, modules{goVersion: "go1.26.0", all: []module{{"example.org/A", "v1.0.0", "h1:x"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.archive(target, bill); err != nil {
		t.Fatal(err)
	}
	if system == "linux" {
		if err := r.debian(target, bill); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeSums(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// members splits an ar archive.
func members(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	rest, ok := bytes.CutPrefix(data, []byte("!<arch>\n"))
	if !ok {
		t.Fatalf("not an ar archive: %q", data[:8])
	}
	found := map[string][]byte{}
	for len(rest) > 0 {
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || string(rest[58:60]) != "`\n" {
			t.Fatalf("header %q", rest[:60])
		}
		found[strings.TrimSpace(string(rest[:16]))] = rest[60 : 60+size]
		rest = rest[60+size+size%2:]
	}
	return found
}

// untar reads a compressed archive. It returns the files, and the modes of all entries.
func untar(t *testing.T, data []byte) (files map[string]string, modes map[string]int64) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files, modes = map[string]string{}, map[string]int64{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Uname != "root" || !h.ModTime.Equal(day) {
			t.Errorf("%s: owner %d %s, time %v", h.Name, h.Uid, h.Uname, h.ModTime)
		}
		modes[h.Name] = h.Mode
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = string(text)
		}
	}
}

// TestDebianPackage reads a package back: the parts are in the right order and place, the
// checksums are right, and the scripts are executable.
func TestDebianPackage(t *testing.T) {
	r := packed(t, "linux")
	parts := members(t, r.read(t, "varve_1.2.3_arm64.deb"))
	if string(parts["debian-binary"]) != "2.0\n" {
		t.Errorf("debian-binary: %q", parts["debian-binary"])
	}
	data, modes := untar(t, parts["data.tar.gz"])
	for name, mode := range map[string]int64{"./": 0o755, "./usr/bin/varve": 0o755, "./etc/varve/varve.yaml": 0o644,
		"./usr/lib/systemd/system/varve.service": 0o644, "./usr/share/doc/varve/copyright": 0o644, "./usr/share/doc/varve/docs/operations.md": 0o644} {
		if modes[name] != mode {
			t.Errorf("%s has mode %o, want %o", name, modes[name], mode)
		}
	}
	control, modes := untar(t, parts["control.tar.gz"])
	for _, script := range []string{"./postinst", "./prerm", "./postrm"} {
		if modes[script] != 0o755 || !strings.HasPrefix(control[script], "#!/bin/sh\n") {
			t.Errorf("%s: mode %o, text %q", script, modes[script], control[script])
		}
	}
	if !strings.Contains(control["./control"], "\nVersion: 1.2.3\nArchitecture: arm64\n") || control["./conffiles"] != "/etc/varve/varve.yaml\n" {
		t.Errorf("control: %s%s", control["./control"], control["./conffiles"])
	}
	sums := 0
	for line := range strings.Lines(control["./md5sums"]) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if want := fmt.Sprintf("%x", md5.Sum([]byte(data["./"+name]))); sum != want {
			t.Errorf("%s: sum %s, want %s", name, sum, want)
		}
		sums++
	}
	if sums != len(data)-1 {
		t.Errorf("%d sums of %d files, want all but the configuration", sums, len(data))
	}
}

// TestDebianPackageOpens: dpkg can read the package.
func TestDebianPackageOpens(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("DPKG NOT TRIED: it is not on this machine")
	}
	r := packed(t, "linux")
	path := filepath.Join(r.out, "varve_1.2.3_arm64.deb")
	for want, args := range map[string][]string{
		"1.2.3\n":                 {"-f", path, "Version"},
		"./usr/bin/varve":         {"-c", path},
		"/etc/varve/varve.yaml\n": {"-I", path, "conffiles"},
	} {
		out, err := exec.Command("dpkg-deb", args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("dpkg-deb %v: %v, no %q in\n%s", args, err, want, out)
		}
	}
}

// TestLinksOfPackages: the links of the pages lead to pages that the packages have too, except to
// files for those who change the source.
func TestLinksOfPackages(t *testing.T) {
	linux := packed(t, "linux")
	data, _ := untar(t, members(t, linux.read(t, "varve_1.2.3_arm64.deb"))["data.tar.gz"])
	archive, _ := untar(t, linux.read(t, "varve-v1.2.3-linux-arm64.tar.gz"))
	link := regexp.MustCompile(`\]\(([\w./-]+)(#[^)]*)?\)`)
	for name, files := range map[string]map[string]string{"Debian": data, "archive": archive} {
		links := 0
		for page, text := range files {
			if path.Ext(page) != ".md" {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(text, -1) {
				target := path.Join(path.Dir(page), m[1])
				if slices.Contains([]string{"CONTRIBUTING.md", "LICENSE", "go.mod"}, path.Base(target)) {
					continue
				}
				links++
				within := func(file string) bool {
					return path.Clean(file) == target || strings.HasPrefix(path.Clean(file), target+"/")
				}
				if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), within) {
					t.Errorf("%s: %s links to %s, which is not there", name, page, m[1])
				}
			}
		}
		if links < 100 {
			t.Errorf("%s: only %d links", name, links)
		}
	}
}

// TestSameBytes: the same sources give the same bytes.
func TestSameBytes(t *testing.T) {
	for _, system := range []string{"linux", "windows"} {
		a, b := packed(t, system), packed(t, system)
		if !slices.Equal(a.built, b.built) || len(a.built) == 0 {
			t.Fatalf("files %v and %v", a.built, b.built)
		}
		if !bytes.Equal(a.read(t, "SHA256SUMS"), b.read(t, "SHA256SUMS")) {
			t.Errorf("%s: sums differ:\n%s%s", system, a.read(t, "SHA256SUMS"), b.read(t, "SHA256SUMS"))
		}
	}
}

// TestArchives: each archive has the executable binary, the licences and the deployment
// examples.
func TestArchives(t *testing.T) {
	files, modes := untar(t, packed(t, "darwin").read(t, "varve-v1.2.3-darwin-arm64.tar.gz"))
	if modes["varve-v1.2.3-darwin-arm64/varve"] != 0o755 {
		t.Errorf("modes %v", modes)
	}
	for _, name := range []string{"LICENSE", "licences.txt", "sbom.cdx.json", "deploy/debian/varve.service", "docs/operations.md"} {
		if files["varve-v1.2.3-darwin-arm64/"+name] == "" {
			t.Errorf("no %s", name)
		}
	}
	data := packed(t, "windows").read(t, "varve-v1.2.3-windows-arm64.zip")
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := z.Open("varve-v1.2.3-windows-arm64/varve")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestDebianVersion: dpkg sorts versions as git describe does.
func TestDebianVersion(t *testing.T) {
	later := day.Add(time.Hour)
	ordered := []struct {
		version string
		when    time.Time
		want    string
	}{
		{"83c093d", day, "0~20260102030405.83c093d"},
		{"1230938-dirty", later, "0~20260102040405.1230938+changed"},
		{"v0.9.0~rc1", later, "0.9.0~rc1"},
		{"v0.9.0", later, "0.9.0"},
		{"v0.9.0-5-gabcdef0", later, "0.9.0+5.abcdef0"},
		{"v0.9.0-12-gabcdef0-dirty", later, "0.9.0+12.abcdef0+changed"},
		{"1.0.0", day, "1.0.0"},
	}
	for i, v := range ordered {
		got := debianVersion(v.version, v.when)
		if got != v.want {
			t.Errorf("%s: %s, want %s", v.version, got, v.want)
		}
		if _, err := exec.LookPath("dpkg"); err != nil || i == 0 {
			continue
		}
		before := ordered[i-1].want
		if err := exec.Command("dpkg", "--compare-versions", before, "lt", got).Run(); err != nil {
			t.Errorf("%s is not less than %s: %v", before, got, err)
		}
	}
	if got := debianVersion("my build", day); got != "0~20260102030405.my.build" {
		t.Errorf("another version: %s", got)
	}
}

// TestBill: the SBOM has each module with its licence.
func TestBill(t *testing.T) {
	r := &release{version: "v1", when: day, texts: &licences{modules: []licence{{module: "example.org/A", id: "MIT"}}}}
	text, err := r.bill(target{os: "linux", arch: "amd64"}, modules{goVersion: "go1.26.0", all: []module{{"example.org/A", "v1.0.0+incompatible", "h1:x"}}})
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Metadata.Timestamp != "2026-01-02T03:04:05Z" || len(b.Components) != 2 || b.Components[0].Version != "1.26.0" {
		t.Fatalf("%s", text)
	}
	a := b.Components[1]
	if a.PURL != "pkg:golang/example.org/a@v1.0.0+incompatible" || a.Licences[0].Expression != "MIT" || !slices.Equal(b.Depends[0].DependsOn, []string{b.Components[0].Ref, a.Ref}) {
		t.Errorf("%s", text)
	}
}

func TestIdentify(t *testing.T) {
	for text, want := range map[string]string{
		"Permission is hereby granted,\n\tfree of charge, to any person obtaining a copy":                                             "MIT",
		"Redistribution and use in source and binary forms ... Neither the name of":                                                   "BSD-3-Clause",
		"Redistribution and use in source and binary forms":                                                                           "BSD-2-Clause",
		"Apache License\n Version 2.0, January 2004 ... Permission is hereby granted, free of charge, to any person obtaining a copy": "Apache-2.0 MIT",
		"All rights reserved.": "",
	} {
		if got := strings.Join(identify(text), " "); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if _, err := licenceIn(t.TempDir()); err == nil {
		t.Error("a module without a licence is taken")
	}
}

const dependenciesHead = "# Dependencies\n\n" +
	"Varve's binary contains these modules, under these licences; [go.mod](../go.mod) has their versions. Packages carry the texts of the\n" +
	"licences, and a list of what is in the binary (SBOM, CycloneDX). All licences are permissive: they ask that the texts are passed on.\n" +
	"This page is generated: `go test ./tools/packaging -run TestDependencies -update`.\n\n" +
	"| module | licence |\n|---|---|\n"

// permissive are the licences that a module may have without further review.
var permissive = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// TestDependencies: docs/dependencies.md lists the modules of the binary of every
// platform, and their licences.
func TestDependencies(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]module{}
	t.Setenv("CGO_ENABLED", "0") // as in packages
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Setenv("GOOS", system)
		listed, err := output(t.Context(), root, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Version}}{{end}}", "./cmd/varve")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(listed) {
			if name, version, _ := strings.Cut(strings.TrimSpace(line), "\t"); version != "" {
				seen[name] = module{Path: name, Version: version}
			}
		}
	}
	var all []module
	for _, m := range seen {
		all = append(all, m)
	}
	l, err := readLicences(context.Background(), root, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range l.modules {
		for _, id := range strings.Split(one.id, " AND ") {
			if !slices.Contains(permissive, id) {
				t.Errorf("%s has the licence %s: may it be passed on with Varve?", one.module, id)
			}
		}
	}
	page := filepath.Join(root, "docs", "dependencies.md")
	want := dependenciesHead + l.table()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/dependencies.md is old (-update writes it); want\n%s", want)
	}
}

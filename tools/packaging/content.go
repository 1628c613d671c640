package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A content is the files of an archive by their path in it, separated by slashes.
type content map[string]file

type file struct {
	data []byte
	mode fs.FileMode
}

// add adds the file at source, a path on this machine, as name.
func (c content) add(name, source string, mode fs.FileMode) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	c[name] = file{data, mode}
	return nil
}

// addTree adds all files below source below name.
func (c content) addTree(name, source string) error {
	return filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		return c.add(path.Join(name, filepath.ToSlash(below)), p, 0o644)
	})
}

// names lists the files in order.
func (c content) names() []string { return slices.Sorted(maps.Keys(c)) }

// directories lists the directories of the files, each after its parent.
func (c content) directories() []string {
	seen := map[string]bool{}
	for name := range c {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			seen[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// tarGz renders c as a compressed archive. Equal contents and arguments give equal bytes.
// Paths begin with prefix; all files belong to root.
func (c content) tarGz(prefix string, when time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	header := func(name string, kind byte, mode fs.FileMode, size int) error {
		return w.WriteHeader(&tar.Header{Typeflag: kind, Name: prefix + name, Mode: int64(mode), Size: int64(size),
			ModTime: when, Uname: "root", Gname: "root", Format: tar.FormatGNU})
	}
	dirs := c.directories()
	if strings.HasPrefix(prefix, ".") {
		dirs = append([]string{""}, dirs...) // dpkg expects an entry for the root directory
	}
	for _, dir := range dirs {
		name := dir + "/"
		if dir == "" {
			name = ""
		}
		if err := header(name, tar.TypeDir, 0o755, 0); err != nil {
			return nil, err
		}
	}
	for _, name := range c.names() {
		if err := header(name, tar.TypeReg, c[name].mode, len(c[name].data)); err != nil {
			return nil, err
		}
		if _, err := w.Write(c[name].data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// zip renders c as a ZIP file, for Windows.
func (c content) zip(prefix string, when time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range c.names() {
		h := &zip.FileHeader{Name: prefix + name, Method: zip.Deflate, Modified: when}
		h.SetMode(c[name].mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(c[name].data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// archive writes the archive of t: the binary, documentation, licences and examples of
// deployment.
func (r *release) archive(t target, bill []byte) error {
	c := content{"licences.txt": {r.texts.text(), 0o644}, "sbom.cdx.json": {bill, 0o644}}
	if err := c.add(filepath.Base(t.binary), t.binary, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		if err := c.add(name, filepath.Join(r.root, name), 0o644); err != nil {
			return err
		}
	}
	for _, tree := range []string{"docs", "deploy"} {
		if err := c.addTree(tree, filepath.Join(r.root, tree)); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("varve-%s-%s", r.version, t)
	if t.os == "windows" {
		data, err := c.zip(name+"/", r.when)
		if err != nil {
			return err
		}
		return r.write(name+".zip", data)
	}
	data, err := c.tarGz(name+"/", r.when)
	if err != nil {
		return err
	}
	return r.write(name+".tar.gz", data)
}

package blockfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"varve/internal/chunk"
	"varve/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// piece is one chunk as tests write and compare it.
type piece struct {
	Series model.SeriesNumber
	Kind   model.Kind
	model.Columns
}

// dump renders a chunk with all of its samples.
func (p piece) dump() string {
	s := fmt.Appendf(nil, "series %d %s, %d samples:", p.Series, p.Kind, p.Len())
	for i, ms := range p.Times {
		s = strconv.AppendInt(append(s, ' '), ms, 10)
		switch {
		case p.Kind.Fixed():
			s = strconv.AppendUint(append(s, '='), p.Values[i], 16)
		case p.Kind.Variable():
			s = strconv.AppendQuote(append(s, '='), string(p.Bytes(i)))
		}
		if ttl := p.TTL(i); ttl > 0 {
			s = strconv.AppendUint(append(s, '/'), uint64(ttl), 10)
		}
	}
	return string(s)
}

func dumpAll(pieces []piece) (lines []string) {
	for _, p := range pieces {
		lines = append(lines, p.dump())
	}
	return lines
}

func (p *piece) add(ms int64, value string, ttl uint32) {
	switch {
	case p.Kind.Fixed():
		bits := math.Float64bits(float64(len(value)) + float64(uint64(ms)%1000)/100)
		if p.Kind == model.Long {
			bits = uint64(ms) * 31
		}
		p.AppendFixed(ms, bits, ttl)
	case p.Kind.Variable():
		p.AppendBytes(ms, []byte(value), ttl)
	default:
		p.AppendNull(ms, ttl)
	}
}

// regular is a chunk of n samples from first on, step apart.
func regular(series model.SeriesNumber, kind model.Kind, first, step int64, n int) piece {
	p := piece{Series: series, Kind: kind}
	for i := range int64(n) {
		p.add(first+i*step, fmt.Sprintf("value %d of %d", i, series), 0)
	}
	return p
}

// writeFile writes pieces, one Add each.
func writeFile(t testing.TB, fs vfs.FS, path string, pieces []piece) Properties {
	t.Helper()
	w, err := Create(fs, path, chunk.Best, Origin{Sequence: 7, Deletions: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pieces {
		p := &pieces[i]
		if err := w.Add(p.Series, p.Kind, &p.Columns, 0, p.Len()); err != nil {
			t.Fatal(err)
		}
	}
	props, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return props
}

func openFile(t testing.TB, fs vfs.FS, path string) *File {
	t.Helper()
	f, err := Open(fs, path, 1, NewCache(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// scanAll returns every chunk of f, decoded.
func scanAll(f *File) (all []piece, err error) {
	var d chunk.Decoder
	var failed error
	err = f.Scan(context.Background(), func(e *chunk.Entry) {
		p := piece{Series: e.Series, Kind: e.Kind}
		if err := d.DecodeEntry(e, &p.Columns); err != nil {
			failed = err
		}
		all = append(all, p)
	})
	return all, errors.Join(err, failed)
}

// readAll returns the chunks that an iterator yields.
func readAll(it *Iter) (all []piece, err error) {
	var d chunk.Decoder
	for {
		e, err := it.Next()
		if err != nil || e == nil {
			return all, err
		}
		p := piece{Series: e.Series, Kind: e.Kind}
		if err := d.DecodeEntry(e, &p.Columns); err != nil {
			return all, err
		}
		all = append(all, p)
	}
}

// content writes a file's bytes as they are.
func content(t testing.TB, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(bytes.Clone(b)) // under the race detector it spoils them
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readContent(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// watchedFS counts open files and can fail to close them.
type watchedFS struct {
	vfs.FS
	open      atomic.Int64
	failClose bool
}

var errClose = errors.New("close failed")

func (fs *watchedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.watch(fs.FS.Create(name, category))
}

func (fs *watchedFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	return fs.watch(fs.FS.Open(name, o...))
}

func (fs *watchedFS) watch(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	fs.open.Add(1)
	return &watchedFile{f, fs}, nil
}

type watchedFile struct {
	vfs.File
	fs *watchedFS
}

func (f *watchedFile) Close() error {
	f.fs.open.Add(-1)
	if err := f.File.Close(); err != nil || !f.fs.failClose {
		return err
	}
	return errClose
}

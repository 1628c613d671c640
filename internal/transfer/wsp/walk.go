package wsp

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"varve/internal/graphite/whisper"
)

// An entry is a file of a tree.
type entry struct {
	path  string // below the root, with slashes
	size  int64
	fault *Fault // why it cannot be read
}

// walk calls yield for the files of a tree that follow after, in the order of inOrder.
// It also yields directories that it cannot read or does not enter, because they may
// contain files.
func walk(ctx context.Context, tree fs.FS, after string, yield func(entry) error) error {
	return fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil && path == "." {
			return err
		}
		before := path != "." && after != "" && inOrder(path, after) <= 0
		switch {
		case err != nil && before:
			return nil
		case err != nil:
			return yield(entry{path: path, fault: unreadable(err)})
		case d.IsDir() && before && !strings.HasPrefix(after, path+"/"):
			return fs.SkipDir
		case d.IsDir() || before:
			return nil
		}
		e, ok := look(tree, path, d)
		if !ok {
			return nil
		}
		return yield(e)
	})
}

// look returns the entry of a file. ok is false if the file is not imported.
func look(tree fs.FS, path string, d fs.DirEntry) (e entry, ok bool) {
	named := strings.HasSuffix(path, whisper.Suffix)
	if !named && d.Type()&fs.ModeSymlink == 0 {
		return e, false
	}
	e.path = path
	info, err := fs.Stat(tree, path) // follows a link
	switch {
	case err != nil:
		e.fault = unreadable(err)
		return e, named
	case info.IsDir():
		e.fault = &Fault{Reason: LinkedDirectory, Text: "links to directories are not followed; import it on its own, with --prefix"}
		return e, true
	case !info.Mode().IsRegular():
		e.fault = &Fault{Reason: NotWhisper, Text: "it is not a regular file"}
	}
	e.size = info.Size()
	return e, named
}

func unreadable(err error) *Fault {
	if detail, ok := errors.AsType[*fs.PathError](err); ok {
		err = detail.Err // reports name the path anyway
	}
	return &Fault{Reason: Unreadable, Text: err.Error()}
}

// inOrder compares paths in the order in which walk visits them: node by node.
func inOrder(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// Size returns the bytes of the files that follow after.
func Size(ctx context.Context, tree fs.FS, after string) (bytes int64, err error) {
	err = walk(ctx, tree, after, func(e entry) error {
		bytes += e.size
		return nil
	})
	return bytes, err
}

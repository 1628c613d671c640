package job

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"varve/internal/console"
	"varve/internal/statefile"
	"varve/internal/transfer"
	"varve/internal/units"
)

// An Import reads a file of lines into a sink.
type Import struct {
	In       *os.File
	Path     string // of In; "": the standard input, whose import cannot be resumed
	State    string // the state file; "": Path.state
	Rejected string // the report of rejected lines; "": Path.rejected, or Stderr without Path
	To       string // the name of the destination
	Empty    Empty  // whether the destination is empty; nil: not known
	Sink     transfer.Sink
	MaxLine  int

	Stderr   io.Writer
	Progress *console.Progress

	state  importState
	text   hash.Hash // hash of the text that was read
	report statefile.Report
	before int64 // bytes of the file that an earlier run has read
	total  int64
}

// An importState is the content of a state file.
type importState struct {
	transfer.Position
	Head     string `json:"head"`     // hash of the beginning of the imported file
	Text     string `json:"text"`     // hash of the uncompressed text before Offset; "": not known
	To       string `json:"to"`       // the destination
	Reported int64  `json:"reported"` // bytes of the report of rejected lines
}

// otherState says how to keep two imports apart.
const otherState = "use --state and --rejected to name other files"

// Run imports what earlier runs have not imported, and returns the position that it reached.
func (j *Import) Run(ctx context.Context) (at transfer.Position, err error) {
	if j.Path != "" {
		j.State, j.Rejected = cmp.Or(j.State, j.Path+".state"), cmp.Or(j.Rejected, j.Path+".rejected")
		if err := j.checkReport(); err != nil {
			return at, err
		}
		lock, err := statefile.Lock(j.State, otherState)
		if err != nil {
			return at, err
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		if err := j.resume(ctx); err != nil {
			return at, err
		}
	}
	j.report.Path = j.Rejected
	in := io.Reader(j.In)
	if info, err := j.In.Stat(); err == nil && info.Mode().IsRegular() {
		j.total = info.Size()
	} else {
		in = newLiveReader(ctx, j.In)
	}
	read := &readCounter{r: in}
	text, err := transfer.Unpack(read)
	if err != nil {
		return at, fmt.Errorf("decompress %s: %w", j.Path, err)
	}
	if err := j.skip(text); err != nil {
		return at, err
	}
	j.before = read.n.Load()
	defer func() { err = errors.Join(err, j.report.Close()) }()
	m := &transfer.Import{Sink: j.Sink, MaxLine: j.MaxLine, Text: j.text, Reject: j.reject, Acknowledge: func(p transfer.Position) error {
		n := read.n.Load()
		j.Progress.Update(j.before, n, j.total, fmt.Sprintf("%s read, %d lines, %d points, %d lines rejected, %s/s",
			units.Bytes(n).Text(), p.Line, p.Points, p.Rejected, units.Bytes(j.Progress.Rate(n-j.before)).Text()))
		return j.acknowledge(p)
	}}
	at, err = m.Run(ctx, text, j.state.Position)
	if err == nil && j.State != "" {
		err = os.Remove(j.State)
	}
	return at, err
}

// checkReport returns an error if the report would overwrite the file to import.
func (j *Import) checkReport() error {
	report, err := os.Stat(j.Rejected)
	if err != nil {
		return nil // no such file exists, so none is overwritten
	}
	in, err := j.In.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(report, in) {
		return fmt.Errorf("%s is the file to be imported: name another file with --rejected; nothing was changed", j.Rejected)
	}
	return nil
}

// A liveReader reads a pipe or a terminal. A Read that waits for input returns once ctx is done.
type liveReader struct {
	ctx    context.Context
	pieces chan piece
	piece  piece // whose unread text Read returns next
}

// A piece is what one Read of the input returned.
type piece struct {
	text []byte
	err  error
}

func newLiveReader(ctx context.Context, r io.Reader) *liveReader {
	l := &liveReader{ctx: ctx, pieces: make(chan piece)}
	go func() { // ends with the input, or with the process
		for {
			buf := make([]byte, 64<<10)
			n, err := r.Read(buf)
			select {
			case l.pieces <- piece{buf[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return l
}

// Read implements [io.Reader].
func (l *liveReader) Read(p []byte) (int, error) {
	for len(l.piece.text) == 0 {
		if l.piece.err != nil {
			return 0, l.piece.err
		}
		select {
		case l.piece = <-l.pieces:
		case <-l.ctx.Done():
			return 0, context.Cause(l.ctx)
		}
	}
	n := copy(p, l.piece.text)
	l.piece.text = l.piece.text[n:]
	return n, nil
}

// A readCounter counts the bytes read.
type readCounter struct {
	r io.Reader
	n atomic.Int64
}

func (c *readCounter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// headBytes is how much of a file is hashed to distinguish it from others.
const headBytes = 64 << 10

// resume reads the state that an interrupted import of the same file has left.
func (j *Import) resume(ctx context.Context) error {
	head := make([]byte, headBytes)
	n, err := j.In.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", j.Path, err)
	}
	sum := sha256.Sum256(head[:n])
	own := hex.EncodeToString(sum[:])
	found, err := statefile.Read(j.State, &j.state)
	if err != nil {
		return err
	}
	if !found {
		j.state.Head, j.state.To = own, j.To
		return statefile.Remove(j.Rejected) // left by an earlier import
	}
	if j.state.Head != own {
		return fmt.Errorf("%s belongs to an import of another file, not of %s; remove it to begin again", j.State, j.Path)
	}
	if j.state.To != "" && j.state.To != j.To {
		return elsewhere(j.State, j.state.To, j.To, "lines")
	}
	if err := j.Empty.check(ctx, j.State, j.state.Points, j.To); err != nil {
		return err
	}
	j.report.At = j.state.Reported
	return nil
}

// skip reads the text that an earlier import has stored. It returns an error if the text differs
// from what the earlier import read, for example after a later export to the same file: then points
// before the position may not be stored.
func (j *Import) skip(text io.Reader) error {
	j.text = sha256.New()
	_, err := io.CopyN(j.text, text, j.state.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("skip to where the last import stopped in %s: %w", j.Path, err)
	}
	if err != nil || j.state.Text != "" && j.state.Text != j.textSum() {
		return fmt.Errorf("%s belongs to an import of an earlier content of %s, which has changed before byte %d of its text; remove it to begin again", j.State, j.Path, j.state.Offset)
	}
	if j.state.Line > 0 {
		fmt.Fprintf(j.Stderr, "continuing after line %d of %s\n", j.state.Line, j.Path)
	}
	return nil
}

// textSum returns the hash of the text that was read.
func (j *Import) textSum() string { return hex.EncodeToString(j.text.Sum(nil)) }

// elsewhere returns the error for a state file whose import has another destination.
func elsewhere(path, was, to, what string) error {
	return fmt.Errorf("%s belongs to an import into %s, not %s; remove it to import all %s there, or name another state file with --state", path, was, to, what)
}

// An Empty reports whether a destination has no points.
type Empty func(ctx context.Context) (bool, error)

// check returns an error if the destination is empty although the state counts points stored there.
// Such a destination has been replaced since, and a resumed import would omit these points.
func (e Empty) check(ctx context.Context, state string, points int64, to string) error {
	if e == nil || points == 0 {
		return nil
	}
	empty, err := e(ctx)
	if err != nil || !empty {
		return err
	}
	return fmt.Errorf("%s says that %d points were imported into %s, but the store is empty; remove this file to import all again", state, points, to)
}

func (j *Import) reject(r transfer.Rejected) error {
	text := fmt.Sprintf("line %d: %s\n", r.Line, strings.Join(r.Reasons, "; "))
	if j.Rejected == "" {
		j.Progress.Clear()
		_, err := io.WriteString(j.Stderr, text)
		return err
	}
	return j.report.Add(text)
}

// acknowledge records a position in the state file.
func (j *Import) acknowledge(p transfer.Position) error {
	if j.State == "" {
		return nil
	}
	j.state.Position, j.state.Reported, j.state.Text = p, j.report.At, j.textSum()
	return statefile.Write(j.State, &j.state)
}

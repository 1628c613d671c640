package transfer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"

	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/store"
	"varve/internal/work"
)

// A block, which is stored and acknowledged at once, has about BlockBytes, and at most
// BlockLines.
const (
	BlockBytes = 4 << 20
	BlockLines = 4096
)

// A Position is a point in the input of an import. Everything before it is stored or
// reported.
type Position struct {
	Offset   int64 `json:"offset"`   // bytes of uncompressed text
	Line     int64 `json:"line"`     // lines, including blank ones
	Points   int64 `json:"points"`   // stored
	Rejected int64 `json:"rejected"` // lines that were refused, entirely or in part
}

// A Rejected is a line that was refused, entirely or in part.
type Rejected struct {
	Line    int64    `json:"line"` // from 1
	Reasons []string `json:"errors"`
}

// A Sink stores lines.
type Sink interface {
	// Store stores the lines and returns a result for each. If it returns a nil
	// error, they are durable. It must not keep the lines.
	Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error)
}

// An Import reads lines and passes them to a sink, block by block.
type Import struct {
	Sink    Sink
	MaxLine int // bytes; longer lines are rejected
	// MaxEmpty limits the lines that are blank or in Position.Rejected: they cost time and may store
	// nothing, and a few bytes of gzip can hold a thousand of them. 0 is no limit.
	MaxEmpty int
	// Text, unless it is nil, gets the text that is read. When Acknowledge is called, it has got
	// exactly the text from where Run began to the acknowledged position.
	Text io.Writer

	// Run calls Reject for each line that was refused, entirely or in part, and then
	// Acknowledge for the position after the block. Their errors end the import.
	Reject      func(Rejected) error
	Acknowledge func(Position) error

	position Position
	blank    int // lines without data
	arena    []byte
	lines    [][]byte
	numbers  []int64
	rejects  []Rejected // of this block
}

// Run imports all of r, whose first byte is at the position from, and returns the
// position that it reached.
func (m *Import) Run(ctx context.Context, r io.Reader, from Position) (Position, error) {
	m.position = from
	in := bufio.NewReaderSize(r, 256<<10)
	for {
		end, err := m.read(ctx, in)
		if errors.As(err, new(*yieldedError)) {
			return m.position, errors.Join(m.store(ctx, end), err)
		}
		if err != nil {
			return m.position, err
		}
		if err := m.store(ctx, end); err != nil {
			return m.position, err
		}
		if end.last {
			return m.position, nil
		}
		if empty := m.position.Rejected + int64(m.blank); m.MaxEmpty > 0 && empty > int64(m.MaxEmpty) {
			limit := &store.LimitError{Limit: "lines of an import that are blank or refused", Max: int64(m.MaxEmpty), Need: empty, What: "read more lines"}
			return m.position, &store.InputError{Reason: fmt.Sprintf("%s; everything up to line %d is stored or refused: correct what follows it, from byte %d of the uncompressed text, and send that",
				limit, m.position.Line, m.position.Offset)}
		}
	}
}

// A blockEnd is where a block of lines ends.
type blockEnd struct {
	offset, line int64
	last         bool
}

// read fills a block of lines.
func (m *Import) read(ctx context.Context, in *bufio.Reader) (blockEnd, error) {
	m.arena, m.lines, m.numbers, m.rejects = m.arena[:0], m.lines[:0], m.numbers[:0], m.rejects[:0]
	end := blockEnd{offset: m.position.Offset, line: m.position.Line}
	var bounds [][2]int
	const mostBlank = 64 << 10 // in a block, so that Run can check MaxEmpty in time
	for blank := 0; len(m.arena) < BlockBytes && len(bounds) < BlockLines && blank < mostBlank; {
		if err := ctx.Err(); err != nil {
			return end, context.Cause(ctx)
		}
		from := len(m.arena)
		n, err := m.readLine(ctx, in)
		if err != nil && !errors.Is(err, io.EOF) {
			m.gather(bounds)
			return end, fmt.Errorf("read line %d: %w", end.line+1, err)
		}
		end.offset += n
		if n > 0 {
			end.line++
		}
		line := m.arena[from:]
		switch {
		case len(line) > m.MaxLine:
			m.arena = m.arena[:from]
			limit := &store.LimitError{Limit: "bytes of a line of an import", Max: int64(m.MaxLine), Need: n, What: "read a line"}
			m.rejects = append(m.rejects, Rejected{end.line, []string{limit.Error()}})
		case isData(line):
			bounds = append(bounds, [2]int{from, len(m.arena)})
			m.numbers = append(m.numbers, end.line)
		default:
			m.arena = m.arena[:from]
			blank++
			m.blank++
		}
		if errors.Is(err, io.EOF) {
			end.last = true
			break
		}
	}
	m.gather(bounds)
	return end, nil
}

// gather sets the lines of a block. It runs once the arena no longer grows, because
// growing moves it.
func (m *Import) gather(bounds [][2]int) {
	for _, b := range bounds {
		m.lines = append(m.lines, m.arena[b[0]:b[1]])
	}
}

// skipLimit is the length, as a multiple of MaxLine, at which a line ends the import
// instead of being skipped. A longer line is not text, or was compressed to keep
// the server busy: 1 MiB of gzip can hold 1 GiB.
const skipLimit = 16

// readLine appends a line to the arena, but at most MaxLine+1 bytes of it. n counts
// all bytes of the line, including its line break.
func (m *Import) readLine(ctx context.Context, in *bufio.Reader) (n int64, err error) {
	from := len(m.arena)
	for {
		if n > skipLimit*int64(m.MaxLine) {
			limit := &store.LimitError{Limit: "bytes of a line of an import", Max: int64(m.MaxLine), Need: n, What: "read a line"}
			return n, &store.InputError{Reason: fmt.Sprintf("%s; the line has not ended after %d times that: this is not a file of lines", limit, skipLimit)}
		}
		if err := ctx.Err(); err != nil {
			return n, context.Cause(ctx)
		}
		piece, err := in.ReadSlice('\n')
		n += int64(len(piece))
		if m.Text != nil {
			if _, err := m.Text.Write(piece); err != nil {
				return n, err
			}
		}
		if room := m.MaxLine + 1 - (len(m.arena) - from); room > 0 {
			m.arena = append(m.arena, piece[:min(len(piece), room)]...)
		}
		if err == nil {
			m.arena = m.arena[:from+len(bytes.TrimRight(m.arena[from:], "\r\n"))]
			return n, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return n, err
		}
	}
}

// isData distinguishes a line of points from a blank one, and from the messages that
// KairosDB's export prints to its standard output after the points.
func isData(line []byte) bool {
	switch string(bytes.TrimSpace(line)) {
	case "", "All done", "Export finished":
		return false
	}
	return true
}

// Finish is how long a block may still be stored after its import has been cancelled. A block that
// is stored only in part is sent again as a whole later. If its samples are downsampled in between,
// samples of incomplete buckets count twice: only complete buckets are recognised.
const Finish = 5 * time.Second

// store passes a block to the sink and acknowledges it.
func (m *Import) store(ctx context.Context, end blockEnd) error {
	ctx, stop := work.Linger(ctx, Finish)
	defer stop()
	next := m.position
	next.Offset, next.Line = end.offset, end.line
	if len(m.lines) > 0 {
		results, err := m.Sink.Store(ctx, m.lines)
		if err != nil {
			return fmt.Errorf("store lines %d to %d: %w", m.position.Line+1, end.line, err)
		}
		for i, r := range results {
			next.Points += int64(r.Points)
			if len(r.Faults) > 0 {
				m.rejects = append(m.rejects, Rejected{m.numbers[i], r.Faults})
			}
		}
	}
	next.Rejected += int64(len(m.rejects))
	for _, r := range m.rejects {
		if err := m.Reject(r); err != nil {
			return err
		}
	}
	if err := m.Acknowledge(next); err != nil {
		return err
	}
	m.position = next
	return nil
}

// A Local stores lines through a pipeline of this process. If new_series_per_second
// refuses a series, it waits and tries again.
type Local struct {
	lines *kairosjson.Lines
	pause time.Duration
}

// NewLocal makes a Local for a sender at remote.
func NewLocal(p *ingest.Pipeline, remote string) *Local {
	return &Local{lines: kairosjson.NewLines(p, p.Protocol("import"), remote), pause: 100 * time.Millisecond}
}

// Store implements Sink.
func (l *Local) Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	results, err := l.lines.Store(ctx, lines)
	if err != nil {
		return nil, err
	}
	all := append([]kairosjson.Line(nil), results...)
	for i := range all {
		for all[i].Held {
			if err := work.Pause(ctx, l.pause); err != nil {
				return nil, err
			}
			if all[i], err = l.lines.Again(ctx, lines[i]); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// Unpack returns a reader of the text of r, which may be compressed with gzip.
func Unpack(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 256<<10)
	magic, err := in.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	text, err := gzip.NewReader(in)
	if err != nil {
		return nil, damaged(err)
	}
	return unpacker{text}, nil
}

// An unpacker reads compressed text. Its errors say when the compression is at fault.
type unpacker struct{ text *gzip.Reader }

func (u unpacker) Read(p []byte) (int, error) {
	n, err := u.text.Read(p)
	return n, damaged(err)
}

// damaged returns a *damagedError if err means that compressed text is damaged, and
// otherwise err.
func damaged(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &corrupt) {
		return &damagedError{err}
	}
	return err
}

// A damagedError is an error of compressed text that is damaged, or that ends too early.
type damagedError struct{ err error }

func (e *damagedError) Error() string {
	return "the gzip is damaged or incomplete: " + e.err.Error() + "; import a sound copy of it: points of damaged lines may have been stored with wrong times or values"
}

func (e *damagedError) Unwrap() error { return e.err }

package telnet

import (
	"bytes"
	"context"
	"errors"

	"varve/internal/ingest"
	"varve/internal/model"
)

// lines stores blocks of complete lines.
type lines struct {
	w       *ingest.Writer
	p       *ingest.Pipeline
	maxLine int

	block    []byte // the block that is being stored
	fill     func() error
	cmd      Command
	names    ingest.Names
	versions int // version commands in the block
}

func newLines(p *ingest.Pipeline, proto *ingest.Protocol, remote string, maxLine int) *lines {
	l := &lines{w: p.NewWriter(proto, remote, 0), p: p, maxLine: maxLine}
	l.fill = l.parse
	return l
}

// store takes a block that ends with a line feed. It returns how many version
// commands were in it; they are answered after the samples before them are
// stored.
func (l *lines) store(ctx context.Context, block []byte) (versions int, err error) {
	l.block = block
	_, err = l.w.Ingest(ctx, bytes.Count(block, []byte{'\n'}), l.fill)
	l.block = nil
	return l.versions, err
}

func (l *lines) parse() error {
	l.versions = 0
	for rest := l.block; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		line := rest[:end]
		rest = rest[end+1:]
		if err := l.line(line); err != nil {
			var f *ingest.Fault
			if !errors.As(err, &f) {
				return err
			}
			l.w.Reject(f, line)
		}
	}
	return nil
}

// line adds one line to the batch. A *Fault refuses the line, any other error
// ends the block.
func (l *lines) line(line []byte) error {
	if len(line) > l.maxLine {
		return lineTooLong(l.maxLine)
	}
	c := &l.cmd
	if f := c.Parse(line); f != nil {
		return f
	}
	switch c.Verb {
	case None:
		return nil
	case Version:
		l.versions++
		return nil
	}
	a := l.w.Find(c.Kind, c.Metric, c.Tags)
	if a == nil {
		var err error
		if a, err = l.resolve(c); err != nil {
			return err
		}
	}
	var f *ingest.Fault
	switch c.Kind {
	case model.Long:
		f = l.w.AddLong(a.Ref, c.TimeMS, c.Long, a.TTL)
	case model.Double:
		f = l.w.AddDouble(a.Ref, c.TimeMS, c.Double, a.TTL)
	default:
		if f = l.p.CheckString(c.Text); f == nil {
			f = l.w.AddBytes(model.String, a.Ref, c.TimeMS, c.Text, a.TTL)
		}
	}
	if f != nil {
		return f
	}
	return nil
}

func (l *lines) resolve(c *Command) (*ingest.Alias, error) {
	l.names.Reset()
	l.names.Metric = view(c.Metric)
	if f := ParseTags(c.Tags, &l.names, l.p.Config().MaxTags); f != nil {
		return nil, f
	}
	return l.w.Resolve(c.Kind, c.Metric, c.Tags, &l.names)
}

func lineTooLong(limit int) *ingest.Fault {
	return ingest.Faultf(ingest.LineTooLong, "line is longer than telnet.max_line, %d bytes", limit)
}

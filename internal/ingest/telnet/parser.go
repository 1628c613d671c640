package telnet

import (
	"bytes"
	"context"
	"errors"

	"varve/internal/ingest"
	"varve/internal/ingest/lines"
	"varve/internal/model"
)

// A parser stores blocks of complete lines.
type parser struct {
	w     *ingest.Writer
	proto *lines.Protocol

	block    []byte // the block that is being stored
	fill     func() error
	cmd      Command
	names    ingest.Names
	versions int // version commands in the block
}

func newParser(proto *lines.Protocol, remote string) *parser {
	l := &parser{w: proto.Pipeline.NewWriter(proto.Counts, remote, 0), proto: proto}
	l.fill = l.parse
	return l
}

// Store implements lines.Parser. The replies are those to version commands.
func (l *parser) Store(ctx context.Context, block []byte) (versions int, err error) {
	l.block = block
	_, err = l.w.Ingest(ctx, bytes.Count(block, []byte{'\n'}), l.fill)
	l.block = nil
	return l.versions, err
}

func (l *parser) parse() error {
	l.versions = 0
	for rest := l.block; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		line := rest[:end]
		rest = rest[end+1:]
		if err := l.line(line); err != nil {
			f, ok := errors.AsType[*ingest.Fault](err) // errors.As would allocate for each line
			if !ok {
				return err
			}
			l.w.Reject(f, line)
		}
	}
	return nil
}

// line adds one line to the batch. A *Fault refuses the line, any other error
// ends the block.
func (l *parser) line(line []byte) error {
	if len(line) > int(l.proto.MaxLine) {
		return l.proto.TooLong()
	}
	c := &l.cmd
	if a := l.w.Guess(); a != nil && a.Word() && c.ParseAlike(line, a.Head(), a.Tail()) && c.Kind == a.Kind() {
		l.w.Follow(a)
		return l.add(c, a)
	}
	if f := c.Parse(line); f != nil {
		return f
	}
	if c.Verb == Version {
		l.versions++
	}
	if c.Verb != Put {
		return nil
	}
	a := l.w.Find(c.Kind, c.Metric, c.Tags)
	if a == nil {
		var err error
		if a, err = l.resolve(c); err != nil {
			return err
		}
	}
	return l.add(c, a)
}

// add adds the sample of c to the series of a.
func (l *parser) add(c *Command, a *ingest.Alias) error {
	var f *ingest.Fault
	switch c.Kind {
	case model.Long:
		f = l.w.AddLong(a.Ref, c.TimeMS, c.Long, a.TTL)
	case model.Double:
		f = l.w.AddDouble(a.Ref, c.TimeMS, c.Double, a.TTL)
	default:
		if f = l.proto.Pipeline.CheckString(c.Text); f == nil {
			f = l.w.AddBytes(model.String, a.Ref, c.TimeMS, c.Text, a.TTL)
		}
	}
	if f != nil {
		return f
	}
	return nil
}

func (l *parser) resolve(c *Command) (*ingest.Alias, error) {
	l.names.Reset()
	l.names.Metric = ingest.View(c.Metric)
	if f := ParseTags(c.Tags, &l.names, l.proto.Pipeline.Config().MaxTags); f != nil {
		return nil, f
	}
	return l.w.Resolve(c.Kind, c.Metric, c.Tags, &l.names)
}

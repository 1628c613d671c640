package carbon

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/ingest/lines"
)

// allRoom makes a room hold all memory for buffers that its sender may have, and returns how much that is.
func allRoom(room *ingest.Room) (n int64) {
	for step := int64(1 << 30); step > 0; step /= 2 {
		if room.Hold(n + step) {
			n += step
		}
	}
	return n
}

// Without memory for a larger buffer a connection of pickles keeps its first one, and keeps no larger block
// between frames. A connection that has ended has given back what it had.
func TestBuffersOfPickles(t *testing.T) {
	const client = "192.0.2.1:1"
	pipeline, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	h := newPickles(pipeline, DefaultConfig(), Options{Registerer: reg})
	large, small := framed(strings.Repeat("x", smallFrame)), framed("x")
	read := func() *pickleConn {
		c := &pickleConn{h: h, room: pipeline.NewRoom(client)}
		c.in = bufio.NewReaderSize(bytes.NewReader(append(large, small...)), lines.FirstBuffer)
		if !c.next(t.Context()) || len(c.ends) == 0 || len(c.frame(0)) != smallFrame {
			t.Fatal("the first frame is not read")
		}
		return c
	}
	others := pipeline.NewRoom(client)
	all := allRoom(others)
	c := read()
	if len(c.ends) == 1 && !c.next(t.Context()) {
		t.Fatal("the second frame is not read")
	}
	if c.in.Size() != lines.FirstBuffer || len(c.ends) == 1 && cap(c.block) > lines.FirstBuffer {
		t.Errorf("without memory the buffer has %d bytes, and the block of a small frame %d", c.in.Size(), cap(c.block))
	}
	others.Hold(0)
	if c = read(); c.in.Size() != int(h.cfg.ReadBuffer) {
		t.Errorf("with memory the buffer has %d bytes", c.in.Size())
	}
	if others.Hold(all) {
		t.Error("its buffer takes no memory")
	}

	served := start(t, true, nil)
	others = served.pipeline.NewRoom("127.0.0.1:1")
	all = allRoom(others)
	others.Hold(0)
	served.send(large, 1<<20)
	if !others.Hold(all) {
		t.Error("a connection that has ended holds memory")
	}
}

package render

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"testing"

	"varve/internal/graphite/function"
)

// A leaver accepts some bytes and then fails, as if the client had disconnected.
type leaver struct{ left int }

var errLeft = errors.New("the client has left")

func (l *leaver) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errLeft
	}
	return len(p), nil
}

// In every format, formatting ends when the client has disconnected.
func TestClientLeaves(t *testing.T) {
	const points = 1_000_000
	values := make([]float64, points)
	for i := range values {
		values[i] = float64(i)
	}
	series := []*function.Series{{Name: "long", End: points, Step: 1, Values: values}}
	for format, f := range writers {
		whole := &writer{Writer: bufio.NewWriter(io.Discard)}
		if err := f.write(whole, series); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		w := &writer{Writer: bufio.NewWriter(&leaver{64 << 10})}
		if err := f.write(w, series); !errors.Is(err, errLeft) {
			t.Errorf("%s: %v, want %v", format, err, errLeft)
		}
		if bytes.Equal(w.scratch, whole.scratch) { // the last text
			t.Errorf("%s: all points are worded", format)
		}
	}
	nodes := make([]Node, points)
	for i := range nodes {
		nodes[i].Path = "path"
	}
	w := &writer{Writer: bufio.NewWriter(&leaver{64 << 10})}
	for name, e := range map[string]encoder{"pickle": pickler{w}, "msgpack": msgpacker{w}} {
		if err := writeNodes(e, nodes, math.MaxInt64); !errors.Is(err, errLeft) {
			t.Errorf("nodes as %s: %v, want %v", name, err, errLeft)
		}
	}
}

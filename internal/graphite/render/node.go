package render

import (
	"bufio"
	"fmt"
	"io"
)

// A Node is a path that was found: a series, or a branch with nodes below it.
type Node struct {
	Path string
	Leaf bool
}

// nodeTypes are the media types of the formats in which graphite-web asks for nodes.
var nodeTypes = map[string]string{"pickle": "application/pickle", "msgpack": "application/x-msgpack"}

// NodesType returns the media type of nodes in a format, "" if WriteNodes does not support
// the format.
func NodesType(format string) string { return nodeTypes[format] }

// WriteNodes writes nodes in the form that one graphite-web sends to another. Each leaf
// claims points from 1970 to until, in seconds: the receiver uses that to choose among
// several servers.
func WriteNodes(w io.Writer, format string, nodes []Node, until int64) error {
	out := &writer{Writer: bufio.NewWriterSize(w, 32<<10)}
	switch format {
	case "pickle":
		out.Write([]byte{0x80, 2})
		if err := writeNodes(pickler{out}, nodes, until); err != nil {
			return err
		}
		out.WriteByte('.')
	case "msgpack":
		if err := writeNodes(msgpacker{out}, nodes, until); err != nil {
			return err
		}
	default:
		return fmt.Errorf("nodes cannot be written in the format %.32q; use pickle or msgpack", format)
	}
	return out.Flush()
}

func writeNodes(e encoder, nodes []Node, until int64) error {
	e.list(len(nodes))
	for _, n := range nodes {
		if n.Leaf {
			e.object(3)
		} else {
			e.object(2)
		}
		e.str("path")
		e.str(n.Path)
		e.str("is_leaf")
		e.boolean(n.Leaf)
		if n.Leaf {
			e.str("intervals")
			e.list(1)
			e.list(2)
			e.integer(0)
			e.integer(until)
			e.endList(2)
			e.endList(1)
		}
		e.endObject()
		if err := e.failed(); err != nil {
			return err
		}
	}
	e.endList(len(nodes))
	return nil
}

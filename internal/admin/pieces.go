package admin

import (
	"bufio"
	"encoding/json"
	"runtime"
)

// pieceBytes is the buffer of an answer that is sent in pieces.
const pieceBytes = 16 << 10

// pieces write JSON member by member, and lists row by row, so that a client that does not read
// holds no copy of the whole text in memory. Errors of out show when it is flushed.
type pieces struct {
	out  *bufio.Writer
	some bool // the next member or row needs a comma before it
}

// next begins a member, or a row if name is "".
func (p *pieces) next(name string) {
	if p.some {
		p.out.WriteByte(',')
	}
	p.some = true
	if name != "" {
		p.out.WriteString(`"` + name + `":`)
	}
}

func (p *pieces) open(name string, bracket byte) {
	p.next(name)
	p.out.WriteByte(bracket)
	p.some = false
}

func (p *pieces) close(bracket byte) {
	p.out.WriteByte(bracket)
	p.some = true
}

// end closes the answer and sends the rest. An error would mean that the client is gone.
func (p *pieces) end() {
	p.out.WriteString("}\n")
	p.out.Flush()
}

func (p *pieces) value(name string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts, numbers and times always marshal
	}
	p.next(name)
	p.out.Write(text)
}

func list[T any](p *pieces, name string, rows []T) {
	p.open(name, '[')
	for i := range rows {
		p.value("", &rows[i])
		runtime.Gosched() // rows of many requests at once would delay others
	}
	p.close(']')
}

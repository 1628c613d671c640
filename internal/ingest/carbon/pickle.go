package carbon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A pickle is a program for a small machine with a stack and a memo. Here it can make lists,
// tuples, texts, numbers and None, and nothing else: anything that names or calls a class fails the
// frame before anything is stored. It allocates in proportion to the bytes of the frame, whatever
// lengths these announce, and never recurses.
type pickle struct {
	b     []byte
	at    int
	stack []value
	marks []int // heights of the stack
	memo  []value
	lists [][]value // those of sequences, by value.at
	slab  []value   // that tuples are cut from
	own   []byte    // texts that had escapes
	most  int       // values of a kind, see bytesPerValue
}

// A value is what the machine works on.
type value struct {
	f    float64 // number
	at   uint32  // text: where it begins; sequence: in pickle.lists
	n    uint32  // text: its length
	kind kind
}

type kind uint8

const (
	none kind = iota
	number
	text     // in pickle.b
	ownText  // in pickle.own
	sequence // a list or a tuple
)

// text returns a text; nil if v is none.
func (p *pickle) text(v value) []byte {
	switch v.kind {
	case text:
		return p.b[v.at : v.at+v.n]
	case ownText:
		return p.own[v.at : v.at+v.n]
	}
	return nil
}

// Opcodes of the pickles that senders of points make, in protocols 0 to 5.
const (
	opMark      = '('
	opStop      = '.'
	opNone      = 'N'
	opInt       = 'I' // decimal, line feed
	opBinInt    = 'J'
	opBinInt1   = 'K'
	opBinInt2   = 'M'
	opLong      = 'L'
	opFloat     = 'F'
	opBinFloat  = 'G'
	opString    = 'S' // quoted, line feed
	opBinString = 'T'
	opShortStr  = 'U'
	opUnicode   = 'V' // escaped, line feed
	opBinUni    = 'X'
	opBinBytes  = 'B'
	opShortByte = 'C'
	opList      = 'l'
	opEmptyList = ']'
	opAppend    = 'a'
	opAppends   = 'e'
	opTuple     = 't'
	opEmptyTup  = ')'
	opPut       = 'p'
	opBinPut    = 'q'
	opLongPut   = 'r'
	opGet       = 'g'
	opBinGet    = 'h'
	opLongGet   = 'j'
	opProto     = 0x80
	opTuple1    = 0x85
	opTuple2    = 0x86
	opTuple3    = 0x87
	opTrue      = 0x88
	opFalse     = 0x89
	opLong1     = 0x8a
	opShortUni  = 0x8c
	opMemoize   = 0x94
	opFrame     = 0x95
)

const (
	maxLong    = 16 // bytes of a long integer
	maxDecimal = 64 // bytes of a number in text

	// bytesPerValue bounds the values on the stack, in the memo and the sequences,
	// each by the length of the pickle: the shortest point has 11 bytes and two
	// sequences. The 64 are for short pickles.
	bytesPerValue = 4
	someValues    = 64
)

var errShort = errors.New("it ends in the middle of an instruction")

// load runs the pickle in b and returns the items of the list that it makes. They and
// their texts are valid until the next call, and as long as b is.
func (p *pickle) load(b []byte) ([]value, error) {
	top, err := p.run(b)
	if err != nil {
		return nil, err
	}
	if top.kind != sequence {
		return nil, errors.New("it is not a list of points")
	}
	return p.lists[top.at], nil
}

// items returns the n values of a sequence; nil if v is no sequence of that length.
func (p *pickle) items(v value, n int) []value {
	if v.kind != sequence || len(p.lists[v.at]) != n {
		return nil
	}
	return p.lists[v.at]
}

// reset prepares the machine for the pickle in b.
func (p *pickle) reset(b []byte) {
	p.b, p.at, p.most = b, 0, len(b)/bytesPerValue+someValues
	clear(p.lists) // grown lists are not kept
	p.stack, p.marks, p.memo, p.lists, p.slab, p.own = p.stack[:0], p.marks[:0], p.memo[:0], p.lists[:0], p.slab[:0], p.own[:0]
}

// run returns the value that the program leaves.
func (p *pickle) run(b []byte) (value, error) {
	p.reset(b)
	for {
		op, err := p.byte()
		if err != nil {
			return value{}, err
		}
		if op == opStop {
			if len(p.stack) != 1 || len(p.marks) != 0 {
				return value{}, fmt.Errorf("it leaves %d values and %d marks, instead of one value", len(p.stack), len(p.marks))
			}
			return p.stack[0], nil
		}
		if err := p.step(op); err != nil {
			return value{}, fmt.Errorf("instruction %#02x before byte %d: %w", op, p.at, err)
		}
	}
}

func (p *pickle) step(op byte) error {
	switch op {
	case opProto:
		_, err := p.take(1)
		return err
	case opFrame:
		_, err := p.take(8)
		return err
	case opMark:
		if len(p.marks) == p.most {
			return p.tooMany("marks")
		}
		p.marks = append(p.marks, len(p.stack))
		return nil
	case opNone:
		return p.push(value{})
	case opEmptyList, opEmptyTup:
		return p.pushSequence(nil)
	case opList, opTuple:
		items, err := p.toMark()
		if err != nil {
			return err
		}
		return p.pushSequence(p.keep(items))
	case opTuple1, opTuple2, opTuple3:
		items, err := p.pop(int(op) - opTuple1 + 1)
		if err != nil {
			return err
		}
		return p.pushSequence(p.keep(items))
	case opAppend:
		items, err := p.pop(1)
		if err != nil {
			return err
		}
		return p.extend(items)
	case opAppends:
		items, err := p.toMark()
		if err != nil {
			return err
		}
		return p.extend(items)
	case opPut, opBinPut, opLongPut, opMemoize:
		return p.put(op)
	case opGet, opBinGet, opLongGet:
		i, err := p.index(op)
		if err != nil {
			return err
		}
		if i >= len(p.memo) {
			return fmt.Errorf("the memo has no entry %d", i)
		}
		return p.push(p.memo[i])
	}
	v, err := p.scalar(op)
	if err != nil {
		return err
	}
	return p.push(v)
}

// scalar reads a text or a number.
func (p *pickle) scalar(op byte) (value, error) {
	switch op {
	case opTrue, opFalse:
		return value{kind: number, f: float64(opFalse - int(op))}, nil
	case opBinInt1:
		return p.smallInt(1)
	case opBinInt2:
		return p.smallInt(2)
	case opBinInt:
		return p.smallInt(4)
	case opBinFloat:
		b, err := p.take(8)
		if err != nil {
			return value{}, err
		}
		return value{kind: number, f: math.Float64frombits(binary.BigEndian.Uint64(b))}, nil
	case opLong1:
		return p.longInt()
	case opInt, opLong, opFloat:
		b, err := p.line()
		if err != nil {
			return value{}, err
		}
		return parseDecimal(op, b)
	case opShortStr, opShortByte, opShortUni:
		return p.counted(1)
	case opBinString, opBinUni, opBinBytes:
		return p.counted(4)
	case opString:
		b, err := p.line()
		if err != nil {
			return value{}, err
		}
		return p.unquote(b)
	case opUnicode:
		b, err := p.line()
		if err != nil {
			return value{}, err
		}
		return p.unescape(b)
	}
	return value{}, errors.New("only lists, tuples, texts, numbers and None are taken")
}

func (p *pickle) byte() (byte, error) {
	if p.at == len(p.b) {
		return 0, errShort
	}
	p.at++
	return p.b[p.at-1], nil
}

func (p *pickle) take(n int) ([]byte, error) {
	if n < 0 || n > len(p.b)-p.at {
		return nil, errShort
	}
	p.at += n
	return p.b[p.at-n : p.at], nil
}

// line reads up to the next line feed.
func (p *pickle) line() ([]byte, error) {
	n := bytes.IndexByte(p.b[p.at:], '\n')
	if n < 0 {
		return nil, errShort
	}
	p.at += n + 1
	return p.b[p.at-n-1 : p.at-1], nil
}

// counted reads a text after its length, which has size bytes.
func (p *pickle) counted(size int) (value, error) {
	b, err := p.take(size)
	if err != nil {
		return value{}, err
	}
	n := int(b[0])
	if size == 4 {
		n = int(binary.LittleEndian.Uint32(b))
	}
	_, err = p.take(n)
	return value{kind: text, at: uint32(p.at - n), n: uint32(n)}, err
}

func (p *pickle) push(v value) error {
	if len(p.stack) == p.most {
		return p.tooMany("values on its stack")
	}
	p.stack = append(p.stack, v)
	return nil
}

func (p *pickle) tooMany(what string) error {
	return fmt.Errorf("more than %d %s, which is more than points of this size need", p.most, what)
}

func (p *pickle) pushSequence(items []value) error {
	if len(p.lists) == p.most {
		return p.tooMany("lists and tuples")
	}
	p.lists = append(p.lists, items)
	return p.push(value{kind: sequence, at: uint32(len(p.lists) - 1)})
}

// keep copies items that are popped.
func (p *pickle) keep(items []value) []value {
	if cap(p.slab)-len(p.slab) < len(items) {
		p.slab = make([]value, 0, max(1024, 2*cap(p.slab), len(items))) // so that one is enough for the next pickle
	}
	at := len(p.slab)
	p.slab = append(p.slab, items...)
	return p.slab[at:len(p.slab):len(p.slab)]
}

// pop takes n values off, down to the last mark at most. They are valid until the
// next push.
func (p *pickle) pop(n int) ([]value, error) {
	low := 0
	if len(p.marks) > 0 {
		low = p.marks[len(p.marks)-1]
	}
	at := len(p.stack) - n
	if at < low {
		return nil, errors.New("the stack has too few values")
	}
	items := p.stack[at:]
	p.stack = p.stack[:at]
	return items, nil
}

// toMark takes off what is above the last mark, and the mark.
func (p *pickle) toMark() ([]value, error) {
	if len(p.marks) == 0 {
		return nil, errors.New("there is no mark")
	}
	at := p.marks[len(p.marks)-1]
	p.marks = p.marks[:len(p.marks)-1]
	items := p.stack[at:]
	p.stack = p.stack[:at]
	return items, nil
}

// extend appends items to the list on top.
func (p *pickle) extend(items []value) error {
	if len(p.stack) == 0 || p.stack[len(p.stack)-1].kind != sequence {
		return errors.New("there is no list to append to")
	}
	i := p.stack[len(p.stack)-1].at
	p.lists[i] = append(p.lists[i], items...)
	return nil
}

// put stores the top of the stack in the memo. Entries are numbered as they come.
func (p *pickle) put(op byte) error {
	i := len(p.memo)
	if op != opMemoize {
		var err error
		if i, err = p.index(op); err != nil {
			return err
		}
	}
	if len(p.stack) == 0 {
		return errors.New("there is nothing to remember")
	}
	top := p.stack[len(p.stack)-1]
	switch {
	case i < len(p.memo):
		p.memo[i] = top
	case i >= p.most:
		return p.tooMany("entries in its memo")
	case i == len(p.memo) || i == len(p.memo)+1: // C pickles of Python 2 count from 1
		for len(p.memo) < i {
			p.memo = append(p.memo, value{})
		}
		p.memo = append(p.memo, top)
	default:
		return fmt.Errorf("entry %d of a memo of %d", i, len(p.memo))
	}
	return nil
}

// index reads the number of an entry of the memo.
func (p *pickle) index(op byte) (int, error) {
	switch op {
	case opBinPut, opBinGet:
		b, err := p.byte()
		return int(b), err
	case opLongPut, opLongGet:
		b, err := p.take(4)
		if err != nil {
			return 0, err
		}
		return int(binary.LittleEndian.Uint32(b)), nil
	}
	b, err := p.line()
	if err != nil {
		return 0, err
	}
	i, err := strconv.ParseUint(string(b), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%.20q is not an entry of the memo", b)
	}
	return int(i), nil
}

// smallInt reads a little-endian integer of size bytes, of 4 bytes a signed one.
func (p *pickle) smallInt(size int) (value, error) {
	b, err := p.take(size)
	if err != nil {
		return value{}, err
	}
	f := 0.0
	switch size {
	case 1:
		f = float64(b[0])
	case 2:
		f = float64(binary.LittleEndian.Uint16(b))
	default:
		f = float64(int32(binary.LittleEndian.Uint32(b)))
	}
	return value{kind: number, f: f}, nil
}

// longInt reads a little-endian integer of any length, in two's complement.
func (p *pickle) longInt() (value, error) {
	n, err := p.byte()
	if err != nil {
		return value{}, err
	}
	if n > maxLong {
		return value{}, fmt.Errorf("an integer of %d bytes; at most %d are taken", n, maxLong)
	}
	b, err := p.take(int(n))
	if err != nil || n == 0 {
		return value{kind: number}, err
	}
	var digits [maxLong]byte
	copy(digits[:], b)
	slices.Reverse(digits[:n])
	whole := new(big.Int).SetBytes(digits[:n])
	if b[n-1]&0x80 != 0 {
		whole.Sub(whole, new(big.Int).Lsh(big.NewInt(1), uint(n)*8))
	}
	f, _ := new(big.Float).SetInt(whole).Float64()
	return value{kind: number, f: f}, nil
}

// parseDecimal reads a number in text.
func parseDecimal(op byte, b []byte) (value, error) {
	b = bytes.TrimSpace(b)
	if op == opLong {
		b = bytes.TrimSuffix(b, []byte{'L'})
	}
	f, ok := 0.0, false
	if len(b) <= maxDecimal {
		f, ok = parseFloat(b)
	}
	if !ok {
		return value{}, fmt.Errorf("%.20q is not a number", b)
	}
	return value{kind: number, f: f}, nil
}

// unquote undoes the quotes and escapes of a text of Python 2.
func (p *pickle) unquote(b []byte) (value, error) {
	b = bytes.TrimRight(b, " \t\r")
	if len(b) < 2 || b[0] != b[len(b)-1] || b[0] != '\'' && b[0] != '"' {
		return value{}, errors.New("a text without quotes")
	}
	b = b[1 : len(b)-1]
	out := p.own
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c != '\\' || i+1 == len(b) {
			out = append(out, c)
			continue
		}
		i++
		switch b[i] {
		case '\\', '\'', '"':
			out = append(out, b[i])
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'x':
			n, ok := hexAt(b, i+1, 2)
			if !ok {
				return value{}, errors.New("a text with a broken escape")
			}
			out = append(out, byte(n))
			i += 2
		default:
			out = append(out, '\\', b[i])
		}
	}
	return p.owned(out), nil
}

// owned makes a text of what was appended to p.own.
func (p *pickle) owned(out []byte) value {
	v := value{kind: ownText, at: uint32(len(p.own)), n: uint32(len(out) - len(p.own))}
	p.own = out
	return v
}

// unescape reads a text of protocol 0: Latin-1 with \uXXXX and \UXXXXXXXX.
func (p *pickle) unescape(b []byte) (value, error) {
	out := p.own
	for i := 0; i < len(b); i++ {
		digits := 0
		if b[i] == '\\' && i+1 < len(b) {
			digits = map[byte]int{'u': 4, 'U': 8}[b[i+1]]
		}
		if digits == 0 {
			out = utf8.AppendRune(out, rune(b[i]))
			continue
		}
		n, ok := hexAt(b, i+2, digits)
		if !ok || !utf8.ValidRune(rune(n)) {
			return value{}, errors.New("a text with a broken escape")
		}
		out = utf8.AppendRune(out, rune(n))
		i += 1 + digits
	}
	return p.owned(out), nil
}

// hexAt reads n hexadecimal digits at b[at:].
func hexAt(b []byte, at, n int) (uint32, bool) {
	if at+n > len(b) {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[at:at+n]), 16, 32)
	return uint32(v), err == nil
}

package graphitetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

var errShort = errors.New("the data ends")

// unpickle decodes the opcodes that package render writes, and those that Python writes for the
// series and nodes of a graphite-web. Instances of classes are null.
func unpickle(b []byte) (any, error) {
	type mark struct{}
	var stack, memo []any
	take := func(n int) (items []any) { // removes the last n
		items = append(items, stack[len(stack)-n:]...)
		stack = stack[:len(stack)-n]
		return items
	}
	pop := func() (items []any) { // removes all after the last mark, and the mark
		n := 0
		for n < len(stack) && stack[len(stack)-1-n] != any(mark{}) {
			n++
		}
		items = take(n)
		take(1)
		return items
	}
	list := func(items ...any) *[]any { return &items }
	add := func(items []any) {
		if l, ok := stack[len(stack)-1].(*[]any); ok {
			*l = append(*l, items...)
		}
	}
	set := func(items []any) {
		for k := 0; k < len(items); k += 2 {
			stack[len(stack)-1].(map[string]any)[items[k].(string)] = items[k+1]
		}
	}
	for i := 0; i < len(b); {
		op := b[i]
		i++
		push := func(width int, v any) { stack, i = append(stack, v), i+width }
		switch op {
		case 0x80:
			i++
		case 0x95:
			i += 8
		case 0x94:
			memo = append(memo, stack[len(stack)-1])
		case 'h':
			push(1, memo[b[i]])
		case 'j':
			push(4, memo[binary.LittleEndian.Uint32(b[i:])])
		case ']':
			push(0, list())
		case ')':
			push(0, list())
		case 0x85, 0x86, 0x87:
			push(0, list(take(int(op)-0x84)...))
		case '}':
			push(0, map[string]any{})
		case '(':
			push(0, mark{})
		case 'a':
			add(take(1))
		case 'e':
			add(pop())
		case 's':
			set(take(2))
		case 'u':
			set(pop())
		case 0x88, 0x89:
			push(0, op == 0x88)
		case 'N':
			push(0, nil)
		case 0x93, 0x81: // a class by its name, and an object of one
			take(2)
			push(0, nil)
		case 'b':
			take(1)
		case 0x8c:
			n := int(b[i])
			push(1+n, string(b[i+1:i+1+n]))
		case 'X':
			n := int(binary.LittleEndian.Uint32(b[i:]))
			push(4+n, string(b[i+4:i+4+n]))
		case 'K':
			push(1, int64(b[i]))
		case 'M':
			push(2, int64(binary.LittleEndian.Uint16(b[i:])))
		case 'J':
			push(4, int64(int32(binary.LittleEndian.Uint32(b[i:]))))
		case 0x8a:
			n := int(b[i])
			if n > 8 {
				return nil, errors.New("a number is too long")
			}
			var v uint64
			for k := n - 1; k >= 0; k-- {
				v = v<<8 | uint64(b[i+1+k])
			}
			if shift := 64 - 8*n; n > 0 {
				v = uint64(int64(v<<shift) >> shift)
			}
			push(1+n, int64(v))
		case 'G':
			push(8, math.Float64frombits(binary.BigEndian.Uint64(b[i:])))
		case '.':
			return plain(stack[0]), nil
		default:
			return nil, fmt.Errorf("unexpected opcode %#x", op)
		}
	}
	return nil, errShort
}

// plain replaces pointers to lists by the lists, at any depth.
func plain(v any) any {
	switch x := v.(type) {
	case *[]any:
		out := make([]any, len(*x))
		for i, one := range *x {
			out[i] = plain(one)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, one := range x {
			out[k] = plain(one)
		}
		return out
	}
	return v
}

// unpackMessage decodes the MessagePack types that package render and graphite-web write.
func unpackMessage(b []byte) (any, error) {
	v, rest, err := unpackValue(b)
	if err == nil && len(rest) > 0 {
		err = errors.New("data is left")
	}
	return v, err
}

func unpackValue(b []byte) (v any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errShort
	}
	op := b[0]
	b = b[1:]
	str := func(n int) (any, []byte, error) { return string(b[:n]), b[n:], nil }
	switch {
	case op < 0x80:
		return int64(op), b, nil
	case op < 0x90:
		return unpackMap(b, int(op&15))
	case op < 0xa0:
		return unpackList(b, int(op&15))
	case op < 0xc0:
		return str(int(op & 31))
	case op >= 0xe0:
		return int64(int8(op)), b, nil
	}
	switch op {
	case 0xcc:
		return int64(b[0]), b[1:], nil
	case 0xcd:
		return int64(binary.BigEndian.Uint16(b)), b[2:], nil
	case 0xce:
		return int64(binary.BigEndian.Uint32(b)), b[4:], nil
	case 0xd0:
		return int64(int8(b[0])), b[1:], nil
	case 0xd1:
		return int64(int16(binary.BigEndian.Uint16(b))), b[2:], nil
	case 0xd2:
		return int64(int32(binary.BigEndian.Uint32(b))), b[4:], nil
	case 0xd9:
		n := int(b[0])
		b = b[1:]
		return str(n)
	case 0xc0:
		return nil, b, nil
	case 0xc2, 0xc3:
		return op == 0xc3, b, nil
	case 0xcb:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), b[8:], nil
	case 0xcf, 0xd3:
		return int64(binary.BigEndian.Uint64(b)), b[8:], nil
	case 0xda:
		n := int(binary.BigEndian.Uint16(b))
		b = b[2:]
		return str(n)
	case 0xdb:
		n := int(binary.BigEndian.Uint32(b))
		b = b[4:]
		return str(n)
	case 0xdc:
		return unpackList(b[2:], int(binary.BigEndian.Uint16(b)))
	case 0xdd:
		return unpackList(b[4:], int(binary.BigEndian.Uint32(b)))
	}
	return nil, nil, errors.New("unexpected type")
}

func unpackList(b []byte, n int) (any, []byte, error) {
	out := []any{}
	for range n {
		v, rest, err := unpackValue(b)
		if err != nil {
			return nil, nil, err
		}
		out, b = append(out, v), rest
	}
	return out, b, nil
}

func unpackMap(b []byte, n int) (any, []byte, error) {
	out := map[string]any{}
	for range n {
		k, rest, err := unpackValue(b)
		if err != nil {
			return nil, nil, err
		}
		if out[k.(string)], b, err = unpackValue(rest); err != nil {
			return nil, nil, err
		}
	}
	return out, b, nil
}

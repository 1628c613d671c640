package graphitetest

import (
	"encoding/binary"
	"errors"
	"math"
)

var errShort = errors.New("the data ends")

// unpickle reads the opcodes that writePickle uses.
func unpickle(b []byte) (any, error) {
	type mark struct{}
	var stack []any
	pop := func() (items []any) {
		for i := len(stack) - 1; i >= 0; i-- {
			if _, ok := stack[i].(mark); ok {
				items = append(items, stack[i+1:]...)
				stack = stack[:i]
				return items
			}
		}
		return nil
	}
	for i := 0; i < len(b); {
		op := b[i]
		i++
		switch op {
		case 0x80:
			i++
		case ']':
			stack = append(stack, []any{})
		case '}':
			stack = append(stack, map[string]any{})
		case '(':
			stack = append(stack, mark{})
		case 'e':
			items := pop()
			stack[len(stack)-1] = append(stack[len(stack)-1].([]any), items...)
		case 'u':
			items := pop()
			for k := 0; k < len(items); k += 2 {
				stack[len(stack)-1].(map[string]any)[items[k].(string)] = items[k+1]
			}
		case 0x88, 0x89:
			stack = append(stack, op == 0x88)
		case 'N':
			stack = append(stack, nil)
		case 'X':
			n := int(binary.LittleEndian.Uint32(b[i:]))
			stack = append(stack, string(b[i+4:i+4+n]))
			i += 4 + n
		case 'J':
			stack = append(stack, int64(int32(binary.LittleEndian.Uint32(b[i:]))))
			i += 4
		case 0x8a:
			stack = append(stack, int64(binary.LittleEndian.Uint64(b[i+1:])))
			i += 9
		case 'G':
			stack = append(stack, math.Float64frombits(binary.BigEndian.Uint64(b[i:])))
			i += 8
		case '.':
			return stack[0], nil
		default:
			return nil, errors.New("unexpected opcode")
		}
	}
	return nil, errShort
}

// unpackMessage reads what writeMsgpack uses.
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
	}
	switch op {
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

package api

import (
	"bytes"
	"encoding/json"
)

// The functions of this file walk through JSON text. They rely on it being valid.

// space returns where the white space at i ends.
func space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}

// value returns where the value at i ends, and how deeply its objects and arrays are nested.
func value(text []byte, i int) (end, depth int) {
	level := 0
	for {
		switch text[i] {
		case '"':
			i = textEnd(text, i)
		case '{', '[':
			level++
			depth = max(depth, level)
			i++
		case '}', ']':
			level--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
		default:
			i = scalarEnd(text, i)
		}
		if level == 0 {
			return i, depth
		}
	}
}

// textEnd returns where the quoted string at i ends.
func textEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func scalarEnd(text []byte, i int) int {
	for ; i < len(text); i++ {
		switch text[i] {
		case ',', ':', ']', '}', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return i
}

// members calls f for each member of an object, with its name, its value and the depth of that.
// It ends with the first error of f.
func members(object []byte, f func(name string, value []byte, depth int) error) error {
	for i := space(object, 1); object[i] != '}'; {
		end := textEnd(object, i)
		name := unquote(object[i:end])
		begin := space(object, space(object, end)+1)
		end, depth := value(object, begin)
		if err := f(name, object[begin:end], depth); err != nil {
			return err
		}
		if i = space(object, end); object[i] == ',' {
			i = space(object, i+1)
		}
	}
	return nil
}

// element returns the next element of an array and where it ends. i is just after the opening
// bracket or the previous element. ok is false at the end of the array.
func element(array []byte, i int) (text []byte, end int, ok bool) {
	i = space(array, i)
	if array[i] == ',' {
		i = space(array, i+1)
	}
	if array[i] == ']' {
		return nil, i, false
	}
	end, _ = value(array, i)
	return array[i:end], end, true
}

// unquote decodes a quoted string.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		var s string
		if json.Unmarshal(quoted, &s) != nil {
			panic("api: the text was not checked")
		}
		return s
	}
	return string(quoted[1 : len(quoted)-1])
}

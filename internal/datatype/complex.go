package datatype

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"varve/internal/ingest/decimal"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
)

// complexType is KairosDB's sample of a type of one's own:
// {"real":x,"imaginary":y}, stored as 16 bytes, both IEEE-754 big-endian.
func complexType() Type {
	return Type{
		Name: "complex", Stored: model.TypeComplex, Example: `{"real":1.5,"imaginary":-2}`,
		Parse: parseComplex, Append: appendComplex,
	}
}

var errComplex = errors.New("must be an object with the numbers real and imaginary")

func parseComplex(dst, text []byte) ([]byte, error) {
	var parts [2]float64
	var have [2]bool
	s := jsontext.New(text)
	if t, err := s.Next(); err != nil || t.Kind != jsontext.Object {
		return dst, errComplex
	}
	for first := true; ; first = false {
		more, err := s.More('}', first)
		if err != nil {
			return dst, err
		}
		if !more {
			break
		}
		name, err := s.Name()
		if err != nil {
			return dst, err
		}
		t, err := s.Next()
		if err == nil && !t.Kind.Scalar() {
			err = s.Skip(t.Kind)
		}
		if err != nil {
			return dst, err
		}
		for i, want := range [...]string{"real", "imaginary"} {
			if string(name.Text) == want {
				parts[i], have[i] = decimal.Float(t.Text)
			}
		}
	}
	if !have[0] || !have[1] {
		return dst, errComplex
	}
	for _, v := range parts {
		if v-v != 0 {
			return dst, &NotFiniteError{v}
		}
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(v))
	}
	return dst, nil
}

func appendComplex(dst, value []byte, number func(dst []byte, v float64) []byte) ([]byte, error) {
	if len(value) != 16 {
		return dst, fmt.Errorf("has %d bytes, not 16", len(value))
	}
	var parts [2]float64
	for i := range parts {
		parts[i] = math.Float64frombits(binary.BigEndian.Uint64(value[8*i:]))
		if parts[i]-parts[i] != 0 {
			return dst, &NotFiniteError{parts[i]}
		}
	}
	dst = number(append(dst, `{"real":`...), parts[0])
	dst = number(append(dst, `,"imaginary":`...), parts[1])
	return append(dst, '}'), nil
}

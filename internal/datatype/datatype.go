package datatype

import (
	"strconv"

	"varve/internal/model"
)

// All lists the registered types.
func All() Registry { return Registry{complexType()} }

// A Type describes values to front ends.
type Type struct {
	Name    string     // in requests: [ms, value, "complex"]
	Stored  model.Type // of the series that hold them
	Example string     // a value as strict JSON

	// Parse appends the stored form of a value, given as JSON in the lenient
	// form that package jsontext reads. Its error says what the value must be,
	// to follow "value " and to go before a point.
	Parse func(dst, text []byte) ([]byte, error)

	// Append appends a stored value as JSON; number writes the finite numbers
	// in it. Its error is a *NotFiniteError, or says how the bytes are damaged.
	Append func(dst, value []byte, number func(dst []byte, v float64) []byte) ([]byte, error)
}

// A NotFiniteError is a NaN or an infinity in a value, which JSON cannot hold.
type NotFiniteError struct{ Value float64 }

func (e *NotFiniteError) Error() string {
	return "must be finite, not " + strconv.FormatFloat(e.Value, 'g', -1, 64)
}

// A Registry is a list of types.
type Registry []Type

// Named finds a type by the name that requests have for it, nil if there is none.
func (r Registry) Named(name string) *Type {
	for i := range r {
		if r[i].Name == name {
			return &r[i]
		}
	}
	return nil
}

// Stored finds a type by how the store calls it, nil if there is none.
func (r Registry) Stored(t model.Type) *Type {
	for i := range r {
		if r[i].Stored == t {
			return &r[i]
		}
	}
	return nil
}

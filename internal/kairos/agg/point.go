package agg

import (
	"math"

	"varve/internal/model"
)

// A Point is one output value. Data is only valid until the next call on the
// stream that filled the point.
type Point struct {
	TimeMS int64 // ms since the Unix epoch
	Kind   model.Kind
	order  int32  // position of the series in its group, for a point of the store
	Bits   uint64 // Long: int64 bits; Double: IEEE-754 bits
	Data   []byte // variable kinds, see model.Kind

	// Whole is the bucket that the point represents, if the store has downsampled the
	// samples and the first step requests buckets. It is valid as long as Data is.
	Whole *model.Aggregate
}

// Float returns the numeric value of p; a value that is not a number counts as 0, as in
// KairosDB's ordering.
func (p *Point) Float() float64 {
	if p.Kind.Fixed() {
		return model.Float(p.Kind, p.Bits)
	}
	return 0
}

// setDouble makes p a double at ms.
func (p *Point) setDouble(ms int64, v float64) {
	*p = Point{TimeMS: ms, Kind: model.Double, Bits: math.Float64bits(v)}
}

// A Stream yields points in order. It is used by one goroutine.
type Stream interface {
	// Next fills p with the next point and reports whether there was one.
	// After false or an error it must not be called again.
	Next(p *Point) (bool, error)
}

// Blocks is an optional interface of a Stream: points of one kind in columns, as in a
// store, which is several times faster than point by point. A caller must use only one
// of the two interfaces.
type Blocks interface {
	// NextBlock returns the next points and their kind, nil at the end. They are
	// only valid until the next call. After nil or an error it must not be called
	// again.
	NextBlock() (*model.Columns, model.Kind, error)
}

// Group types, by KairosDB's names. Series of a custom type form a group type of the
// type's name.
const (
	TypeComplex = "complex"
	TypeNumber  = "number"
	TypeText    = "text"
)

// groupType returns the group type of series of type t.
func groupType(t model.Type) string {
	switch t.Kind() {
	case model.Long, model.Double, model.Null:
		return TypeNumber
	case model.String:
		return TypeText
	case model.Complex:
		return TypeComplex
	}
	return string(t)
}

package model

// Kind is how the values of a series are held in memory and in chunks. The numbers are
// written to disk and never reused.
type Kind uint8

const (
	Long    Kind = 1 // int64, exact
	Double  Kind = 2 // IEEE-754 binary64, every bit pattern
	String  Kind = 3 // UTF-8 text
	Complex Kind = 4 // 16 bytes: real then imaginary, IEEE-754 big-endian
	Null    Kind = 5 // no value
	Custom  Kind = 6 // bytes that only the owner of the type understands

	// AggregateKind is the kind of buckets that were computed from samples, see
	// Aggregate. No series has this kind: the store keeps the buckets of a series under
	// the series' number, apart from its samples.
	AggregateKind Kind = 7
)

// Fixed reports whether values are 64-bit words, held in [Columns.Values].
func (k Kind) Fixed() bool { return k == Long || k == Double }

// Variable reports whether values are byte strings, held in [Columns.Data].
func (k Kind) Variable() bool {
	return k == String || k == Complex || k == Custom || k == AggregateKind
}

// Valid reports whether k is one of the defined kinds.
func (k Kind) Valid() bool { return k >= Long && k <= AggregateKind }

var kindNames = [...]string{Long: "long", Double: "double", String: "string", Complex: "complex", Null: "null", Custom: "custom", AggregateKind: "aggregate"}

func (k Kind) String() string {
	if !k.Valid() {
		return "invalid"
	}
	return kindNames[k]
}

// Type names how the values of a series are stored: KairosDB's data_type.
// Every name outside the constants is a custom type, carried byte for byte.
type Type string

const (
	TypeLong    Type = "kairos_long"
	TypeDouble  Type = "kairos_double"
	TypeString  Type = "kairos_string"
	TypeComplex Type = "kairos_complex"
	TypeNull    Type = "null"
)

// Kind returns the representation of t's values.
func (t Type) Kind() Kind {
	switch t {
	case TypeLong:
		return Long
	case TypeDouble:
		return Double
	case TypeString:
		return String
	case TypeComplex:
		return Complex
	case TypeNull:
		return Null
	}
	return Custom
}

// TypeOf is the inverse of [Type.Kind]. It returns "" for Custom, which has many
// types, and for AggregateKind, which has none.
func TypeOf(k Kind) Type {
	if !k.Valid() {
		return ""
	}
	return kindTypes[k]
}

var kindTypes = [AggregateKind + 1]Type{Long: TypeLong, Double: TypeDouble, String: TypeString, Complex: TypeComplex, Null: TypeNull}

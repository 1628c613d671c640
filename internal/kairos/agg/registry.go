package agg

import (
	"slices"
	"strings"
	"time"
)

// Aggregators lists all aggregators by name. To add one, write its spec and list it here.
func Aggregators() []AggregatorSpec {
	all := append(folds(), devSpec, diffSpec, divSpec, filterSpec, gapsSpec, leastSquaresSpec, percentileSpec,
		rateSpec, samplerSpec, saveAsSpec, scaleSpec, scoreSpec, smaSpec, trimSpec)
	slices.SortFunc(all, func(a, b AggregatorSpec) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// GroupBys lists all group-bys by name.
func GroupBys() []GroupBySpec {
	return []GroupBySpec{binSpec, tagSpec, timeSpec, valueSpec}
}

// A Spec describes a component of queries and its properties to front ends.
type Spec[C any] struct {
	Name       string
	Doc        string // one sentence
	Properties []Property

	// New builds the component. Its error is an *ArgumentError.
	New func(Args) (C, error)
}

// An AggregatorSpec or a GroupBySpec describes what a query can name.
type (
	AggregatorSpec = Spec[Step]
	GroupBySpec    = Spec[GroupBy]
)

// A PropertyKind says which Go type a property's argument has.
type PropertyKind uint8

const (
	BoolProperty       PropertyKind = iota // bool
	IntProperty                            // int64, fits 32 bits
	LongProperty                           // int64
	DoubleProperty                         // float64
	TextProperty                           // string
	TextsProperty                          // []string
	DoublesProperty                        // []float64
	SamplingProperty                       // Sampling
	UnitProperty                           // Unit
	ZoneProperty                           // *time.Location
	ScalarProperty                         // float64, string or bool, as written
	ThresholdsProperty                     // []Threshold
	TextMapProperty                        // map[string]string
)

// A Property is a named argument of an aggregator or a group-by.
type Property struct {
	Name   string
	Kind   PropertyKind
	Doc    string
	Hidden bool // not offered by form builders
}

// Args are the arguments of a request, by property name. Arguments that were not given
// are absent.
type Args map[string]any

// Has reports whether an argument was given.
func (a Args) Has(name string) bool { _, ok := a[name]; return ok }

// Bool returns an argument or its default.
func (a Args) Bool(name string, absent bool) bool { return argument(a, name, absent) }

// Long returns an argument of kind Int or Long or its default.
func (a Args) Long(name string, absent int64) int64 { return argument(a, name, absent) }

// Double returns an argument or its default.
func (a Args) Double(name string, absent float64) float64 { return argument(a, name, absent) }

// Text returns an argument or its default.
func (a Args) Text(name, absent string) string { return argument(a, name, absent) }

// Texts returns an argument, nil if absent.
func (a Args) Texts(name string) []string { return argument[[]string](a, name, nil) }

// TextMap returns an argument, nil if absent.
func (a Args) TextMap(name string) map[string]string {
	return argument[map[string]string](a, name, nil)
}

// Doubles returns an argument, nil if absent.
func (a Args) Doubles(name string) []float64 { return argument[[]float64](a, name, nil) }

// Zone returns an argument, nil if absent.
func (a Args) Zone(name string) *time.Location { return argument[*time.Location](a, name, nil) }

// Sampling returns an argument, DefaultSampling if absent.
func (a Args) Sampling(name string) Sampling { return argument(a, name, DefaultSampling) }

// SamplingOrUnit returns the argument `sampling`, else a sampling of one `unit`, else
// DefaultSampling.
func (a Args) SamplingOrUnit() Sampling {
	if !a.Has("sampling") && a.Has("unit") {
		return Sampling{1, argument(a, "unit", Milliseconds)}
	}
	return a.Sampling("sampling")
}

func argument[T any](a Args, name string, absent T) T {
	if v, ok := a[name].(T); ok {
		return v
	}
	return absent
}

// An ArgumentError lists the errors in the arguments of an aggregator or group-by.
type ArgumentError struct{ Reasons []string }

func (e *ArgumentError) Error() string { return strings.Join(e.Reasons, ", ") }

// clippedBytes is how much of a client's text an error repeats.
const clippedBytes = 256

package agg

import (
	"fmt"
	"strings"

	"varve/internal/clip"
)

// Unit is a calendar unit.
type Unit uint8

const (
	Milliseconds Unit = iota
	Seconds
	Minutes
	Hours
	Days
	Weeks
	Months
	Years
)

var unitNames = [...]string{
	"MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS", "MONTHS", "YEARS",
}

// UnitNames lists all units in upper case, from short to long.
func UnitNames() []string { return unitNames[:] }

func (u Unit) String() string { return unitNames[u] }

// ParseUnit finds a unit by its plural name, in any case.
func ParseUnit(name string) (Unit, error) {
	for i, n := range unitNames {
		if strings.EqualFold(n, name) {
			return Unit(i), nil
		}
	}
	return 0, fmt.Errorf("%s is not a valid time unit, must be one of %s", clip.Text(name, clippedBytes), strings.Join(unitNames[:], ","))
}

const (
	secondMS = 1000
	minuteMS = 60 * secondMS
	hourMS   = 60 * minuteMS
	dayMS    = 24 * hourMS
	weekMS   = 7 * dayMS
)

// fixedMS is the length of a unit whose length is always the same, 0 for calendar
// units.
func (u Unit) fixedMS() int64 {
	switch u {
	case Milliseconds:
		return 1
	case Seconds:
		return secondMS
	case Minutes:
		return minuteMS
	case Hours:
		return hourMS
	}
	return 0
}

// A Sampling is a span of Value units. Value 0 is representable, since KairosDB
// refuses it only once there are points.
type Sampling struct {
	Value int64
	Unit  Unit
}

// DefaultSampling is the sampling of an aggregator without one.
var DefaultSampling = Sampling{1, Milliseconds}

package kairos

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"time"
)

// zoneNames lists the identifiers of the time zone database, one a line,
// sorted. Go can load a zone but not list all zones, and on some systems would
// accept a name in the wrong case.
//
//go:embed zones.txt
var zoneNames string

var zoneSet = sync.OnceValue(func() map[string]bool {
	set := map[string]bool{}
	for name := range strings.Lines(zoneNames) {
		set[strings.TrimSpace(name)] = true
	}
	return set
})

// loadZone finds a zone as KairosDB does: an identifier of the database, in its
// case, or an offset such as +05:30 or -0330. The empty name is UTC.
func loadZone(name string) (*time.Location, bool) {
	switch {
	case name == "" || name == "UTC":
		return time.UTC, true
	case name[0] == '+' || name[0] == '-':
		return offsetZone(name)
	case !zoneSet()[name]:
		return nil, false
	}
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), true
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, false
	}
	zones.Store(strings.Clone(name), zone) // name is a part of a request
	return zone, true
}

// zones caches loaded zones by name, a few hundred at most. Loading one searches a
// file, and a request may name tens of thousands.
var zones sync.Map

func offsetZone(name string) (*time.Location, bool) {
	digits := strings.ReplaceAll(name[1:], ":", "")
	if len(digits) != 2 && len(digits) != 4 && len(digits) != 6 {
		return nil, false
	}
	seconds, scale := 0, 3600
	for ; digits != ""; digits, scale = digits[2:], scale/60 {
		n, err := strconv.ParseUint(digits[:2], 10, 8)
		if err != nil || n > 59 || (scale == 3600 && n > 23) {
			return nil, false
		}
		seconds += int(n) * scale
	}
	if name[0] == '-' {
		seconds = -seconds
	}
	return time.FixedZone(name, seconds), true
}

// badZone is KairosDB's message, which lists every zone.
func badZone(context, name string) string {
	all := strings.Join(strings.Fields(zoneNames), ", ")
	return context + "." + name + " is not a valid time zone, must be one of [" + all + "]"
}

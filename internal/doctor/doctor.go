// Package doctor looks at the machine that a server is to run on, or runs on: limits,
// disks, memory, clock, ports. It changes nothing but for a small file that it makes in
// the data directory and removes again.
package doctor

import (
	"fmt"

	"varve/internal/config"
	"varve/internal/machine"
	"varve/internal/units"
)

// A Finding is what one check has found.
type Finding struct {
	Check string `json:"check"` // what was looked at
	Grade Grade  `json:"grade"`
	Text  string `json:"text"`         // what was found
	Do    string `json:"do,omitempty"` // what to do, if it is not OK
}

// A Grade says how bad a finding is.
type Grade string

const (
	OK      Grade = "ok"
	Warning Grade = "warning" // it works, but may surprise operators
	Fault   Grade = "fault"   // it does not work, or data is at risk
)

// Machine looks at everything that needs no other server.
func Machine(loaded *config.Loaded) []Finding {
	c := loaded.Config
	running := inUse(c.DataDir)
	found := settings(loaded)
	found = append(found, rules(c)...)
	found = append(found, security(c)...)
	found = append(found, files(c)...)
	found = append(found, openFiles(c, machine.Files))
	found = append(found, directories(c, running)...)
	found = append(found, memory(c), clock(c.DataDir))
	return append(found, ports(c, running)...)
}

func ok(check, format string, args ...any) Finding {
	return Finding{Check: check, Grade: OK, Text: fmt.Sprintf(format, args...)}
}

func size(n int64) string { return units.Bytes(n).Text() }

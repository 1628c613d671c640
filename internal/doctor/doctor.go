// Package doctor checks the settings of a server and the machine that it runs on, or will
// run on: limits, disks, memory, clock, ports. It changes nothing, except that it creates
// a small file in each directory that the server writes to, and removes it.
package doctor

import (
	"fmt"

	"varve/internal/config"
	"varve/internal/machine"
	"varve/internal/units"
)

// A Finding is the result of one check.
type Finding struct {
	Check string `json:"check"` // what was checked
	Grade Grade  `json:"grade"`
	Text  string `json:"text"`         // what was found
	Do    string `json:"do,omitempty"` // what to do; "" if Grade is OK
}

// A Grade is the severity of a finding.
type Grade string

const (
	OK      Grade = "ok"
	Warning Grade = "warning" // the server works, but may surprise operators
	Fault   Grade = "fault"   // the server does not work, or data is at risk
)

// Machine runs all checks that need no other server.
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

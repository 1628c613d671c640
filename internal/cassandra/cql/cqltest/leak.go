package cqltest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leakPatience is above the 10 s that the driver may go on after its session ended.
const leakPatience = 30 * time.Second

// VerifyTestMain runs the tests, and fails if goroutines are left afterwards. It waits
// for those that end by themselves: goleak does so for less than half a second.
func VerifyTestMain(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(&patientTests{m, options}, options...)
}

type patientTests struct {
	tests   goleak.TestingM
	options []goleak.Option
}

func (p *patientTests) Run() int {
	code := p.tests.Run()
	for end := time.Now().Add(leakPatience); code == 0 && time.Now().Before(end); {
		if goleak.Find(p.options...) == nil {
			break
		}
	}
	return code
}

package cqltest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leakPatience is above the 10 s that the driver may continue after its session ended.
const leakPatience = 30 * time.Second

// refreshLeaks is where a goroutine of the driver stays if its session is closed just when the
// control connection has reconnected: the driver then waits for a refresh that has ended.
const refreshLeaks = "github.com/apache/cassandra-gocql-driver/v2.(*Session).refreshRing"

// VerifyTestMain runs the tests, and fails if goroutines are left afterwards. It waits
// for those that end by themselves: goleak does so for less than half a second.
func VerifyTestMain(m *testing.M, options ...goleak.Option) {
	options = append(options, goleak.IgnoreTopFunction(refreshLeaks))
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

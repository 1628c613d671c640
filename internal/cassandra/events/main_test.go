package events

import (
	"testing"

	"go.uber.org/goleak"

	"varve/internal/cassandra/cql/cqltest"
)

func TestMain(m *testing.M) {
	if config, ok := cqltest.IsTwin(); ok {
		frozen(config)
		return
	}
	// The driver waits for 10 s before it uses a node that has come up, also when the session ends.
	cqltest.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/apache/cassandra-gocql-driver/v2.(*Session).handleNodeUp"))
}

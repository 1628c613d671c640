package cluster

import (
	"testing"

	"go.uber.org/goleak"

	"varve/internal/cassandra/cql/cqltest"
)

func TestMain(m *testing.M) {
	if config, ok := cqltest.IsTwin(); ok {
		holder(config)
		return
	}
	goleak.VerifyTestMain(m)
}

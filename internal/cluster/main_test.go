package cluster

import (
	"testing"

	"varve/internal/cassandra/cql/cqltest"
)

func TestMain(m *testing.M) {
	if config, ok := cqltest.IsTwin(); ok {
		holder(config)
		return
	}
	cqltest.VerifyTestMain(m)
}

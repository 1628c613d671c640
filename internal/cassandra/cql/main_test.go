package cql_test

import (
	"testing"

	"varve/internal/cassandra/cql/cqltest"
)

func TestMain(m *testing.M) { cqltest.VerifyTestMain(m) }

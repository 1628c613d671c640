package originals

import (
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// The driver that tests use for statements of their own.
func TestDriver(t *testing.T) {
	if gocql.NewCluster("127.0.0.1").Port != 9042 {
		t.Error("the driver's default port is not Cassandra's")
	}
}

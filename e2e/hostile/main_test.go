package hostile

import (
	"flag"
	"os"
	"testing"

	"varve/e2e/process"
)

var (
	attackFor     = flag.Duration("hostile.for", 0, "how long an attack that repeats itself goes on; 0 skips all attacks")
	overCassandra = flag.Bool("hostile.cassandra", false, "the servers under attack store over the node of VARVE_TEST_CASSANDRA, each in a keyspace of its own")
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

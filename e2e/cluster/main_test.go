package cluster

import (
	"flag"
	"os"
	"testing"

	"varve/e2e/process"
)

var (
	ringFlag = flag.Bool("cluster", false, "run the tests with rings of Cassandra nodes, some 25 minutes")
	seedFlag = flag.Uint64("cluster.seed", 0, "seed of what is written, 0 for a new one")
	ipFlag   = flag.String("cluster.ip", "", "address of the first node of the ring, the others follow; empty chooses one")
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

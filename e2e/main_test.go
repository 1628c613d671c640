package e2e

import (
	"flag"
	"os"
	"testing"

	"varve/e2e/process"
)

var (
	killsFlag = flag.Int("e2e.kills", 20, "rounds of TestKillLoop")
	seedFlag  = flag.Uint64("e2e.seed", 0, "seed of TestKillLoop, 0 for a new one")
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

package hostile

import (
	"flag"
	"os"
	"testing"
	"time"

	"varve/e2e/process"
)

var attackFor = flag.Duration("hostile.for", 2*time.Second, "how long an attack that repeats itself goes on")

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

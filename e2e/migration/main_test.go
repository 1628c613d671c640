package migration

import (
	"flag"
	"os"
	"testing"

	"varve/e2e/process"
)

var migrationFlag = flag.Bool("migration", false, "go the whole way, some five minutes")

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

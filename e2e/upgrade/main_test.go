package upgrade

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"varve/e2e/process"
)

var run = flag.Bool("upgrade", false, "build earlier commits and carry stores between them; minutes")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*run {
		fmt.Println("no upgrades are tried without -upgrade: make test-upgrade")
		os.Exit(0)
	}
	os.Exit(process.Main(m))
}

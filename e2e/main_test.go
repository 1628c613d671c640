package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

var (
	killsFlag  = flag.Int("e2e.kills", 40, "rounds of TestKillLoop")
	seedFlag   = flag.Uint64("e2e.seed", 0, "seed of TestKillLoop, 0 for a new one")
	binaryFlag = flag.String("e2e.binary", "", "varve to test instead of one built from this tree")
)

// binary is the varve that all tests run.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "varve-e2e")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := provideBinary(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		status := m.Run()
		if err := goleak.Find(); err != nil && status == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return status
	}())
}

func provideBinary(dir string) error {
	if *binaryFlag != "" || testing.Short() {
		var err error
		binary, err = filepath.Abs(*binaryFlag)
		return err
	}
	binary = filepath.Join(dir, "varve")
	build := exec.Command("go", "build", "-o", binary, "varve/cmd/varve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build varve: %w\n%s", err, out)
	}
	return nil
}

// skipShort skips a test that runs processes for seconds.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the real binary for some time; not with -short")
	}
}

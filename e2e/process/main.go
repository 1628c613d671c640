package process

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

var binaryFlag = flag.String("e2e.binary", "", "varve to test instead of one built from this tree")

// Binary is the varve that all tests run. Main sets it.
var Binary string

// built is the directory of the binaries that Main builds.
var built string

// Main builds varve, runs the tests of a package and returns the exit status.
// It fails if goroutines are left over.
func Main(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "varve-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
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
}

func provideBinary(dir string) error {
	if *binaryFlag != "" || testing.Short() {
		var err error
		Binary, err = filepath.Abs(*binaryFlag)
		return err
	}
	Binary = filepath.Join(dir, "varve")
	build := exec.Command("go", "build", "-o", Binary, "varve/cmd/varve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build varve: %w\n%s", err, out)
	}
	return nil
}

// SkipShort skips a test that runs processes for seconds.
func SkipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the real binary for some time; not with -short")
	}
}

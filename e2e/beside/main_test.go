package beside

import (
	"os"
	"testing"

	"varve/e2e/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

package graphite

import (
	"os"
	"testing"

	"varve/e2e/process"
)

// root is where scripts/ and docs/ are.
const root = "../.."

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

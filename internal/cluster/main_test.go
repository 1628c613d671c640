package cluster

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(holderVariable); address != "" {
		holder(address)
		return
	}
	goleak.VerifyTestMain(m)
}

package events

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(frozenVariable); address != "" {
		frozen(address)
		return
	}
	goleak.VerifyTestMain(m)
}

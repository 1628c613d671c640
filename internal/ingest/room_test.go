package ingest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/store/reference"
	"varve/internal/units"
)

// A room waits for memory for busy_wait, which counts, and does not claim to hold more than there can ever be.
func TestRoomThatWaits(t *testing.T) {
	reg := prometheus.NewRegistry()
	config := ingest.DefaultConfig()
	config.BodyMemory, config.BusyWait = 64*units.KiB, time.Millisecond
	p := ingest.New(reference.New(nil), config, ingest.Options{Registerer: reg})
	defer p.Close()
	waits := func(want float64) {
		t.Helper()
		if n := ingesttest.Counters(t, reg, "varve_ingest_waits_total")["buffers"]; n != want {
			t.Errorf("%v waits are counted, want %v", n, want)
		}
	}
	most := int64(config.Buffers())
	first, second := p.NewRoom("192.0.2.1:1"), p.NewRoom("192.0.2.1:2")
	if err := first.Wait(t.Context(), most/2); err != nil {
		t.Error(err)
	}
	waits(0)
	if err := second.Wait(t.Context(), most/2); !errors.Is(err, ingest.ErrBusy) {
		t.Errorf("without memory: %v", err)
	}
	waits(1)
	first.Hold(0)
	if err := first.Wait(t.Context(), most+1); !errors.Is(err, ingest.ErrBusy) {
		t.Errorf("more than all memory: %v", err)
	}
	first.Hold(0)
	if !second.Hold(most / 2) {
		t.Error("a room that holds nothing has memory")
	}
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A growing server takes memory when it settles.
type growing struct {
	*process
	begin, end string // named pipes: a line in begin makes it grow, one in end says that it has
}

func startGrowing(t *testing.T) *growing {
	dir := t.TempDir()
	g := &growing{begin: filepath.Join(dir, "begin"), end: filepath.Join(dir, "end")}
	for _, pipe := range []string{g.begin, g.end} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	g.process, err = startProcess(t.Context(), "sh", "-c", `read go <"$0"; x=$(head -c 20000000 /dev/zero | tr '\0' x); echo >"$1"; read never <"$0"`, g.begin, g.end)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.kill)
	return g
}

func (g *growing) settle(context.Context) error {
	if err := os.WriteFile(g.begin, []byte("go\n"), 0o600); err != nil {
		return err
	}
	_, err := os.ReadFile(g.end)
	return err
}

func (*growing) dataDirs() []string                              { return nil }
func (*growing) send(context.Context, workload, form, int) error { return nil }
func (*growing) stored(context.Context) (int64, error)           { return oneSeries.points(), nil }
func (*growing) flush(context.Context) error                     { return nil }
func (*growing) request(question) request                        { return request{} }
func (*growing) read(question, []byte) (answer, error)           { return nil, nil }
func (*growing) counts(_ context.Context, w workload, _ int) (map[string]int64, error) {
	return map[string]int64{hostName(0): int64(w.steps)}, nil
}

var oneSeries = workload{name: "one", hosts: 1, steps: 10, single: true, startMS: fullHourMS, stepMS: 10_000}

// TestPeakMemory: stages of Graphite's protocols measure until all is in files, others until all is
// visible.
func TestPeakMemory(t *testing.T) {
	for as, settling := range map[form]bool{asLines: false, asJSON: false, asPaths: true, asPickles: true} {
		r := &run{book: &book{}, connections: 1}
		if err := r.sendTo(t.Context(), startGrowing(t), "stage", 0, goCarbonTarget{}, oneSeries, as); err != nil {
			t.Fatal(err)
		}
		peak := r.book.row("stage", figurePeak).Values[goCarbonTarget{}.name()][0]
		if (peak > 15) != settling {
			t.Errorf("form %d: a peak of %v MB; the server takes 20 MB when it settles", as, peak)
		}
	}
}

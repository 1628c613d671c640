package wsp

import (
	"os"
	"runtime"
	"testing"
)

// The temporary files of an export have no names, so that a killed process leaves none.
func TestTapesHaveNoNames(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows removes no file that is open")
	}
	e := Export{Dir: t.TempDir()}
	if err := e.Begin(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(e.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := e.buckets.write([]byte("12345678")); err != nil {
		t.Fatal(err)
	}
	runs, err := openRuns(&e.buckets, 8, func(b []byte) (string, error) { return string(b), nil })
	if err != nil || len(runs) != 1 || runs[0].next != "12345678" {
		t.Errorf("%v, %v", runs, err)
	}
	if err := e.End(); err != nil {
		t.Error(err)
	}
}

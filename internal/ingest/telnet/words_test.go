package telnet

import (
	"testing"

	"varve/internal/ingest"
)

// A put line that lacks words is told what a put line has, whichever word is missing.
func TestPutLinesThatLackWords(t *testing.T) {
	for line, want := range map[string]*ingest.Fault{
		"put": faultWords, "put ": faultWords, "put m": faultWords, "put m 1": faultWords, "put m 1\r": faultWords, "puts m 1": faultWords, "putm": faultWords,
		"put m x":  faultWords, // before the time is looked at
		"pu m 1 2": faultCommand, "put m x 2": faultTime, "": nil, "version": nil,
	} {
		var c Command
		if got := c.Parse([]byte(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

package offline

import (
	"testing"

	"varve/internal/blockfile"
)

// What repair says of a file names how much is lost, also if that is all of it.
func TestSalvagedText(t *testing.T) {
	for want, s := range map[string]salvaged{
		"nothing of it could be read; all 400 samples are lost":                {known: true, properties: blockfile.Properties{Samples: 400}},
		"nothing of it could be read; the number of lost samples is not known": {},
		"3 samples in 1 chunks are now in blocks/b; 0 of 3 samples are lost":   {name: "b", samples: 3, chunks: 1, known: true, properties: blockfile.Properties{Samples: 3}},
	} {
		if got := s.text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

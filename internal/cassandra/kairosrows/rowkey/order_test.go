package rowkey

import "testing"

func TestKeepsMapsInOrder(t *testing.T) {
	for version, want := range map[string]bool{
		"5.0.8": true, "4.1.10": true, "4.1.0-beta1": true, "4.0.5": true, "4.0.4": false, "3.11.14": true, "3.11.13": false, "3.0.28": true, "3.0.8": false, "": false, "5.1-SNAPSHOT": true,
	} {
		if got := KeepsMapsInOrder(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

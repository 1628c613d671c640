package kairos

import (
	"strings"
	"testing"
	"time"
)

func TestLoadZone(t *testing.T) {
	at := time.Date(2023, 7, 1, 0, 0, 0, 0, time.UTC)
	for name, want := range map[string]int{
		"": 0, "UTC": 0, "Europe/Berlin": 7200, "EST": -18000, "US/Pacific": -25200, "Etc/GMT+5": -18000,
		"+05:30": 19800, "+0530": 19800, "-0330": -12600, "-00:30": -1800, "+14": 50400,
	} {
		zone, ok := loadZone(name)
		if !ok {
			t.Errorf("%q was refused", name)
			continue
		}
		if _, got := at.In(zone).Zone(); got != want {
			t.Errorf("%q is %d s from UTC, want %d", name, got, want)
		}
	}
	first, _ := loadZone("Asia/Tokyo")
	if again, _ := loadZone("Asia/Tokyo"); again != first {
		t.Error("a zone is loaded again each time")
	}
	for _, name := range []string{"utc", "Z", "UTC+5", "PST", "europe/berlin", "Local", "../etc/passwd", "+", "+5", "+5:3", "+24:00", "+05:60", "+-1:00"} {
		if _, ok := loadZone(name); ok {
			t.Errorf("%q was taken", name)
		}
	}
}

// Every name that a message offers can be used.
func TestZoneNamesLoad(t *testing.T) {
	n := 0
	for _, name := range strings.Fields(zoneNames) {
		if _, ok := loadZone(name); !ok {
			t.Errorf("%s is listed but does not load", name)
		}
		n++
	}
	if n < 400 {
		t.Errorf("%d zones", n)
	}
}

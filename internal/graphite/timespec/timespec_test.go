package timespec

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

// now is the instant at which the table was recorded from graphite-web 1.1.10.
var now = time.Date(2026, 3, 18, 14, 25, 36, 0, time.UTC)

func TestParseTable(t *testing.T) {
	const bad = "error"
	for _, c := range []struct{ text, want string }{
		{"-1h", "2026-03-18 13:25:36"},
		{"now-1h", "2026-03-18 13:25:36"},
		{"-1 h", "2026-03-18 13:25:36"},
		{"-1H", "2026-03-18 13:25:36"},
		{"-5m", bad}, {"-1mo", bad}, {"-1m", bad},
		{"-1d12h", "2026-03-17 02:25:36"},
		{"-1h30min", "2026-03-18 12:55:36"},
		{"now-1d+2h", bad},
		{"-1", bad}, {"-h", bad}, {"1h", bad}, {"1d", bad}, {"-1.5h", bad}, {"@ts", bad}, {"2026-03-18", bad},
		{"1371234567-1h", bad}, {"1371234567000", bad},
		{"20261399", "1970-08-23 12:09:59"},
		{"1371234567", "2013-06-14 18:29:27"},
		{"midnight", "2026-03-18 00:00:00"},
		{"today", "2026-03-18 00:00:00"},
		{"noon yesterday", "2026-03-17 12:00:00"},
		{"noon_yesterday", "2026-03-17 12:00:00"},
		{"noon+yesterday", bad},
		{"6pm", "2026-03-18 18:00:00"},
		{"6am today", "2026-03-18 06:00:00"},
		{"12am", "2026-03-18 12:00:00"},
		{"12pm", "2026-03-18 00:00:00"},
		{"12:30pm", "2026-03-18 00:30:00"},
		{"04:00_20110501", "2011-05-01 04:00:00"},
		{"20091201", "2009-12-01 00:00:00"},
		{"06/15/08", "2008-06-15 00:00:00"},
		{"06/15/2008", "2008-06-15 00:00:00"},
		{"6/5/99", "1999-06-05 00:00:00"},
		{"6/5/69", "2069-06-05 00:00:00"},
		{"1/2/70", "1970-01-02 00:00:00"},
		{"1/2/1969", "2069-01-02 00:00:00"},
		{"january 1", "2026-01-01 00:00:00"},
		{"jan31", "2026-01-31 00:00:00"},
		{"july", bad},
		{"monday", "2026-03-16 00:00:00"},
		{"wednesday", "2026-03-18 00:00:00"},
		{"thursday", "2026-03-12 00:00:00"},
		{"sunday-1w", "2026-03-08 00:00:00"},
		{"9:5", "2026-03-18 09:05:00"},
		{"25:00", bad}, {"24:00", bad},
		{"", "2026-03-18 14:25:36"},
		{"now", "2026-03-18 14:25:36"},
		{"teatime tomorrow", "2026-03-19 16:00:00"},
		{"now+1y", "2027-03-18 14:25:36"},
		{"-1mon", "2026-02-16 14:25:36"},
		{"20260230", bad}, {"2/30/2026", bad}, {"feb30", bad}, {"-9999y", bad},
	} {
		got, err := Parse(c.text, now, time.UTC)
		switch {
		case err != nil && c.want != bad:
			t.Errorf("Parse(%q): %v; want %s", c.text, err, c.want)
		case err == nil && got.Format(time.DateTime) != c.want:
			t.Errorf("Parse(%q) = %s; want %s", c.text, got.Format(time.DateTime), c.want)
		}
	}
}

func TestParseInZone(t *testing.T) {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, now, want string
	}{
		{"-1d", "2026-03-29T14:25:00+02:00", "2026-03-28T13:25:00+01:00"},
		{"midnight", "2026-03-18T23:30:00Z", "2026-03-19T00:00:00+01:00"},
		{"02:30_20260329", "2026-03-18T00:00:00Z", "2026-03-29T03:30:00+02:00"},
		{"02:30_20261025", "2026-03-18T00:00:00Z", "2026-10-25T02:30:00+01:00"},
		{"01:59_20261025", "2026-03-18T00:00:00Z", "2026-10-25T01:59:00+02:00"},
		{"03:00_20261025", "2026-03-18T00:00:00Z", "2026-10-25T03:00:00+01:00"},
		{"yesterday", "2026-03-30T10:00:00Z", "2026-03-29T00:00:00+01:00"},
		{"1371234567", "2026-03-30T10:00:00Z", "2013-06-14T20:29:27+02:00"},
	} {
		at, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(c.text, at, paris)
		if err != nil || got.Format(time.RFC3339) != c.want {
			t.Errorf("Parse(%q) at %s = %s, %v; want %s", c.text, c.now, got.Format(time.RFC3339), err, c.want)
		}
	}
}

func TestParseOffset(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"", 0}, {"5min", 300}, {"-1h", -3600}, {"+7d", 604800}, {"1d12h", 129600}, {"-1mon", -2592000}, {"2years", 63072000}, {"90s", 90}, {"1w", 604800},
	} {
		if got, err := ParseOffset(c.text); err != nil || got != c.want {
			t.Errorf("ParseOffset(%q) = %d, %v; want %d", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"144115188075855872y", "5", "5m", "m", "-", "1H", "5 min", " 5min", "1.5h", "10000000000d", "99999999999999999999s", "999999999d999999999d"} {
		if got, err := ParseOffset(text); err == nil && text != "-" {
			t.Errorf("ParseOffset(%q) = %d; want an error", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"-1h", "noon yesterday", "06/15/08", "6pm", "9:5am", "jan31", "now+1d2h", "monday", "20110501", "1371234567"} {
		f.Add(s)
	}
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(text, now, paris)
		if err != nil {
			return
		}
		if y := got.Year(); y < 1 || y > 9999 {
			t.Errorf("Parse(%q) = %v", text, got)
		}
		if seconds, err := ParseOffset(text); err == nil && seconds != 0 {
			if want := now.Unix() + seconds; text[0] == '-' && got.Unix() != want {
				t.Errorf("Parse(%q) = %d; want %d", text, got.Unix(), want)
			}
		}
	})
}

// TestZone looks up zones by names in any case, with one for each word of unusual spelling.
func TestZone(t *testing.T) {
	for _, name := range []string{
		"UTC", "EST", "EST5EDT", "Europe/Paris", "America/New_York", "America/Port-au-Prince", "America/Port_of_Spain", "Africa/Dar_es_Salaam",
		"America/Argentina/ComodRivadavia", "America/Knox_IN", "Antarctica/DumontDUrville", "Antarctica/McMurdo", "Australia/ACT", "Australia/LHI",
		"Australia/NSW", "Brazil/DeNoronha", "Chile/EasterIsland", "Etc/GMT+5", "Etc/GMT-14", "Etc/GMT0", "Etc/UCT", "Etc/UTC", "GB-Eire",
		"Mexico/BajaNorte", "Mexico/BajaSur", "US/East-Indiana", "NZ-CHAT", "W-SU", "Asia/Kolkata", "GMT+0",
	} {
		for _, spelling := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			if zone, known := Zone(spelling); !known || zone.String() != name {
				t.Errorf("Zone(%q) = %v, %v; want %s", spelling, zone, known, name)
			}
		}
	}
	for _, name := range []string{"", "Local", "local", "No/Such_Zone", "Europe/", "/", "../etc/passwd", "\x00", strings.Repeat("a/", 5000)} {
		if zone, known := Zone(name); known {
			t.Errorf("Zone(%.20q) = %v; want none", name, zone)
		}
	}
}

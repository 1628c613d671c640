package function

import (
	"testing"
	"time"
)

func TestAlignTo(t *testing.T) {
	const form = "2006-01-02 15:04:05"
	at := time.Date(2024, 5, 16, 13, 47, 59, 1, time.UTC) // a Thursday
	for unit, want := range map[string]string{
		"seconds": "2024-05-16 13:47:59", "minutes": "2024-05-16 13:47:00", "hours": "2024-05-16 13:00:00", "days": "2024-05-16 00:00:00",
		"weeks": "2024-05-13 00:00:00", "weeks4": "2024-05-16 00:00:00", "weeks5": "2024-05-10 00:00:00", "weeks7": "2024-05-12 00:00:00",
		"months": "2024-05-01 00:00:00", "years": "2024-01-01 00:00:00",
	} {
		if got, err := alignTo(at, unit); err != nil || got.Format(form) != want || got.Nanosecond() != 0 {
			t.Errorf("%s: %s, %v, want %s", unit, got.Format(form), err, want)
		}
	}
}

package cassandra

import (
	"testing"

	"varve/internal/model"
)

func TestWithin(t *testing.T) {
	const day = 86_400_000
	for _, test := range []struct {
		start, end string
		want       model.TimeRange // zero: refused
	}{
		{"", "", model.AllTime},
		{"1970-01-02", "1970-01-02", model.TimeRange{StartMS: day, EndMS: 2*day - 1}},
		{"1970-01-02T00:00Z", "1970-01-03T01:00+0100", model.TimeRange{StartMS: day, EndMS: 2 * day}},
		{"1970-01-02T12:08-0700", "", model.TimeRange{StartMS: day + (19*60+8)*60_000, EndMS: model.AllTime.EndMS}},
		{"", "1970-01-01T00:00:01Z", model.TimeRange{StartMS: model.AllTime.StartMS, EndMS: 1000}},
		{"", "1970-01-01T00:00:01+00:00", model.TimeRange{StartMS: model.AllTime.StartMS, EndMS: 1000}},
		{"1970-01-02T00:00Z", "1970-01-02T00:00Z", model.TimeRange{}},
		{"1970-01-03", "1970-01-02", model.TimeRange{}},
		{"yesterday", "", model.TimeRange{}},
		{"", "1970-02-30", model.TimeRange{}},
	} {
		got, err := ReadCluster{StartTime: test.start, EndTime: test.end}.within()
		if refused := test.want == (model.TimeRange{}); (err != nil) != refused || !refused && got != test.want {
			t.Errorf("%q to %q: %v, %v", test.start, test.end, got, err)
		}
	}
}

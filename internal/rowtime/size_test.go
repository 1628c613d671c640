package rowtime

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"varve/internal/model"
)

func sizeOf(s model.Series) int { return SeriesBytes(s.Metric, s.Type, s.Tags.All()) }

// The key of a row fits wherever SeriesBytes says so.
func TestSeriesBytesBoundsRowKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.RuneFrom([]rune("a:=é日")), 1, 40, -1)
		s := model.Series{Metric: name.Draw(t, "metric"), Type: model.Type(rapid.StringN(1, 100, 127).Draw(t, "type"))}
		var tags []model.Tag
		for i := range rapid.IntRange(0, 20).Draw(t, "tags") {
			tags = append(tags, model.Tag{Name: fmt.Sprint(i, name.Draw(t, "tag")), Value: strings.Repeat(name.Draw(t, "value"), 40)})
		}
		s.Tags, _ = model.NewTags(tags...)
		key, err := Key{Metric: s.Metric, RowTimeMS: 1, Type: s.Type, Tags: s.Tags}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := sizeOf(s); n < len(key) {
			t.Fatalf("%d bytes for a key of %d", n, len(key))
		}
	})
}

func TestSeriesBytes(t *testing.T) {
	var many, escaped []model.Tag
	for i := range 5000 {
		many = append(many, model.Tag{Name: fmt.Sprint("tag", i), Value: "v"})
	}
	for i := range 16 {
		escaped = append(escaped, model.Tag{Name: fmt.Sprint("t", i), Value: strings.Repeat(":", 2500)})
	}
	// All clustering columns together: kairos_long, a hash of 4 bytes, and the map.
	wide := func(mapBytes int) []model.Tag {
		const n = 4
		var tags []model.Tag
		left := mapBytes - 4
		for i := range n {
			size := left/(n-i) - 8 - 1
			tags = append(tags, model.Tag{Name: string(rune('a' + i)), Value: strings.Repeat("v", size)})
			left -= size + 8 + 1
		}
		return tags
	}
	for name, test := range map[string]struct {
		tags []model.Tag
		fits bool
	}{
		"no tags":                            {nil, true},
		"one of 65,000 bytes":                {[]model.Tag{{Name: "k", Value: strings.Repeat("v", 65_000)}}, true},
		"one too long for index tables":      {[]model.Tag{{Name: "k", Value: strings.Repeat("v", 65_480)}}, false},
		"more than the map of tags holds":    {many, false},
		"as much as clustering columns hold": {wide(MaxKeyBytes - 11 - 4), true},
		"more than clustering columns hold":  {wide(MaxKeyBytes - 11 - 3), false},
		"more with their escapes":            {escaped, false},
		"fewer with escapes":                 {escaped[:12], true},
	} {
		tags, err := model.NewTags(test.tags...)
		if err != nil {
			t.Fatal(err)
		}
		s := model.Series{Metric: "m", Type: model.TypeLong, Tags: tags}
		_, err = Key{Metric: s.Metric, Type: s.Type, Tags: s.Tags}.Append(nil)
		if n := sizeOf(s); n <= MaxKeyBytes != test.fits || test.fits && err != nil {
			t.Errorf("%s: %d bytes, %v; fits: want %v", name, n, err, test.fits)
		}
	}
}

package kairosrows

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"varve/internal/model"
)

// drawTags draws small sets of tags, in names that sort before and after each
// other in every way.
func drawTags(t *rapid.T) model.Tags {
	var tags []model.Tag
	for _, name := range []string{"a", "b", "b\x00", "c", "é", "\U00010000", "\uffee"} {
		if rapid.IntRange(0, 2).Draw(t, "has "+name) > 0 {
			tags = append(tags, model.Tag{Name: name, Value: rapid.SampledFrom([]string{"1", "1\x00", "2", "3", "\uffee", "\U00010000"}).Draw(t, "value")})
		}
	}
	set, err := model.NewTags(tags...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestSkipScan: whatever there is and whatever is asked for, a scan that is given
// pages of any size from where it wants to go on finds what matches, and passes
// by nothing that does.
func TestSkipScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rowKey {
			return rowKey{rapid.SampledFrom([]model.Type{model.TypeDouble, model.TypeLong, "x"}).Draw(t, "type"), drawTags(t)}
		}), 0, 80).Draw(t, "keys")
		at := func(k rowKey) place { return place{string(k.typ), serverOrder(k.tags)} }
		slices.SortFunc(keys, func(a, b rowKey) int { return at(a).compare(at(b)) })
		keys = slices.Compact(keys)
		matchers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.Matcher {
			return oneOf(rapid.SampledFrom([]string{"a", "b", "c", "é", "\uffee"}).Draw(t, "tag"),
				rapid.SliceOfN(rapid.SampledFrom([]string{"0", "1", "2", "3", "\uffee"}), 1, 3).Draw(t, "values")...)
		}), 1, 3).Draw(t, "matchers")
		var want []rowKey
		for _, k := range keys {
			if model.MatchesAll(matchers, k.tags) {
				want = append(want, k)
			}
		}
		literals, possible := sortedLiterals(matchers)
		if !possible {
			if len(want) > 0 {
				t.Fatalf("%v is said to be impossible, matches %v", matchers, want)
			}
			return
		}
		s := skipScan{literals: literals}
		var got []rowKey
		size := rapid.IntRange(1, 5).Draw(t, "page")
		for range len(keys) + 5 {
			first := slices.IndexFunc(keys, func(k rowKey) bool { return at(k).compare(s.from) >= 0 })
			if first < 0 {
				break
			}
			for _, k := range keys[first:min(first+size, len(keys))] {
				before := s.from
				if s.see(k) {
					got = append(got, k)
				}
				if s.from.compare(before) < 0 {
					t.Fatalf("it went back from %v to %v", before, s.from)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v: found %v, want %v of %v", matchers, got, want, keys)
		}
	})
}

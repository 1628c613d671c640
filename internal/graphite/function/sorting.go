package function

import (
	"math"
	"regexp"
	"slices"
	"strings"

	"varve/internal/graphite/numeric"
)

func init() {
	const group = "Sorting"
	define(group, "sortBy(seriesList, [func:aggFunc=\"average\"], [reverse:boolean=false])", "Sorts series by an aggregated value, in ascending order unless reversed.", func(c *call) (any, error) {
		list := c.list(0)
		_, aggregate := c.aggregation(1, "average")
		return c.sortBy(list, aggregate, c.boolean(2))
	})
	define(group, "sortByMaxima(seriesList)", "Sorts series by their greatest value, in descending order.", func(c *call) (any, error) { return c.sortBy(c.list(0), numeric.Max, true) })
	define(group, "sortByMinima(seriesList)", "Sorts series by their least value; series without a positive value are dropped.", sortByMinima)
	define(group, "sortByName(seriesList, [natural:boolean=false], [reverse:boolean=false])", "Sorts series by name; the natural order takes digits for numbers.", sortByName)
	define(group, "sortByTotal(seriesList)", "Sorts series by their sum, in descending order.", func(c *call) (any, error) { return c.sortBy(c.list(0), numeric.Sum, true) })
}

// sortBy returns series in the order of a value. Null is the smallest value; equal series
// keep their order.
func (c *call) sortBy(list []*Series, value numeric.Aggregation, descending bool) ([]*Series, error) {
	if c.err != nil {
		return nil, c.err
	}
	type entry struct {
		series *Series
		value  float64
	}
	entries := make([]entry, len(list))
	for i, s := range list {
		if err := c.look(); err != nil {
			return nil, err
		}
		v := value(s.Values)
		if numeric.IsNull(v) {
			v = math.Inf(-1)
		}
		entries[i] = entry{s, v}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		switch {
		case a.value == b.value:
			return 0
		case (a.value < b.value) != descending:
			return -1
		}
		return 1
	})
	out := make([]*Series, len(list))
	for i, e := range entries {
		out[i] = e.series
	}
	return out, nil
}

func sortByMinima(c *call) (any, error) {
	list := c.list(0)
	positive := slices.DeleteFunc(slices.Clone(list), func(s *Series) bool { return !(numeric.Max(s.Values) > 0) })
	return c.sortBy(positive, numeric.Min, false)
}

var digitRuns = regexp.MustCompile(`\d+`)

// natural pads numbers within a name, so that they sort as numbers.
func natural(name string) string {
	return digitRuns.ReplaceAllStringFunc(name, func(digits string) string {
		digits = strings.TrimLeft(digits, "0")
		return strings.Repeat("0", max(10-len(digits), 0)) + digits
	})
}

func sortByName(c *call) (any, error) {
	list := c.list(0)
	naturally, reverse := c.boolean(1), c.boolean(2)
	if c.err != nil {
		return nil, c.err
	}
	type entry struct {
		series *Series
		key    string
	}
	entries := make([]entry, len(list))
	for i, s := range list {
		entries[i] = entry{s, s.Name}
		if !naturally {
			continue
		}
		entries[i].key = natural(s.Name)
		if err := c.reserve(int64(len(entries[i].key))); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		order := strings.Compare(a.key, b.key)
		if reverse {
			return -order
		}
		return order
	})
	out := make([]*Series, len(list))
	for i, e := range entries {
		out[i] = e.series
	}
	return out, nil
}

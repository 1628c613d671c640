package function

import (
	"cmp"
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
	return sorted(c, list, descending, func(s *Series) (float64, error) {
		v := value(s.Values)
		if numeric.IsNull(v) {
			v = math.Inf(-1)
		}
		return v, c.look()
	})
}

// sorted returns series in the order of a key. Equal series keep their order.
func sorted[K cmp.Ordered](c *call, list []*Series, descending bool, key func(*Series) (K, error)) ([]*Series, error) {
	if c.err != nil {
		return nil, c.err
	}
	type entry struct {
		series *Series
		key    K
	}
	entries := make([]entry, len(list))
	for i, s := range list {
		k, err := key(s)
		if err != nil {
			return nil, err
		}
		entries[i] = entry{s, k}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		if descending {
			a, b = b, a
		}
		return cmp.Compare(a.key, b.key)
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
	return sorted(c, list, reverse, func(s *Series) (string, error) {
		if !naturally {
			return s.Name, nil
		}
		key := natural(s.Name)
		return key, c.reserve(int64(len(key)))
	})
}

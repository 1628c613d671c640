package rowkey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"varve/internal/model"
)

// Compare orders row keys as the server does, if the server keeps tags in order: see
// KeepsMapsInOrder.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Type, other.Type), CompareTags(ServerOrder(k.Tags), ServerOrder(other.Tags)))
}

// ServerOrder returns tags as the server sorts them: by bytes.
func ServerOrder(tags model.Tags) []model.Tag {
	all := tags.Slice()
	byName := func(a, b model.Tag) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(all, byName) {
		slices.SortFunc(all, byName)
	}
	return all
}

// CompareTags orders sets of tags as the server does.
func CompareTags(a, b []model.Tag) int {
	return slices.CompareFunc(a, b, func(x, y model.Tag) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Value, y.Value))
	})
}

// KeepsMapsInOrder reports whether a release of Cassandra sorts the entries of maps, in
// whatever order they were bound (CASSANDRA-17623).
func KeepsMapsInOrder(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return false
	}
	switch {
	case major >= 5 || major == 4 && minor > 0:
		return true
	case major == 4:
		return patch >= 5
	}
	return major == 3 && (minor == 0 && patch >= 28 || minor == 11 && patch >= 14)
}

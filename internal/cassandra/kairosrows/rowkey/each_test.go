package rowkey

import (
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
)

// A lookup may read a million row keys: each needs memory for its tags only, whatever its type.
func TestDecodedKeysShareTheirType(t *testing.T) {
	tags := cql.TagMap{Tags: model.MustTags("host", "a", "room", "1")}.Append(nil)
	for _, dataType := range []string{string(model.TypeLong), "kairos_histogram_v2"} {
		name := []byte(dataType)
		var k Key
		decode := func() {
			if err := k.Decode(name, tags); err != nil || string(k.Type) != dataType {
				t.Fatal(k, err)
			}
		}
		if n := testing.AllocsPerRun(100, decode); n > 1 {
			t.Errorf("type %s: %g allocations", dataType, n)
		}
	}
}

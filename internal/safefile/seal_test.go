package safefile

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestSeal: a flipped bit of a sealed object is an error, or leaves the object as it was.
func TestSeal(t *testing.T) {
	testSeal(t, func(object []byte) []byte { return append(Seal(object), '\n') }, CheckSeal)
	testSeal(t, SealBlank, CheckSealBlank)
}

func testSeal(t *testing.T, seal func(object []byte) []byte, check func(text []byte) error) {
	type object struct {
		Offset int64            `json:"offset"`
		After  string           `json:"after"`
		Late   map[string]int64 `json:"late"`
	}
	want := object{1_700_000, "a/b/c.wsp", map[string]int64{"x": 60_000}}
	plain, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(plain); err != nil {
		t.Errorf("an object of an earlier build: %v", err)
	}
	text := seal(plain)
	for flip := range 8*len(text) + 1 {
		if flip > 0 {
			text[(flip-1)/8] ^= 1 << ((flip - 1) % 8)
		}
		var got object
		err := check(text)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err == nil && !reflect.DeepEqual(got, want) || flip == 0 && err != nil {
			t.Errorf("flip %d: %+v, %v: %s", flip, got, err, text)
		}
		if flip > 0 {
			text[(flip-1)/8] ^= 1 << ((flip - 1) % 8)
		}
	}
}

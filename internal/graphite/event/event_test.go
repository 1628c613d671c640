package event

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"varve/internal/store"
)

var noon = time.Unix(1710072000, 0)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want Event
		err  string // part of the error
	}{
		{`{"what":"a"}`, Event{When: 1710072000, What: "a"}, ""},
		{`{"what":"","when":0,"tags":null,"data":null,"id":7}`, Event{}, ""},
		{`{"what":"a","when":1.5e9,"tags":["x y","z"],"data":"d"}`, Event{When: 1500000000, What: "a", Data: "d", Tags: []string{"x", "y", "z"}}, ""},
		{`{"what":"a","when":12.9,"tags":" x  y ","data":{"k": [1]}}`, Event{When: 12, What: "a", Data: `{"k": [1]}`, Tags: []string{"x", "y"}}, ""},
		{`{"what":"a","when":9999999999,"tags":[]}`, Event{When: 9999999999, What: "a", Tags: []string{}}, ""},
		{`{"what":"ä\u0000","tags":"` + strings.Repeat("x", MaxTagBytes) + `"}`, Event{When: 1710072000, What: "ä\x00", Tags: []string{strings.Repeat("x", MaxTagBytes)}}, ""},
		{`{"what":"a","tags":"` + strings.Repeat("x", MaxTagBytes+1) + `"}`, Event{}, "have 1000 at most"},
		{`{"what":"a","when":1710072000000}`, Event{}, "not milliseconds"},
		{`{"what":"a","when":10000000000}`, Event{}, "seconds since 1970"},
		{`{"what":"a","when":-1}`, Event{}, "seconds since 1970"},
		{`{"what":"a","when":1e999}`, Event{}, "seconds since 1970"},
		{`{"what":"a","when":"soon"}`, Event{}, "object of JSON"},
		{`{"what":"a","tags":{"x":1}}`, Event{}, `"tags" must be`},
		{`{"what":"a","tags":[1]}`, Event{}, `"tags" must be`},
		{`{"what":1}`, Event{}, "object of JSON"},
		{`{"tags":"x"}`, Event{}, `"what" is missing`},
		{`["a"]`, Event{}, "object of JSON"},
		{`null`, Event{}, `"what" is missing`},
		{``, Event{}, "object of JSON"},
		{`{"what":"a"}{}`, Event{}, "object of JSON"},
	} {
		got, err := Parse([]byte(c.text), noon)
		if c.err != "" {
			if input := (*store.InputError)(nil); !errors.As(err, &input) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.60s: %v; want %q", c.text, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%.60s: %#v, %v; want %#v", c.text, got, err, c.want)
		}
	}
}

// FuzzParse: what is accepted has a key that reads back, in the order of time.
func FuzzParse(f *testing.F) {
	f.Add(`{"what":"a","when":1.5e9,"tags":["x y","z"],"data":"d"}`, 3)
	f.Add(`{"what":"","tags":"\u2028 \u0000 ;=."}`, 1<<numberBits-1)
	f.Fuzz(func(t *testing.T, text string, number int) {
		e, err := Parse([]byte(text), noon)
		if err != nil {
			return
		}
		k := key{e.When, number & (1<<numberBits - 1), "0123abcd", e.Tags}
		got, err := parseKey(k.String())
		if err != nil || got.when != k.when || got.number != k.number || got.writer != k.writer || strings.Join(got.tags, " ") != strings.Join(k.tags, " ") {
			t.Fatalf("%+v is read back as %+v, %v", k, got, err)
		}
		later := key{e.When + 1, 0, "00000000", nil}
		if k.String() >= later.String() || k.id() >= later.id() {
			t.Fatalf("%q, id %d, is not before %q, id %d", k, k.id(), later, later.id())
		}
	})
}

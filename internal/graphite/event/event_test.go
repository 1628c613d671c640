package event

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
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
		{`{"what":"a","tags":"` + strings.Repeat("x", MaxTagBytes+1) + `"}`, Event{}, "may have at most 1000"},
		{`{"what":"a","when":1710072000000}`, Event{}, "not milliseconds"},
		{`{"what":"a","when":10000000000}`, Event{}, "seconds since 1970"},
		{`{"what":"a","when":-1}`, Event{}, "seconds since 1970"},
		{`{"what":"a","when":1e999}`, Event{}, "seconds since 1970"},
		{`{"what":"a","when":"soon"}`, Event{}, `"when" is "soon", but must be seconds since 1970`},
		{`{"what":"a","when":true}`, Event{}, `"when" is true, but must be seconds since 1970`},
		{`{"what":"a","when":null}`, Event{When: 1710072000, What: "a"}, ""},
		{`{"what":4.20,"when":"5"}`, Event{When: 5, What: "4.20"}, ""},
		{`{"what":"a","What":"b","when":5,"WHEN":6,"tags":"c","Tags":{"d":1},"Data":"e"}`, Event{When: 5, What: "a", Tags: []string{"c"}}, ""},
		{`{"What":"a"}`, Event{}, `"what" is missing`},
		{`{"what":null}`, Event{}, `"what" is missing`},
		{"{\"what\":\"\xe9\"}", Event{}, "not UTF-8"},
		{`{"what":"a","tags":{"x":1}}`, Event{}, `"tags" must be`},
		{`{"what":"a","tags":[1]}`, Event{}, `"tags" must be`},
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

// FuzzParse: every accepted event is read back from the timeline, and ids are in the order of times.
func FuzzParse(f *testing.F) {
	f.Add(`{"what":"a","when":1.5e9,"tags":["x y","z"],"data":"d"}`, 3)
	f.Add(`{"what":"","tags":"\u2028 \u0000 ;=."}`, 1<<numberBits-1)
	f.Fuzz(func(t *testing.T, text string, number int) {
		e, err := Parse([]byte(text), noon)
		if err != nil {
			return
		}
		data, err := e.stored()
		if err != nil {
			t.Fatal(err)
		}
		at := e.When*second + int64(number&(1<<numberBits-1))
		got, err := parseStored(&timeline.Event{Time: at, Data: data})
		if e.ID = got.ID; len(e.Tags) == 0 {
			e.Tags = nil
		}
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%+v is read back as %+v, %v", e, got, err)
		}
		if timeOf(got.ID) != at || got.ID >= idOf((e.When+1)*second) || got.ID >= 1<<53 {
			t.Fatalf("the id at %d is %d", at, got.ID)
		}
	})
}

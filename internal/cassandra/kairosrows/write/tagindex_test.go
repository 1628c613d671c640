package write

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
)

// vectors are the bytes recorded from KairosDB 1.3.
func vectors(t *testing.T, into any) {
	t.Helper()
	text, err := os.ReadFile("testdata/index-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func tagsOf(t *testing.T, m map[string]string) model.Tags {
	t.Helper()
	var list []model.Tag
	for n, v := range m {
		list = append(list, model.Tag{Name: n, Value: v})
	}
	tags, err := model.NewTags(list...)
	if err != nil {
		t.Fatal(err)
	}
	return tags
}

func TestTagHashVectors(t *testing.T) {
	var file struct {
		Hashes []struct {
			Description string
			Input       struct {
				Indexed map[string]string `json:"indexed_tags"`
			}
			Hash   int32    `json:"tag_collection_hash"`
			Hashed string   `json:"hashed_bytes_hex"`
			Pairs  []string `json:"single_tag_pairs"`
		} `json:"tag_collection_hashes"`
	}
	vectors(t, &file)
	if len(file.Hashes) < 8 {
		t.Fatalf("%d vectors", len(file.Hashes))
	}
	for _, v := range file.Hashes {
		row := newTagIndexRow(tagsOf(t, v.Input.Indexed), func(string) bool { return true })
		if row.hash != v.Hash || !slices.Equal(row.pairs, v.Pairs) {
			t.Errorf("%s: hash %d of %q, want %d of %q", v.Description, row.hash, row.pairs, v.Hash, v.Pairs)
		}
		hashed, err := hex.DecodeString(v.Hashed)
		if err != nil || int32(murmur3(hashed)) != v.Hash {
			t.Errorf("%s: murmur3 of %x = %d, %v, want %d", v.Description, hashed, int32(murmur3(hashed)), err, v.Hash)
		}
	}
}

func TestTagRules(t *testing.T) {
	rules, err := ParseTagRules([]string{
		"include name=load tags=host,dc", "include prefix=web.", `include regex=[a-c]\d tags=host`, "include name=b1 tags=dc",
		"exclude name=web.noise", "exclude regex=.*secret.*", "include name=star tags=*",
	})
	if err != nil {
		t.Fatal(err)
	}
	tags := model.MustTags("host", "a", "dc", "lga", "x", "1")
	for metric, want := range map[string]string{
		"load": "dc=lga host=a", "loads": "", "web.hits": "dc=lga host=a x=1", "web.noise": "", "web.secret": "",
		"a1": "host=a", "b1": "dc=lga host=a", "d1": "", "star": "dc=lga host=a x=1",
	} {
		if got := strings.Join(rules.row(metric, tags).pairs, " "); got != want {
			t.Errorf("%s: %q, want %q", metric, got, want)
		}
	}
	if got := rules.row("load", model.MustTags("x", "1")); got.pairs != nil {
		t.Errorf("none of the tags: %+v", got)
	}
	var none *TagRules
	if got := none.row("load", tags); got.pairs != nil {
		t.Errorf("no rules: %+v", got)
	}
	everything, err := ParseTagRules([]string{"include all"})
	if err != nil || len(everything.row("any", tags).pairs) != 3 {
		t.Errorf("include all: %v", err)
	}
	_, err = ParseTagRules([]string{"", "include", "omit all", "include name=", "include nam=x", "include regex=(", "exclude all tags=a", "include all x"})
	if err == nil {
		t.Fatal("faulty rules: no error")
	}
	if joined := err.(interface{ Unwrap() []error }).Unwrap(); len(joined) != 8 {
		t.Errorf("%d of 8 faulty rules are reported: %v", len(joined), err)
	}
}

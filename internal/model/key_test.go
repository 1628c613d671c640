package model

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write golden files instead of comparing")

// keyExamples are the series of testdata/series-keys.golden and of
// docs/formats/series-key.md.
var keyExamples = []Series{
	{Metric: "load", Tags: MustTags("host", "a"), Type: TypeLong},
	{Metric: "load", Tags: MustTags("host", "a"), Type: TypeDouble},
	{Metric: "load", Tags: MustTags("host", "a", "dc", "lga"), Type: TypeDouble},
	{Metric: "note", Tags: MustTags("k", "v"), Type: TypeString},
	{Metric: "z", Tags: MustTags("k", "v"), Type: TypeComplex},
	{Metric: "gone", Tags: MustTags("k", "v"), Type: TypeNull},
	{Metric: "m", Tags: MustTags("k", "v"), Type: "kairos_long_nano"},
	{Metric: "servers.a.cpu", Type: TypeDouble},
	{Metric: "m", Tags: MustTags("\ufffd", "bmp", "\U0001f600", "emoji"), Type: TypeLong},
	{Metric: strings.Repeat("x", 128), Type: TypeLong},
}

// TestKeyGolden holds the bytes of series keys, which are on disk, to the
// golden file.
func TestKeyGolden(t *testing.T) {
	const file = "testdata/series-keys.golden"
	var b strings.Builder
	for _, s := range keyExamples {
		fmt.Fprintf(&b, "%q\n%s\n\n", s.String(), hex.EncodeToString(s.AppendKey(nil)))
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("series keys changed: this breaks stores on disk\ngot:\n%s\nwant:\n%s", b.String(), want)
	}
}

// TestKeyPage checks that the examples of the format page are true.
func TestKeyPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/formats/series-key.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range keyExamples[:9] {
		if want := "`" + hex.EncodeToString(s.AppendKey(nil)) + "`"; !strings.Contains(string(page), want) {
			t.Errorf("the page lacks the key of %q: %s", s, want)
		}
	}
}

func drawText(t *rapid.T, label string) string { return rapid.StringN(1, 4, -1).Draw(t, label) }

func drawTags(t *rapid.T) Tags {
	var list []Tag
	for _, name := range rapid.SliceOfNDistinct(rapid.StringN(1, 4, -1), 0, 5, rapid.ID).Draw(t, "names") {
		list = append(list, Tag{name, drawText(t, "value")})
	}
	tags, err := NewTags(list...)
	if err != nil {
		t.Fatal(err)
	}
	return tags
}

func drawSeries(t *rapid.T) Series {
	return Series{
		Metric: drawText(t, "metric"),
		Tags:   drawTags(t),
		Type:   rapid.SampledFrom([]Type{TypeLong, TypeDouble, TypeString, TypeComplex, TypeNull, "kairos_long_nano", "x"}).Draw(t, "type"),
	}
}

func TestKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSeries(t)
		key := s.AppendKey([]byte("before"))
		got, err := ParseKey(string(key[len("before"):]))
		if err != nil || got != s {
			t.Fatalf("ParseKey(AppendKey(%v)) = %v, %v", s, got, err)
		}
		built := AppendTags(AppendKeyHead(nil, s.Type, s.Metric), s.Tags.Slice())
		if string(built) != string(key[len("before"):]) {
			t.Fatalf("AppendKeyHead and AppendTags: %x, want %x", built, key)
		}
		if o := drawSeries(t); (o.Compare(s) == 0) != (o == s) || (string(o.AppendKey(nil)) == string(built)) != (o == s) {
			t.Fatalf("%v and %v: Compare = %d", s, o, s.Compare(o))
		}
	})
}

func TestParseKeyErrors(t *testing.T) {
	for name, key := range map[string]string{
		"empty":                            "",
		"kind 0":                           "\x00\x01m",
		"kind 7":                           "\x07\x01m",
		"kind alone":                       "\x01",
		"metric cut off":                   "\x01\x02m",
		"length cut off":                   "\x01\x80",
		"length above 64 bits":             "\x01" + strings.Repeat("\xff", 10) + "\x01",
		"length near 64 bits":              "\x01" + strings.Repeat("\xff", 9) + "\x01m",
		"type cut off":                     "\x06\x05ab",
		"built-in type as custom":          "\x06\x04null\x01m",
		"length longer than need be":       "\x01\x81\x00m",
		"tag length longer than need be":   "\x01\x01m\x81\x00a\x01b",
		"tag name cut off":                 "\x01\x01m\x02a",
		"tag without value":                "\x01\x01m\x01a",
		"tag value cut off":                "\x01\x01m\x01a\x02b",
		"tags out of order":                "\x01\x01m\x01b\x01x\x01a\x01x",
		"tag twice":                        "\x01\x01m\x01a\x01x\x01a\x01y",
		"tags in UTF-8, not UTF-16, order": "\x01\x01m\x03\uffff\x01x\x04\U00010000\x01x",
	} {
		if s, err := ParseKey(key); err == nil {
			t.Errorf("%s: ParseKey(%q) = %v, want an error", name, key, s)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range keyExamples {
		f.Add(string(s.AppendKey(nil)))
	}
	f.Add("\x01\x80\x00")
	f.Fuzz(func(t *testing.T, key string) {
		s, err := ParseKey(key)
		if err != nil {
			return
		}
		if got := string(s.AppendKey(nil)); got != key {
			t.Fatalf("ParseKey(%q) = %+v, whose key is %q", key, s, got)
		}
		if got := TrustKey(key); got != s {
			t.Fatalf("TrustKey(%q) = %+v, ParseKey has %+v", key, got, s)
		}
	})
}

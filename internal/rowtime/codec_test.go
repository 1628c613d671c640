package rowtime

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"varve/internal/model"
)

func TestKeyLimits(t *testing.T) {
	dst := []byte("before")
	for name, k := range map[string]Key{
		"type":  {Metric: "m", Type: model.Type(strings.Repeat("t", MaxTypeBytes+1))},
		"total": {Metric: "m", Type: model.TypeLong, Tags: model.MustTags("k", strings.Repeat("=", MaxKeyBytes/2))},
	} {
		if got, err := k.Append(dst); err == nil || string(got) != "before" {
			t.Errorf("%s too long: %d bytes, %v", name, len(got), err)
		}
	}
	longest := Key{Metric: strings.Repeat("m", MaxKeyBytes-11-4), Type: "null"}
	if got, err := longest.Append(nil); err != nil || len(got) != MaxKeyBytes {
		t.Errorf("longest key: %d bytes, %v", len(got), err)
	}
}

func TestParseKeyErrors(t *testing.T) {
	head := "m\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	for _, key := range []string{"", "m", "m\x00\x00", head, head + "\x00", head + "\x00\x05null", head + "\x00\x00a", head + "\x00\x00a=", head + "\x00\x00a=b",
		head + "\x00\x00a:", head + "\x00\x00a=b=", head + "a=1:a=2:"} {
		if k, err := ParseKey(key); err == nil {
			t.Errorf("ParseKey(%q) = %+v, want an error", key, k)
		}
	}
	// Tags in another order are read.
	k, err := ParseKey(head + "b=1:a=2:")
	if want := model.MustTags("a", "2", "b", "1"); err != nil || k.Tags != want || k.Type != TypeLegacy {
		t.Errorf("tags out of order: %+v, %v", k, err)
	}
}

// TestAmbiguous: only a key with a zero byte in a name may be that of several rows.
func TestAmbiguous(t *testing.T) {
	bytesOf := func(k Key) string {
		key, err := k.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(key)
	}
	for _, typ := range []model.Type{model.TypeLong, model.TypeNull, "x", TypeLegacy} {
		for shift := range 64 {
			k := Key{Metric: "m", RowTimeMS: 1 << shift, Type: typ, Tags: model.MustTags("a", "\x01", "host", "a=b:c")}
			if Ambiguous(bytesOf(k)) {
				t.Errorf("%s at %d", typ, k.RowTimeMS)
			}
			if k.Metric = "m\x00BBBBBBBBx=y:z"; typ != TypeLegacy && !Ambiguous(bytesOf(k)) {
				t.Errorf("%s at %d, of a metric with a zero byte", typ, k.RowTimeMS)
			}
		}
	}
	for _, key := range []string{"", "m", "m\x00", strings.Repeat("\x00", MaxKeyBytes), strings.Repeat("\x00AAAAAAAA\x00\x01A", 5000) + "="} {
		if Ambiguous(key) {
			t.Errorf("%.20q", key)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, k := range []Key{
		{Metric: "load", RowTimeMS: 1500508800000, Type: model.TypeLong, Tags: model.MustTags("host", "a", "a:b=c", ":=")},
		{Metric: "m", RowTimeMS: -2, Type: TypeLegacy, Tags: model.MustTags("k", "")},
		{Metric: "", Type: ""},
	} {
		b, err := k.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, key string) {
		k, err := ParseKey(key)
		if err != nil {
			return
		}
		b, err := k.Append(nil)
		if err != nil {
			if len(key) <= MaxKeyBytes {
				t.Fatalf("%+v was read from %d bytes and cannot be written: %v", k, len(key), err)
			}
			return
		}
		// A typed key that names the legacy type is written as a legacy key,
		// which is not read back if it has no tags.
		if back, err := ParseKey(string(b)); k.Type != TypeLegacy && (err != nil || back != k) {
			t.Fatalf("%q: %+v, then %+v, %v", key, k, back, err)
		}
	})
}

func TestValueErrors(t *testing.T) {
	dst := []byte("before")
	for _, test := range []struct {
		name string
		kind model.Kind
		data []byte
	}{
		{"no UTF-8", model.String, []byte("a\xff")},
		{"a surrogate", model.String, []byte("\xed\xa0\x80")},
		{"too long", model.String, bytes.Repeat([]byte("a"), MaxStringBytes+1)},
		{"too long by NUL", model.String, bytes.Repeat([]byte{0}, MaxStringBytes/2+1)},
		{"half a complex", model.Complex, make([]byte, 8)},
		{"unknown kind", 9, nil},
	} {
		if got, err := AppendValue(dst, test.kind, 0, test.data); err == nil || string(got) != "before" {
			t.Errorf("%s: %d bytes, %v, want an error and nothing added", test.name, len(got), err)
		}
	}
	if got, err := AppendValue(nil, model.String, 0, bytes.Repeat([]byte("a"), MaxStringBytes)); err != nil || len(got) != 2+MaxStringBytes {
		t.Errorf("longest string: %d bytes, %v", len(got), err)
	}
	for _, test := range []struct {
		kind  model.Kind
		value string
	}{
		{model.Long, ""}, {model.Long, "\x80"}, {model.Long, strings.Repeat("\x80", 10) + "\x01"},
		{model.Double, "\x3f\xf0"}, {model.Complex, strings.Repeat("x", 15)},
		{model.String, ""}, {model.String, "\x00"}, {model.String, "\x00\x02a"},
		{model.String, "\x00\x01\xc3"}, {model.String, "\x00\x01\x80"}, {model.String, "\x00\x02\xe6\x97"},
		{model.String, "\x00\x04\xf0\x9f\x98\x80"}, // UTF-8 of a supplementary character: Java refuses it
		{0, ""},
	} {
		if bits, data, err := DecodeValue(test.kind, []byte(test.value)); err == nil {
			t.Errorf("DecodeValue(%v, %x) = %x, %q, want an error", test.kind, test.value, bits, data)
		}
	}
	for _, value := range []string{"", "\x01\x3f\xc0\x00", "\x02\x3f"} {
		if _, bits, err := DecodeLegacyValue(true, []byte(value)); err == nil {
			t.Errorf("DecodeLegacyValue(%x) = %x, want an error", value, bits)
		}
	}
}

// TestValueTolerance lists bytes that AppendValue does not write and KairosDB
// reads.
func TestValueTolerance(t *testing.T) {
	for _, test := range []struct {
		name  string
		kind  model.Kind
		value string
		bits  uint64
		data  string
	}{
		{"after a long", model.Long, "\x02\xff", 1, ""},
		{"bits beyond the 64th", model.Long, strings.Repeat("\xff", 9) + "\x7f", 1 << 63, ""},
		{"after a double", model.Double, "\x3f\xf0\x00\x00\x00\x00\x00\x00x", math.Float64bits(1), ""},
		{"a NaN with payload", model.Double, "\x7f\xf8\x00\x00\x00\x00\x00\x01", 0x7ff8000000000001, ""},
		{"after a string", model.String, "\x00\x01ab", 0, "a"},
		{"plain NUL", model.String, "\x00\x03a\x00b", 0, "a\x00b"},
		{"A in two bytes", model.String, "\x00\x02\xc1\x81", 0, "A"},
		{"A in three bytes", model.String, "\x00\x03\xe0\x81\x81", 0, "A"},
		{"lone high surrogate", model.String, "\x00\x04\xed\xa0\xbdx", 0, "?x"},
		{"two high surrogates, one low", model.String, "\x00\x09\xed\xa0\xbd\xed\xa0\xbd\xed\xb8\x80", 0, "?\U0001f600"},
		{"high surrogate at the end", model.String, "\x00\x04x\xed\xa0\xbd", 0, "x?"},
		{"lone low surrogate", model.String, "\x00\x03\xed\xb8\x80", 0, "?"},
		{"after a complex", model.Complex, strings.Repeat("\x01", 20), 0, strings.Repeat("\x01", 16)},
		{"a null with bytes", model.Null, "xyz", 0, ""},
	} {
		bits, data, err := DecodeValue(test.kind, []byte(test.value))
		if err != nil || bits != test.bits || string(data) != test.data {
			t.Errorf("%s: DecodeValue = %x, %q, %v, want %x, %q", test.name, bits, data, err, test.bits, test.data)
		}
	}
}

// FuzzDecodeValue checks that no bytes make a decoder fail badly, and that what
// is read can be written and read again.
func FuzzDecodeValue(f *testing.F) {
	for _, value := range []string{"", "\x02", "\x3f\xf0\x00\x00\x00\x00\x00\x00", "\x00\x06\xed\xa0\xbd\xed\xb8\x80", "\x00\x04a\xc0\x80b", "\x00\x07\x05\x10hello",
		"\x01\x3f\xc0\x00\x00", strings.Repeat("\xff", 12)} {
		for kind := model.Long; kind <= model.Custom; kind++ {
			f.Add(uint8(kind), []byte(value))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, value []byte) {
		k := model.Kind(kind)
		_, _, _ = DecodeLegacyValue(false, value)
		_, _, _ = DecodeLegacyValue(true, value)
		bits, data, err := DecodeValue(k, value)
		if err != nil {
			return
		}
		if k == model.String && !utf8.Valid(data) {
			t.Fatalf("text %q is not UTF-8", data)
		}
		stored, err := AppendValue(nil, k, bits, data)
		if err != nil {
			t.Fatalf("%v %x %q: %v", k, bits, data, err)
		}
		againBits, againData, err := DecodeValue(k, stored)
		again, err2 := AppendValue(nil, k, againBits, againData)
		if err != nil || err2 != nil || !bytes.Equal(again, stored) {
			t.Fatalf("%v %x: stored %x, then %x, %v, %v", k, value, stored, again, err, err2)
		}
		if k == model.String && !bytes.Equal(data, againData) || k == model.Long && bits != againBits {
			t.Fatalf("%v %x %q became %x %q", k, bits, data, againBits, againData)
		}
	})
}

// The largest character of one UTF-16 unit is written as such, the next one as
// two.
func TestLastCharacterOfOneUnit(t *testing.T) {
	for text, want := range map[string]string{
		"\uffff":     "\x00\x00\xef\xbf\xbf",
		"\ufffe":     "\x00\x00\xef\xbf\xbe",
		"\U00010000": "\x00\x00\xed\xa0\x80\xed\xb0\x80",
	} {
		got, err := AppendValue(nil, model.String, 0, []byte(text))
		if err != nil || string(got[len(got)-len(want)+2:]) != want[2:] {
			t.Errorf("%q: % x, %v, want % x", text, got, err, want)
		}
		_, back, err := DecodeValue(model.String, got)
		if err != nil || string(back) != text {
			t.Errorf("%q is read back as %q, %v", text, back, err)
		}
	}
}

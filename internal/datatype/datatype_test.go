package datatype

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
)

func number(dst []byte, v float64) []byte { return strconv.AppendFloat(dst, v, 'g', -1, 64) }

// Every type reads its example, writes it as JSON, and reads that as the same.
func TestTypes(t *testing.T) {
	seen := []string{"", "long", "double", "string", "null"}
	for _, typ := range All() {
		if slices.Contains(seen, typ.Name) || slices.Contains(seen, string(typ.Stored)) {
			t.Errorf("%s, stored as %s: the name is taken", typ.Name, typ.Stored)
		}
		seen = append(seen, typ.Name, string(typ.Stored))
		if All().Named(typ.Name).Stored != typ.Stored || All().Stored(typ.Stored).Name != typ.Name {
			t.Errorf("%s is not found", typ.Name)
		}
		stored, err := typ.Parse([]byte("before"), []byte(typ.Example))
		if err != nil || !bytes.HasPrefix(stored, []byte("before")) {
			t.Fatalf("%s: %v", typ.Name, err)
		}
		stored = stored[len("before"):]
		text, err := typ.Append(nil, stored, number)
		if err != nil || !json.Valid(text) {
			t.Fatalf("%s: %s %v", typ.Name, text, err)
		}
		if again, err := typ.Parse(nil, text); err != nil || !bytes.Equal(again, stored) {
			t.Errorf("%s: %x became %x, %v", typ.Name, stored, again, err)
		}
	}
	if All().Named("nope") != nil || All().Stored("nope") != nil {
		t.Error("found what is not there")
	}
}

func TestComplex(t *testing.T) {
	typ := All().Named("complex")
	for _, text := range []string{"", "5", "[]", "{}", `{"real":1}`, `{"real":1,"imaginary":"x"}`, `{"real":{},"imaginary":2}`, `{"real":1,"imaginary":2`, `{"real" 1}`} {
		if b, err := typ.Parse(nil, []byte(text)); err == nil {
			t.Errorf("%s was taken as %x", text, b)
		}
	}
	if b, err := typ.Parse(nil, []byte(`{imaginary:'2', x:[1], "real":1e0}`)); err != nil || len(b) != 16 {
		t.Errorf("%x %v", b, err)
	}
	var infinite *NotFiniteError
	if _, err := typ.Parse(nil, []byte(`{"real":1e999,"imaginary":2}`)); !errors.As(err, &infinite) || !math.IsInf(infinite.Value, 1) {
		t.Error(err)
	}
	if _, err := typ.Append(nil, bytes.Repeat([]byte{0xff}, 16), number); !errors.As(err, &infinite) {
		t.Error(err)
	}
	if _, err := typ.Append(nil, []byte("short"), number); err == nil || errors.As(err, &infinite) {
		t.Error(err)
	}
}

func FuzzComplex(f *testing.F) {
	f.Add([]byte(`{"real":1.5,"imaginary":-2}`))
	f.Add([]byte(`{real:"1",imaginary:0.1e-5,x:{}}`))
	typ := All().Named("complex")
	f.Fuzz(func(t *testing.T, text []byte) {
		stored, err := typ.Parse(nil, text)
		if err != nil {
			return
		}
		again, err := typ.Append(nil, stored, number)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := typ.Parse(nil, again); err != nil || !bytes.Equal(b, stored) {
			t.Fatalf("%s: %x became %x, %v", again, stored, b, err)
		}
	})
}

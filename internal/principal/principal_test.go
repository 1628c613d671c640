package principal

import (
	"context"
	"strings"
	"testing"
)

// Roles are read as they are written, and admin includes all others.
func TestRights(t *testing.T) {
	for text, want := range map[string]string{
		"read": "read", "write,read": "read,write", "read+delete": "read,delete", " admin ": "admin", "metrics,read,write,delete,admin": All.String(),
	} {
		got, err := ParseRights(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
		if again, err := ParseRights(got.String()); err != nil || again != got {
			t.Errorf("%v, written and read: %v, %v", got, again, err)
		}
	}
	for _, text := range []string{"", ",", "Read", "reader", "read,all"} {
		if got, err := ParseRights(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
	for right := Read; right <= Metrics; right <<= 1 {
		if !Admin.Has(right) || !right.Has(right) || (All &^ Admin &^ right).Has(right) {
			t.Errorf("%v: who has it, and who has not, is confused", right)
		}
	}
}

// A tenant's name is part of paths, directories and keyspaces.
func TestCheckTenant(t *testing.T) {
	for _, name := range []string{"a", "acme_2", "zz9_0", strings.Repeat("a", 32)} {
		if err := CheckTenant(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "A", "2a", "_a", "a-b", "a/b", "..", "a.", "ä", "a\x00", strings.Repeat("a", 33)} {
		if CheckTenant(name) == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

// A sender is found in the context of its work; no sender is the server itself.
func TestContext(t *testing.T) {
	if got := Of(context.Background()); got != (Principal{}) {
		t.Errorf("nobody is %+v", got)
	}
	p := Principal{Tenant: "acme", Name: "n", Rights: Read, Prefix: "own."}
	if got := Of(With(t.Context(), p)); got != p {
		t.Errorf("%+v is %+v", p, got)
	}
	for metric, want := range map[string]bool{"own.": true, "own.m": true, "own": false, "other": false, "": false} {
		if p.Reaches(metric) != want {
			t.Errorf("%q: reached %v", metric, !want)
		}
	}
}

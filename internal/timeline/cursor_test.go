package timeline

import (
	"errors"
	"testing"

	"varve/internal/store"
)

// FuzzCursor: a cursor that is accepted is encoded to the same text again, and bounds what is read.
// An invalid cursor is an input error. No cursor makes the engine panic.
func FuzzCursor(f *testing.F) {
	for _, c := range []cursor{
		{Descending, Position{1700000000000000, "id"}, ""}, {Ascending, Position{-5, ""}, "timeline"}, {Ascending, Position{MaxTime, "é"}.Next(), ""},
	} {
		f.Add(c.String())
	}
	f.Add(tailCursor([]byte("0123456789")))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		for _, d := range []Direction{Ascending, Descending} {
			c, err := parseCursor(text, d)
			if err != nil {
				if !errors.As(err, new(*store.InputError)) {
					t.Errorf("%q: %v", text, err)
				}
				continue
			}
			if c.String() != text || c.direction != d {
				t.Errorf("%q was decoded as %+v, which is encoded as %q", text, c, c)
			}
			for _, name := range []string{"", "a", "z"} {
				if r := c.left(All(), name); r.From.Compare(All().From) < 0 || r.To.Compare(All().To) > 0 {
					t.Errorf("%q leaves %+v", text, r)
				}
			}
		}
		after, err := parseTailCursor(text)
		if err == nil && (tailCursor(after) != text && len(after) == 0 || len(after) > ArrivalBytesMax) {
			t.Errorf("%q was read as %x", text, after)
		}
	})
}

func TestCursor(t *testing.T) {
	for _, c := range []cursor{
		{Descending, Position{0, ""}, ""}, {Ascending, Position{MinTime, "a"}, "b"}, {Descending, Position{MaxTime, string(make([]byte, IDBytesMax))}, string(make([]byte, NameBytesMax))},
	} {
		if got, err := parseCursor(c.String(), c.direction); err != nil || got != c {
			t.Errorf("%+v came back as %+v, %v", c, got, err)
		}
		if _, err := parseCursor(c.String(), 1-c.direction); err == nil {
			t.Errorf("%+v was accepted for the other direction", c)
		}
		if _, err := parseTailCursor(c.String()); err == nil {
			t.Errorf("%+v was accepted for following", c)
		}
	}
	if got := (cursor{Descending, Position{1332959000000000, "e1"}, ""}).String(); got != "AWSA2I-7tpTeBAJlMQA" {
		t.Errorf("the text of a cursor has changed: %s", got)
	}
}

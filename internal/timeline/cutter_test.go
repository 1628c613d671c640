package timeline

import (
	"encoding/binary"
	"testing"
)

func TestCutter(t *testing.T) {
	whole := append(AppendText(binary.AppendUvarint(binary.AppendVarint(nil, -300), 300), "name"), "rest"...)
	c := Cutter{Rest: whole}
	if v, u, text := c.Varint(), c.Uvarint(), c.Text(); v != -300 || u != 300 || string(text) != "name" || string(c.Rest) != "rest" || c.Bad {
		t.Errorf("%d, %d, %q, then %+v", v, u, text, c)
	}
	for n := range len(whole) - len("rest") { // each is cut off
		c := Cutter{Rest: whole[:n]}
		c.Varint()
		c.Uvarint()
		if text := c.Text(); !c.Bad || text != nil || len(c.Rest) > 0 || c.Uvarint() != 0 || !c.Bad {
			t.Errorf("of %d bytes: %q, %+v", n, text, c)
		}
	}
}

package chunk_test

import (
	"bytes"
	"testing"

	"varve/internal/chunk"
	"varve/internal/model"
)

// pageOf encodes one page with chunks of several series, some of equal times.
func pageOf(seed, series int) []byte {
	var b chunk.PageBuilder
	b.Reset(chunk.Best)
	for id := range series {
		var c model.Columns
		for i := range 40 + id {
			c.AppendFixed(int64(seed+i*1000), uint64(i*i%(seed+7)), 0)
		}
		b.Add(model.SeriesNumber(id*3), model.Long, &c, 0, c.Len())
	}
	return b.Finish(nil)
}

func TestFindPage(t *testing.T) {
	for seed := range 20 {
		page, next := pageOf(seed, 1+seed), pageOf(seed+1, 2)
		follow := append(bytes.Clone(page), next...)
		if n, _ := chunk.FindPage(follow); n != len(page) {
			t.Errorf("page of %d bytes: found %d", len(page), n)
		}
		if n, _ := chunk.FindPage(page); n != len(page) {
			t.Errorf("page of %d bytes alone: found %d", len(page), n)
		}
		for i := range page {
			damaged := bytes.Clone(follow)
			damaged[i] ^= 1 << (i % 8)
			if n, _ := chunk.FindPage(damaged); n == len(page) {
				t.Errorf("byte %d of a page is flipped: found all the same", i)
			}
		}
	}
}

func FuzzFindPage(f *testing.F) {
	f.Add(pageOf(1, 3))
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, walked := chunk.FindPage(b)
		if walked < 1 || walked > len(b)+1 {
			t.Errorf("looked at %d of %d bytes", walked, len(b))
		}
		if n == 0 {
			return
		}
		if _, err := chunk.OpenPage(b[:n]); err != nil {
			t.Errorf("found a page of %d bytes that is none: %v", n, err)
		}
	})
}

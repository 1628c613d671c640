package jsontext

import "testing"

// BenchmarkSkip steps over what a metric of a body of points has to be searched
// for its other members.
func BenchmarkSkip(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"points", `[[1700000000000,12.25],[1700000010000,13.5],[1700000020000,11],[1700000030000,12.75],[1700000040000,12]]`},
		{"tags", `{"dc":"dc1","env":"production","host":"server-0001","os":"linux-6.1","rack":"rack-01","service":"web01"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := []byte(c.text)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				s := New(data)
				t, err := s.Next()
				if err == nil {
					err = s.Skip(t.Kind)
				}
				if err != nil || s.Offset() != len(data) {
					b.Fatal(s.Offset(), err)
				}
			}
		})
	}
}

package kairosjson

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
)

// newGeneral is a harness whose parsers read every object member by member.
func newGeneral(t testing.TB, limits func(*ingest.Config)) *harness {
	h := newHarness(t, limits)
	quick := h.handler.pool.New
	h.handler.pool.New = func() any {
		p := quick().(*parser)
		p.general = true
		return p
	}
	return h
}

// A pair takes the same bodies with and without short cuts.
type pair struct{ quick, general *harness }

func newPair(t testing.TB, limits func(*ingest.Config)) pair {
	return pair{newHarness(t, limits), newGeneral(t, limits)}
}

// post compares what becomes of a body.
func (p pair) post(t testing.TB, body []byte) {
	t.Helper()
	quick, general := p.quick.post(string(body)), p.general.post(string(body))
	if quick.Code != general.Code || quick.Body.String() != general.Body.String() {
		t.Fatalf("body %q:\n%d %s\nwithout short cuts:\n%d %s", body, quick.Code, quick.Body, general.Code, general.Body)
	}
	p.compare(t, body)
}

// compare compares what is stored and what is kept of refused points.
func (p pair) compare(t testing.TB, body []byte) {
	t.Helper()
	if got, want := p.quick.recorder.Text(), p.general.recorder.Text(); got != want {
		t.Fatalf("body %q: stored\n%s\nwithout short cuts:\n%s", body, got, want)
	}
	got, gotAll, _ := ingesttest.Rejections(t, p.quick.pipeline)
	want, wantAll, _ := ingesttest.Rejections(t, p.general.pipeline)
	if gotAll != wantAll || !slices.Equal(got, want) {
		t.Fatalf("body %q: refused %d\n%v\nwithout short cuts: %d\n%v", body, gotAll, got, wantAll, want)
	}
	const counter = "varve_ingest_samples_total"
	if got, want := ingesttest.Counters(t, p.quick.reg, counter), ingesttest.Counters(t, p.general.reg, counter); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("body %q: counted %v, without short cuts %v", body, got, want)
	}
}

// TestForeseen tells objects that are taken by comparing them from those that are read.
// The first object is of series a, learnt and followed by that of series b.
func TestForeseen(t *testing.T) {
	const tags = `{"h":"a","i":"x"}`
	for _, test := range []struct {
		name, a, b, next string
		want             bool
	}{
		{"points last", `{"name":"a","tags":` + tags + `,"datapoints":[[1,2]]}`, `{"name":"b","tags":` + tags + `,"datapoints":[[1,2]]}`,
			`{"name":"b","tags":` + tags + `,"datapoints":[[2,2],[3,-4],[-5,6]]}`, true},
		{"tags last", `{"name":"a","datapoints":[[1,2.5]],"tags":` + tags + `}`, `{"name":"b","datapoints":[[1,2.5]],"tags":` + tags + `}`,
			`{"name":"b","datapoints":[[1700000000000,2.75],[1700000010000,-0.0]],"tags":` + tags + `}`, true},
		{"name last", `{"datapoints":[[1,2.5]],"tags":` + tags + `,"name":"a"}`, `{"datapoints":[[1,2.5]],"tags":` + tags + `,"name":"b"}`,
			`{"datapoints":[[1700000000000,2.75]],"tags":` + tags + `,"name":"b"}`, true},
		{"blanks", `{"name": "a", "datapoints": [[1, 2], [3, 4]], "tags": {"h": "a"}}`, `{"name": "b", "datapoints": [[1, 2]], "tags": {"h": "a"}}`,
			`{"name": "b", "datapoints": [[1, 2], [3, 4]], "tags": {"h": "a"}}`, true},
		{"ttl", `{"name":"a","ttl":60,"datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","ttl":60,"datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","ttl":60,"datapoints":[[1,2]],"tags":{"h":"a"}}`, true},
		{"other ttl", `{"name":"a","ttl":60,"datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","ttl":60,"datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","ttl":61,"datapoints":[[1,2]],"tags":{"h":"a"}}`, false},
		{"both kinds", `{"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","datapoints":[[1,2],[2,2.5]],"tags":{"h":"a"}}`,
			`{"name":"b","datapoints":[[1,2.5],[2,2],[3,2.5]],"tags":{"h":"a"}}`, true},
		{"another kind", `{"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","datapoints":[[1,2.5]],"tags":{"h":"a"}}`, false},
		{"another name", `{"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"c","datapoints":[[1,2]],"tags":{"h":"a"}}`, false},
		{"another tag", `{"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","datapoints":[[1,2]],"tags":{"h":"b"}}`, false},
		{"a text", `{"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","datapoints":[[1,2],[2,"x"]],"tags":{"h":"a"}}`, false},
		{"no points", `{"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","datapoints":[],"tags":{"h":"a"}}`, false},
		{"a type", `{"name":"a","type":"long","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","type":"long","datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","type":"long","datapoints":[[1,2]],"tags":{"h":"a"}}`, false},
		{"a single point", `{"name":"a","timestamp":1,"value":2,"datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","timestamp":1,"value":2,"datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","timestamp":1,"value":2,"datapoints":[[1,2]],"tags":{"h":"a"}}`, false},
		{"without validation", `{"skip_validate":true,"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"skip_validate":true,"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"skip_validate":true,"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`, false},
		{"a name without quotes", `{"name":a,"datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":b,"datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":b,"datapoints":[[1,2]],"tags":{"h":"a"}}`, false},
		{"cut off", `{"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`,
			`{"name":"b","datapoints":[[1,2]],"tags":{"h":"a"`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, nil)
			p := h.handler.pool.Get().(*parser)
			take := func(body string) {
				p.reset([]byte(body))
				if _, err := p.w.IngestAll(t.Context(), t.Context(), p.next); err != nil || len(p.answer()) > 0 {
					t.Fatal(err, p.answer())
				}
				p.reset(nil)
			}
			take("[" + test.a + "," + test.b + "]")
			take("[" + test.a + "]")
			_, err := p.w.Ingest(t.Context(), 10, func() error {
				p.reset([]byte(test.next))
				if got := p.foreseen(); got != test.want {
					t.Errorf("%s: foreseen %v, want %v", test.next, got, test.want)
				} else if n := len(p.w.Batch().Samples); got != (n > 0) {
					t.Errorf("%s: foreseen %v with %d samples", test.next, got, n)
				} else if at := p.s.Offset(); got != (at == len(test.next)) || !got && at != 0 {
					t.Errorf("%s: foreseen %v, at %d", test.next, got, at)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// shapedBodies are bodies with something to compare: objects of several shapes, kinds
// and sizes.
func shapedBodies() [][]byte {
	var bodies [][]byte
	for _, form := range []string{
		`{"name":"%s","datapoints":[%s],"tags":{"h":"a","i":"b"}}`,
		`{"name": "%s", "tags": {"h": "a"}, "ttl": 0, "datapoints": [%s]}`,
		`{"ttl":3600,"name":"%s","datapoints":[%s],"tags":{"h":"\u0061"}}`,
		`{"type":"double","name":"%s","datapoints":[%s],"tags":{"h":"a"}}`,
		`{"name":%s,"skip_validate":true,"datapoints":[%s],"tags":{"h":"a"}}`,
		`{"name":"%s","timestamp":5,"value":6,"datapoints":[%s],"tags":{"h":"a"}}`,
		`{"name":"%s","datapoints":[%s],"tags":{"h":"a"}}`,
		`{"name":"%s","timestamp":5,"datapoints":[%s],"tags":{"h":"a"}}`,
		`{"name":"%s","value":6,"datapoints":[%s],"tags":{"h":"a"}}`,
	} {
		for _, points := range []string{
			`[1700000000000,1],[1700000010000,-2]`, `[1700000000000, 1.25], [1700000010000, -0.0]`, `[1,2],[3,4.5],[5,1e3],[6,1e-7],[7,3]`,
			`[-1,123456789012345678],[999999999999999999,0.12345678901234567]`, `[1,9007199254740993],[2,99999999999999999999]`, `[1,"2"],[2,"x"],[3,3]`, `[1,01],[2,5]`, ``,
		} {
			var objects []string
			for _, name := range []string{"m", "n", "m.o", "p", "m"} {
				objects = append(objects, fmt.Sprintf(form, name, points))
			}
			bodies = append(bodies, []byte("["+strings.Join(objects, ",")+"]"))
		}
	}
	return bodies
}

// mutate changes a body a little.
func mutate(r *rand.Rand, body []byte, others [][]byte) []byte {
	out := bytes.Clone(body)
	for range 1 + r.IntN(3) {
		if len(out) == 0 {
			return out
		}
		at := r.IntN(len(out))
		to := min(len(out), at+r.IntN(40))
		switch r.IntN(5) {
		case 0:
			const telling = `[]{},:"' .-0123459eEtn#\`
			out[at] = telling[r.IntN(len(telling))]
		case 1:
			out = slices.Delete(out, at, to)
		case 2:
			out = slices.Insert(out, at, bytes.Clone(out[at:to])...)
		case 3: // objects of another body, so that shapes and series change
			other := others[r.IntN(len(others))]
			out = slices.Concat(out[:len(out)-1], []byte{','}, other[1:])
		case 4: // an object in another place
			objects := bytes.SplitAfter(out, []byte(`"}}`))
			r.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			out = bytes.Join(objects, nil)
		}
	}
	return out
}

// TestShortCutsChangeNothing sends random bodies, which are much like those before, with
// and without short cuts.
func TestShortCutsChangeNothing(t *testing.T) {
	bodies := shapedBodies()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		p := newPair(t, func(c *ingest.Config) {
			if seed%3 == 1 {
				c.TTLFrom = ingest.FromTimestamp
			}
		})
		for range 20 {
			body := bodies[r.IntN(len(bodies))]
			p.post(t, body)
			p.post(t, body)
			p.post(t, mutate(r, body, bodies))
			if r.IntN(10) == 0 {
				p.quick.recorder.Forget()
				p.general.recorder.Forget()
			}
		}
	}
}

// TestShortCutsBesideOtherShapes has objects of series that were found in objects of
// another shape, or refused in one.
func TestShortCutsBesideOtherShapes(t *testing.T) {
	const a, b = `{"name":"a","datapoints":[[1,2]],"tags":{"h":"a"}}`, `{"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}`
	for _, bodies := range [][]string{
		// The second colon is part of how the name of b is spelt without validation.
		{`[` + a + `,{"skip_validate":true,"name":"b","datapoints":[[1,2]],"tags":{"h":"a"}}]`, `[` + a + `,{"name"::"b","datapoints":[[1,2]],"tags":{"h":"a"}}]`},
		{`[` + a + `,` + b + `]`, `[{"name":"c","datapoints":[[1,2]],"timestamp":3,"tags":{"h":"a"}},{"name":"a","datapoints":[[1,2]],"timestamp":3,"tags":{"h":"a"}}]`},
		{`[` + a + `,` + b + `]`, `[` + a + `,{"name":"c","datapoints":[[1,2]],"timestamp":3,"tags":{"h":"a"}},{"name":"b","datapoints":[[1,2]],"timestamp":3,"tags":{"h":"a"}}]`},
		{`[` + a + `,` + b + `]`, `[` + a + `,{"name":"c","datapoints":[[1,2]],"value":3,"tags":{"h":"a"}},{"name":"b","datapoints":[[1,2]],"value":3,"tags":{"h":"a"}}]`},
	} {
		p := newPair(t, nil)
		for _, body := range append(bodies, bodies...) {
			p.post(t, []byte(body))
		}
	}
}

// TestShortCutsAndOddNumbers has numbers in spellings that JSON has and does not have, as times and
// as values.
func TestShortCutsAndOddNumbers(t *testing.T) {
	for _, n := range []string{
		"5", "-5", "0", "-0", "1.5", "1e3", "1E+3", "-1.5e-3", "9223372036854775807", "9223372036854775808", "1e400", // JSON
		".5", "-.5", "+5", "05", "-05", "5.", "5.e3", ".5e3", "+5e3", "1e", "1e+", "-", "--1", "0x1", "1_0", "1.2.3", "NaN", "Infinity", "-Infinity", "5 ", " 5", "5x", "", // not
	} {
		for _, points := range []string{`[1,1],[2,` + n + `],[3,3]`, `[1,1],[` + n + `,2],[3,3]`, `[` + n + `,` + n + `]`, `[1,0.5],[2,` + n + `]`} {
			p := newPair(t, nil)
			body := []byte(`[{"name":"m","tags":{"h":"a"},"datapoints":[` + points + `]}]`)
			p.post(t, body)
			p.post(t, body) // with the series known
		}
	}
}

// TestShortCutsOverBlocks has objects that do not fit the rest of a block, and blocks
// that are parsed again.
func TestShortCutsOverBlocks(t *testing.T) {
	for _, points := range []int{1, 7, 1000, ingest.BlockSamples - 1, ingest.BlockSamples, ingest.BlockSamples + 1} {
		var b bytes.Buffer
		for i := range 2*ingest.BlockSamples/points + 3 {
			fmt.Fprintf(&b, `%c{"name":"m%d","datapoints":[`, "[,"[min(i, 1)], i%5)
			for j := range points {
				fmt.Fprintf(&b, `%s[%d,%d]`, ","[:min(j, 1)], j, i+j)
			}
			b.WriteString(`],"tags":{"h":"a"}}`)
		}
		b.WriteByte(']')
		p := newPair(t, nil)
		p.post(t, b.Bytes())
		p.post(t, b.Bytes())
		got, gotAppends := p.quick.recorder.Count()
		want, wantAppends := p.general.recorder.Count()
		if got != want || gotAppends != wantAppends {
			t.Errorf("%d points an object: %d samples in %d blocks, want %d in %d", points, got, gotAppends, want, wantAppends)
		}
	}
}

func FuzzShortCuts(f *testing.F) {
	for _, body := range shapedBodies() {
		f.Add(body, body)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		p := newPair(t, nil)
		p.post(t, first)
		p.post(t, first)
		p.post(t, second)
		p.post(t, first)
	})
}

// TestEightDigits compares with the digits one by one.
func TestEightDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		word, want, ok := uint64(0), uint64(0), true
		for i := range 8 {
			c := byte('0' + r.IntN(10))
			if r.IntN(20) == 0 {
				c = byte(r.IntN(256))
			}
			word |= uint64(c) << (8 * i)
			want, ok = want*10+uint64(c-'0'), ok && c-'0' <= 9
		}
		if got, gotOK := eightDigits(word); gotOK != ok || ok && got != want {
			t.Fatalf("%#x: %d %v, want %d %v", word, got, gotOK, want, ok)
		}
	}
}

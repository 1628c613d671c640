package carbon

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"varve/internal/gate"
	"varve/internal/ingest"
	"varve/internal/model"
)

const nowMS = 1_710_072_000_000

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"a.b 1 1700000000":         "a.b 1 1700000000000",
		"a.b 1 1700000000\r":       "a.b 1 1700000000000",
		"\ta.b \t 1  1700000000  ": "a.b 1 1700000000000",
		"a;t=v 1e5 1700000000":     "a;t=v 100000 1700000000000",
		"a .5 1700000000":          "a 0.5 1700000000000",
		"a +5 1700000000":          "a 5 1700000000000",
		"a 5. 1700000000":          "a 5 1700000000000",
		"a 1_000 1700000000":       "a 1000 1700000000000",
		"a -0.25e-3 1700000000":    "a -0.00025 1700000000000",
		"a 1 1700000000.75":        "a 1 1700000000000",
		"a 1 1.7e9":                "a 1 1700000000000",
		"a 1 -1":                   "a 1 1710072000000",
		"a 1 -1.0":                 "a 1 1710072000000",
		"a 1 -1.5":                 "a 1 1710072000000",
		"a 1 -2":                   "a 1 -2000",
		"a 1 0":                    "a 1 0",
		"t/slash../x.* 1 1":        "t/slash../x.* 1 1000",
		"":                         "",
		" \t\r":                    "",
		"a 1":                      "bad_syntax",
		"a 1 2 3":                  "bad_syntax",
		"a":                        "bad_syntax",
		"a 0x10 1":                 "bad_value",
		"a 0x1p4 1":                "bad_value",
		"a _1 1":                   "bad_value",
		"a 1_ 1":                   "bad_value",
		"a 1__0 1":                 "bad_value",
		"a one 1":                  "bad_value",
		"a nan 1":                  "not_finite",
		"a -Infinity 1":            "not_finite",
		"a 1e999 1":                "not_finite",
		"a 1 nan":                  "bad_time",
		"a 1 inf":                  "bad_time",
		"a 1 now":                  "bad_time",
		"a 1 N":                    "bad_time",
		"a 1 9223372036854775807":  "bad_time",
		"a 1 9223372036854775":     "bad_time", // as a float64 it is 9223372036854776
		"a 1 -9223372036854775":    "bad_time",
		"a 1 9.223372036854776e15": "bad_time",
		"a 1 9223372036854774":     "a 1 9223372036854774000",
		"a 1 -9223372036854774":    "a 1 -9223372036854774000",
		"a 1 99999999999999999999": "bad_time",
		"a " + strings.Repeat("1", maxNumber) + "_1 1": "bad_value",
	} {
		var l line
		for range 2 { // again with the time that is remembered
			empty, f := l.parse([]byte(text), nowMS)
			got := fmt.Sprintf("%s %v %d", l.path, l.value, l.ms)
			switch {
			case empty:
				got = ""
			case f != nil:
				got = f.Reason.String()
			}
			if got != want {
				t.Errorf("%.60q: %s, want %s", text, got, want)
			}
		}
	}
}

// TestTimeIsRemembered: a time stays that of its line, whatever came between.
func TestTimeIsRemembered(t *testing.T) {
	var l line
	for i, step := range []struct {
		text string
		now  int64
		want int64
	}{
		{"a 1 100", 0, 100_000}, {"a 1 bad", 0, 0}, {"a 1 100", 0, 100_000}, {"a 1 -1", 7, 7}, {"a 1 -1", 8, 8}, {"a 1 100", 0, 100_000},
	} {
		if _, f := l.parse([]byte(step.text), step.now); f == nil && l.ms != step.want {
			t.Errorf("line %d: %d ms, want %d", i, l.ms, step.want)
		}
	}
}

func TestParsePath(t *testing.T) {
	for path, want := range map[string]string{
		"a.b.c":                    "a.b.c",
		"a..b":                     "a.b",
		".a.b.":                    "a.b",
		".a.b":                     "a.b",
		"a.b.":                     "a.b",
		"disk.used;rack=a1;dc=dc1": "disk.used;dc=dc1;rack=a1",
		"dup;a=1;a=2":              "dup;a=2",
		"~~tilde;a=b":              "tilde;a=b",
		"~plain":                   "~plain",
		`om.metric{a="b",c="d"}`:   "om.metric;a=b;c=d",
		`om{a="x\"y\\z\n"}`:        `om;a=x"y\z\n`,
		`om{a="b",}`:               `om{a="b",}`, // does not end as tags in braces do
		"t.name;name=zz":           "t.name",
		"v;a=b=c!^ d.e":            "v;a=b=c!^ d.e",
		"żółw;ключ=水":              "żółw;ключ=水",
		"odd{a}":                   "odd{a}",
		"bad;a":                    "bad_tag",
		"bad;a=":                   "bad_tag",
		"bad;=b":                   "bad_tag",
		"bad;":                     "bad_tag",
		"x;b=~y":                   "bad_tag",
		"x;a!=b":                   "bad_tag",
		`om{a="b"c="d"}`:           "bad_tag",
		`om{a="b\"}`:               "bad_tag",
		`om{a=b"}`:                 "bad_tag",
		`om{"}`:                    "bad_tag",
		`om{a="b","}`:              "bad_tag",
		"":                         "bad_name",
		";a=b":                     "bad_name",
		"~;a=b":                    "bad_name",
		"...":                      "bad_name",
		"a\x00b":                   "bad_name",
		"a\x7fb":                   "bad_name",
	} {
		var n ingest.Names
		got := ""
		if f := ParsePath([]byte(path), &n, 10); f != nil {
			got = f.Reason.String()
		} else {
			model.SortTags(n.Tags)
			got = n.Metric
			for _, tag := range n.Tags {
				got += ";" + tag.Name + "=" + tag.Value
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	var n ingest.Names
	ParsePath([]byte("m"+strings.Repeat(";t=v", 1000)), &n, 3)
	if len(n.Tags) > 4 {
		t.Errorf("%d tags are read where 3 are allowed", len(n.Tags))
	}
	n.Reset()
	long := "m"
	for i := range 1000 {
		long += fmt.Sprintf(";t%d=v", i)
	}
	ParsePath([]byte(long), &n, 3)
	if len(n.Tags) != 4 {
		t.Errorf("%d tags are read where 3 are allowed, want 4", len(n.Tags))
	}
}

// pickled is what a pickle holds, item by item, in the words of wantPickled.
func pickled(b []byte) string {
	var p pickle
	var out []string
	items, err := p.load(b)
	if err != nil {
		return "error"
	}
	for _, v := range items {
		pt, f := p.point(v, nowMS)
		if f != nil {
			out = append(out, f.Reason.String())
			continue
		}
		out = append(out, fmt.Sprintf("%s %v %d", pt.path, pt.value, pt.ms))
	}
	return strings.Join(out, ", ")
}

// wantPickled is what the batches of testdata/pickles.txt.gz mean.
var wantPickled = map[string]string{
	"tuples":       "a.b 1.5 1700000000000, c;t=v 2 1700000010000, a.b -3 1700000020000",
	"lists":        "a.b 1.5 1700000000000, c 1 1700000010000",
	"tuple of all": "a.b 1 1700000000000, żółw.水 1e+300 1700000000000",
	"texts":        "a.b 3.5 1700000000000, a.b 1000 1700000001000, q'\"\\x 2 1000, tab\tline\n 2 1000",
	"odd": "a 1 1710072000000, b 1 1710072000000, bad_value, not_finite, not_finite, bad_value, bad_syntax, bad_syntax, bad_syntax, " +
		"bad_time, j 1.1805916207174113e+21 1000, k -1.099511627776e+12 1000, bad_syntax, bad_syntax, bad_syntax, bad_syntax",
	"none":   "",
	"number": "error",
	"dict":   "error",
	"class":  "error",
	"bytes":  "a.b 1 1700000000000",
}

type vector struct {
	name, by string
	pickle   []byte
}

func vectors(t testing.TB) (all []vector) {
	file, err := os.Open("testdata/pickles.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		b, err := hex.DecodeString(fields[3])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, vector{fields[0], fields[1] + " with protocol " + fields[2], b})
	}
	if lines.Err() != nil || len(all) < 100 {
		t.Fatalf("%d pickles, %v", len(all), lines.Err())
	}
	return all
}

// TestPickles reads what Python makes, of each version and protocol. Bytes are
// written with a class in protocols 0 to 2 and refused then, as carbon does.
func TestPickles(t *testing.T) {
	many := make([]string, 1200)
	for i := range many {
		many[i] = fmt.Sprintf("m.%d %v %d", i%50, float64(i)/4, 1_700_000_000_000+int64(i)*1000)
	}
	wantPickled["many"] = strings.Join(many, ", ")
	for _, v := range vectors(t) {
		got, want := pickled(v.pickle), wantPickled[v.name]
		if v.name == "bytes" && v.pickle[0] != 0x80 || v.name == "bytes" && v.pickle[1] < 3 {
			want = "error"
		}
		if got != want {
			t.Errorf("%s of %s: %.300s\nwant %.300s", v.name, v.by, got, want)
		}
	}
}

// TestPicklesCut: no beginning of a pickle is taken for the whole.
func TestPicklesCut(t *testing.T) {
	for _, v := range vectors(t) {
		for n := range min(len(v.pickle), 300) {
			if n < len(v.pickle) && pickled(v.pickle[:n]) != "error" {
				t.Fatalf("%s of %s is read although it is cut after %d bytes", v.name, v.by, n)
			}
		}
	}
}

func TestHostilePickles(t *testing.T) {
	for name, b := range map[string]string{
		"class":               "cos\nsystem\n(S'id'\ntR.",
		"stack global":        "\x80\x04\x8c\x02os\x8c\x06system\x93.",
		"reduce":              "]]R.",
		"build":               "]]b.",
		"persistent":          "Pid\n.",
		"extension":           "\x82\x01.",
		"dictionary":          "}.",
		"2 GiB":               "X\xff\xff\xff\x7f.",
		"4 GiB":               "T\xff\xff\xff\xff.",
		"8-byte length":       "\x8d\x01\x00\x00\x00\x00\x00\x00\x00a.",
		"long of 255 bytes":   "\x8a\xff" + strings.Repeat("a", 255) + ".",
		"long with 4 bytes":   "\x8b\x01\x00\x00\x00a.",
		"long then dropped":   "]\x8a\xff0.",
		"long dropped too":    "]\x8b\xff\x00\x00\x000.",
		"text then dropped":   "]X\xff\x00\x00\x000.",
		"number of 100 bytes": "I" + strings.Repeat("1", 100) + "\n.",
		"memo ahead":          "]r\xff\xff\xff\x7f.",
		"memo by text":        "]p99999999999999999999\n.",
		"memo not there":      "h\x05.",
		"put on nothing":      "q\x00].",
		"memoize nothing":     "\x94].",
		"put on a mark":       "(q\x000].",
		"append to a number":  "K\x01K\x02a.",
		"append to nothing":   "K\x02a.",
		"pop below a mark":    "]](\x86.",
		"pair around a mark":  "]](\x86t.",
		"no mark":             "]e.",
		"tuple without mark":  "t.",
		"list without mark":   "l.",
		"tuple of nothing":    "\x85.",
		"triple of a pair":    "]]\x87.",
		"two values":          "]].",
		"mark left":           "](.",
		"nothing":             ".",
		"empty":               "",
	} {
		if got := pickled([]byte(b)); got != "error" {
			t.Errorf("%s: %q, want an error", name, got)
		}
	}
	// Lengths have as many bytes as their operation says.
	for _, n := range []int{255, 256, 300, 65537} {
		name := strings.Repeat("m", n)
		four, one := binary.LittleEndian.AppendUint32(nil, uint32(n)), []byte{byte(n)}
		for op, length := range map[string][]byte{"X": four, "T": four, "U": one, "\x8c": one} {
			if n > 255 && len(length) == 1 {
				continue
			}
			got := pickled(slices.Concat([]byte("]"+op), length, []byte(name+"K\x01K\x02\x86\x86a.")))
			if want := name + " 2 1000"; got != want {
				t.Errorf("a name of %d bytes after %q: %.40q, want %.40q", n, op, got, want)
			}
		}
	}
	// What is cut off takes nothing of what follows it for its own.
	var ended string
	for op := range 256 {
		if got := pickled([]byte{']', byte(op), '.'}); got != "error" {
			ended += string([]byte{byte(op)})
		}
	}
	if want := ".\x85\x94"; ended != want {
		t.Errorf("a list ends after the operations %q, want %q", ended, want)
	}
	// In a list, where a text that can be read is only no point.
	for name, text := range map[string]string{
		"without quotes":            "Sabc",
		"not begun":                 "Sabc'",
		"not ended":                 "S'abc",
		"in two kinds of quotes":    "S'abc\"",
		"of one quote":              "S'",
		"of nothing":                "S",
		"with a broken escape":      `S'\xzz'`,
		"with an escape cut":        `S'\x6'`,
		"with broken unicode":       `V\uzzzz`,
		"with unicode cut":          `V\u006`,
		"with half a surrogate":     `V\ud800`,
		"with unicode out of range": `V\U00110000`,
	} {
		if got := pickled([]byte("]" + text + "\na.")); got != "error" {
			t.Errorf("a text %s: %q, want an error", name, got)
		}
	}
	for _, text := range []string{"S'abc'", `S"abc"`, `S'\x61'`, `V\u0061`, "S''"} {
		if got := pickled([]byte("]" + text + "\na.")); got != "bad_syntax" {
			t.Errorf("the text %s: %q, want bad_syntax: it can be read", text, got)
		}
	}
	// A list that is in itself is only looked at as far as a point is deep.
	if got := pickled([]byte("]q\x00h\x00a.")); got != "bad_syntax" {
		t.Errorf("a list in itself: %q", got)
	}
}

// TestPickleMemory: no frame takes more than some times its length.
func TestPickleMemory(t *testing.T) {
	const size = 1 << 20
	for _, part := range []string{"]", "(", "]\x94", "N", "K\x01\x94", "(]l", "](Nl", "]h\x00", "\x94"} {
		b := append([]byte("]q\x00"), bytes.Repeat([]byte(part), size/len(part))...)
		grown := testing.AllocsPerRun(1, func() {
			var p pickle
			if _, err := p.load(append(b, '.')); err == nil {
				t.Errorf("%q many times is taken", part)
			}
			held := 24*(cap(p.stack)+cap(p.memo)+cap(p.slab)) + 24*cap(p.lists) + 8*cap(p.marks)
			if held > 32*size {
				t.Errorf("%q many times: %d MiB for a frame of 1", part, held>>20)
			}
		})
		if grown > size/bytesPerValue {
			t.Errorf("%q many times: %v allocations", part, grown)
		}
	}
}

func FuzzPickle(f *testing.F) {
	for _, v := range vectors(f) {
		if len(v.pickle) < 1000 {
			f.Add(v.pickle)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p pickle
		items, _ := p.load(b)
		for _, v := range items {
			if pt, f := p.point(v, nowMS); f == nil && (math.IsNaN(pt.value) || math.IsInf(pt.value, 0)) {
				t.Errorf("value %v is taken", pt.value)
			}
		}
		if first, second := pickled(b), pickled(b); first != second {
			t.Errorf("%q, then %q", first, second)
		}
	})
}

func FuzzLine(f *testing.F) {
	for _, text := range []string{"a.b;c=d 1.5 1700000000\r", "a 1_0 -1.0", `m{a="b"} nan 1`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var l line
		empty, fault := l.parse(b, nowMS)
		if empty || fault != nil {
			return
		}
		if math.IsNaN(l.value) || math.IsInf(l.value, 0) || len(bytes.Fields(b)) < 1 {
			t.Errorf("%q: value %v", b, l.value)
		}
		var n ingest.Names
		if f := ParsePath(l.path, &n, 8); f == nil && (n.Metric == "" || len(n.Tags) > 9) {
			t.Errorf("%q: metric %q, %d tags", l.path, n.Metric, len(n.Tags))
		}
	})
}

func BenchmarkPickle(b *testing.B) {
	for _, v := range vectors(b) {
		if v.name != "many" || !strings.Contains(v.by, "protocol 2") {
			continue
		}
		b.Run(v.by, func(b *testing.B) {
			var p pickle
			b.ReportAllocs()
			for b.Loop() {
				items, err := p.load(v.pickle)
				if err != nil {
					b.Fatal(err)
				}
				for _, item := range items {
					_, _ = p.point(item, nowMS)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1200, "ns/point")
		})
	}
}

func BenchmarkLine(b *testing.B) {
	text := []byte("servers.web01.cpu.0.user 12.75 1700000000")
	var l line
	for b.Loop() {
		if _, f := l.parse(text, nowMS); f != nil {
			b.Fatal(f)
		}
	}
}

// TestKeptDecoders: a decoder that is kept keeps neither the frame nor what its lists have
// grown to.
func TestKeptDecoders(t *testing.T) {
	h := &pickles{decoding: gate.New(1)}
	h.decoding.TryEnter(netip.Prefix{}, 1)
	p := &pickle{}
	if _, err := p.load([]byte("](" + strings.Repeat("J\x01\x00\x00\x00", 1000) + "e.")); err != nil {
		t.Fatal(err)
	}
	(&pickleConn{h: h, pickle: p}).release()
	if p.b != nil {
		t.Error("the frame is kept")
	}
	if p.lists[:1][0] != nil {
		t.Error("a list is kept")
	}
	if h.decoding.InUse() != 0 {
		t.Error("the place is not given back")
	}
}

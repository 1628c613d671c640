package telnet

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/ingest/lines"
	"varve/internal/model"
	"varve/internal/units"
)

// describe renders what a line asks for, or why it is refused.
func describe(line string) string {
	var c Command
	if f := c.Parse([]byte(line)); f != nil {
		return "refused " + f.Reason.String()
	}
	switch c.Verb {
	case None:
		return "nothing"
	case Version:
		return "version"
	}
	n := ingest.Names{Metric: string(c.Metric)}
	if f := ParseTags(c.Tags, &n, 64); f != nil {
		return "refused " + f.Reason.String() + ": " + f.Text
	}
	value := fmt.Sprint(c.Long)
	switch c.Kind {
	case model.Double:
		value = fmt.Sprint(c.Double)
	case model.String:
		value = fmt.Sprintf("%q", c.Text)
	}
	var tags []string
	for _, t := range n.Tags {
		tags = append(tags, t.Name+"="+t.Value)
	}
	text := fmt.Sprintf("%s %d %v %s {%s}", c.Metric, c.TimeMS, c.Kind, value, strings.Join(tags, ","))
	if n.TTL > 0 {
		text += fmt.Sprintf(" ttl=%d", n.TTL)
	}
	return text
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"put m 1672531200 1 h=a", "m 1672531200000 long 1 {h=a}"},
		{"put m 1672531200001 2.5 h=a dc=x\r", "m 1672531200001 double 2.5 {h=a,dc=x}"},
		{"put m 2999999999 3 h=a", "m 2999999999000 long 3 {h=a}"},
		{"put m 3000000000 4 h=a", "m 3000000000 long 4 {h=a}"},
		{"put m -5 5 h=a", "m -5000 long 5 {h=a}"},
		{"put m 1672531200002 6", "m 1672531200002 long 6 {add=tag}"},
		{"putm m 1672531200 7 h=ms", "m 1672531200 long 7 {h=ms}"},
		{"put m 1 1.0e2 h=a", "m 1000 double 100 {h=a}"},
		{"put m 1 1. h=a", "m 1000 double 1 {h=a}"},
		{"put m 1 -.5 h=a", "m 1000 double -0.5 {h=a}"},
		{"put m 1 +1.5 h=a", "m 1000 double 1.5 {h=a}"},
		{"put m 1 18446744073709551616 h=a", "m 1000 double 1.8446744073709552e+19 {h=a}"},
		{"put m 1 9223372036854775807 h=a", "m 1000 long 9223372036854775807 {h=a}"},
		{"put m 1 " + strings.Repeat("9", 300) + " h=a", "m 1000 double 1e+300 {h=a}"},
		{"put m 1 " + strings.Repeat("9", 310) + " h=a", "refused not_finite"},
		{"put m 1 -" + strings.Repeat("9", 310) + " h=a", "refused not_finite"}, {"put m 1 -1e309 h=a", "refused not_finite"},
		{"put m 1 1e5 h=a", "refused bad_value"}, // as in KairosDB
		{"putm m 1 -1E5 h=a", "refused bad_value"}, {"put m 1 +1e5 h=a", "refused bad_value"}, {"put m 1 10e-1 h=a", "refused bad_value"},
		{"put m 1 0e0 h=a", "refused bad_value"}, {"put m 1 -0e-7 h=a", "refused bad_value"}, {"put m 1 1e18 h=a", "refused bad_value"},
		{"put m 1 9223372036854775807e0 h=a", "refused bad_value"},
		{"put m 1 9223372036854775808e0 h=a", "m 1000 double 9.223372036854776e+18 {h=a}"},
		{"put m 1 1.e5 h=a", "m 1000 double 100000 {h=a}"}, {"put m 1 1.0e5 h=a", "m 1000 double 100000 {h=a}"},
		{"put m 1 +1.0e5 h=a", "m 1000 double 100000 {h=a}"}, {"put m 1 15e-1 h=a", "m 1000 double 1.5 {h=a}"},
		{"put m 1 1e19 h=a", "m 1000 double 1e+19 {h=a}"}, {"put m 1 15E299 h=a", "m 1000 double 1.5e+300 {h=a}"},
		{"put m 1 1e-05 h=a", "m 1000 double 1e-05 {h=a}"},
		{"put m 1 -1E300 h=a", "m 1000 double -1e+300 {h=a}"},
		{"put m 1 +5e-324 h=a", "m 1000 double 5e-324 {h=a}"},
		{"put m 1 -0.0 h=a", "m 1000 double -0 {h=a}"},
		{"put m 1 9007199254740993 h=a", "m 1000 long 9007199254740993 {h=a}"},
		{"put m 1 -9223372036854775808 h=a", "m 1000 long -9223372036854775808 {h=a}"},
		{"put m 1 -9223372036854775809 h=a", "m 1000 double -9.223372036854776e+18 {h=a}"},
		{"put m 1 1e309 h=a", "refused not_finite"},
		{"put m 1 -Infinity h=a", "refused not_finite"},
		{"put m 1 1e h=a", "refused bad_value"}, {"put m 1 e5 h=a", "refused bad_value"}, {"put m 1 1e5x h=a", "refused bad_value"},
		{"putm m 9223372036854775807 1 h=a", "m 9223372036854775807 long 1 {h=a}"},
		{"putm m -9223372036854775808 1 h=a", "m -9223372036854775808 long 1 {h=a}"},
		{"put m 9223372036854775807 1 h=a", "m 9223372036854775807 long 1 {h=a}"},
		{"put m -9223372036854775 1 h=a", "m -9223372036854775000 long 1 {h=a}"},
		{"put m -9223372036854776 1 h=a", "refused bad_time"},
		{"put m 1e9 1 h=a", "refused bad_time"},
		{"put m 1 1.0e999 h=a", "refused not_finite"},
		{"put m 1 inf h=a", "refused not_finite"},
		{"put m 1 NaN h=a", "refused not_finite"},
		{"  put \t m  1   2   h=a  dc=b  ", "m 1000 long 2 {h=a,dc=b}"},
		{"put m 1 2 h=a kairos_opt.ttl=60", "m 1000 long 2 {h=a} ttl=60"},
		{"put m 1 2 kairos_opt.ttl=60", "m 1000 long 2 {add=tag} ttl=60"},
		{"put m 1 2 kairos_opt.ttl=x", "refused bad_ttl: tag[kairos_opt.ttl] must be a number"},
		{"put m 1 2 kairos_opt.ttl=-1", "refused bad_ttl: ttl of -1 seconds must be between 0 and 630720000"},
		{"put m 1 2 kairos_opt.ttl=9223372036854775808", "refused bad_ttl: ttl of 9223372036854775807 seconds must be between 0 and 630720000"},
		{"put m 1 2 kairos_opt.ttl=18446744073709551616", "refused bad_ttl: ttl of 9223372036854775807 seconds must be between 0 and 630720000"},
		{"put m 1 2 kairos_opt.ttl=18446744073709551676", "refused bad_ttl: ttl of 9223372036854775807 seconds must be between 0 and 630720000"},
		{"put m 1 2 kairos_opt.ttl=630720001", "refused bad_ttl: ttl of 630720001 seconds must be between 0 and 630720000"},
		{"put m 1 2 h=a=b=c", "m 1000 long 2 {h=a}"},
		{`put m 1 2 "ho st=x y" "a"=b`, `refused bad_tag: tag[1] has quotes inside; they go around the whole of a tag: "name=value"`},
		{`put m 1 2 ""a=b"`, `refused bad_tag: tag[0] has quotes inside; they go around the whole of a tag: "name=value"`},
		{`put m 1 2 "ho st"="x"`, `refused bad_tag: tag[0] has quotes inside; they go around the whole of a tag: "name=value"`},
		{`put m 1 2 "ho st=x y"`, "m 1000 long 2 {ho st=x y}"},
		{`put m 1 2 h="x"`, `m 1000 long 2 {h="x"}`}, // as KairosDB
		{"put m 1 2 h", "refused bad_tag: tag[0] must be in the format 'name=value'."},
		{"put m 1 2 a=b h=", "refused bad_tag: tag[1] must be in the format 'name=value'."},
		{"put m 1 2 =a", "refused bad_tag: tag[0].name may not be empty."},
		{"put m 1 2 a==b", "refused bad_tag: tag[0].value may not be empty."},
		{"put", "refused bad_syntax"}, {"put m", "refused bad_syntax"}, {"put m 1", "refused bad_syntax"},
		{"put m 1 abc h=a", "refused bad_value"}, {"put m 1 +3 h=a", "refused bad_value"},
		{"put m 1 1.2.3 h=a", "refused bad_value"}, {"put m 1 . h=a", "refused bad_value"}, {"put m 1 0x1.8p1 h=a", "refused bad_value"},
		{"put m +1 3 h=a", "refused bad_time"}, {"put m 1672531200.5 3 h=a", "refused bad_time"}, {"put m abc 3 h=a", "refused bad_time"},
		{"putm m 9223372036854775808 3 h=a", "refused bad_time"}, {"put m -9223372036854775807 3 h=a", "refused bad_time"},
		{`put "" 1 2 h=a`, "refused bad_name"},
		{`put "a b" 1 2 h=a`, "a b 1000 long 2 {h=a}"},
		{"puts m 5 plain h=a", `m 5 string "plain" {h=a}`},
		{`puts m 5 "two words" h=a`, `m 5 string "two words" {h=a}`},
		{`puts m 5 "in"side h=a`, `m 5 string "in\"side h=a" {add=tag}`},
		{`puts m 5 "a "b" c" h=a`, "refused bad_tag: tag[0] must be in the format 'name=value'."},
		{`puts m 5 "" h=a`, `m 5 string "" {h=a}`},
		{`puts m 5 17 h="x y"`, "refused bad_tag: tag[1] must be in the format 'name=value'."},
		{`puts m 5 " x" h=a`, `m 5 string " x" {h=a}`},
		{"version", "version"}, {" version \r", "version"},
		{"", "nothing"}, {"\r", "nothing"}, {"  \t ", "nothing"},
		{"nosuch m 1 2 h=a", "refused bad_command"}, {"PUT m 1 2 h=a", "refused bad_command"}, {"putt m 1 2 h=a", "refused bad_command"},
	} {
		if got := describe(c.line); got != c.want {
			t.Errorf("%s\n got: %s\nwant: %s", c.line, got, c.want)
		}
	}
	for line, way := range map[string]string{
		"put m 1 1e5 h=a":          "write 100000 or 1.0e5",
		"put disk free 1 2 host=a": `put "disk free" ...`,
	} {
		if f := new(Command).Parse([]byte(line)); !strings.Contains(f.Text, way) {
			t.Errorf("the fault of %s names no way out: %s", line, f.Text)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	err := Config{}.Validate()
	typ := reflect.TypeFor[Config]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Tag.Get("tune") != "" {
			continue // a constant
		}
		if key := f.Tag.Get("yaml"); key == "" || f.Tag.Get("doc") == "" || !strings.Contains(err.Error(), key+":") {
			t.Errorf("field %s: yaml %q, reported by Validate: %v", f.Name, key, err)
		}
	}
}

// Reading stops at the first tag beyond the limit, so that a connection keeps no
// large memory after a line of many tags.
func TestTagsBeyondTheLimitAreNotRead(t *testing.T) {
	var n ingest.Names
	if f := ParseTags([]byte(strings.Repeat("a=b ", 1000)), &n, 64); f != nil || len(n.Tags) != 65 {
		t.Errorf("%d tags, %v", len(n.Tags), f)
	}
}

func TestConfigBounds(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		key    string // "" is valid
	}{
		{func(c *Config) { c.MaxLine = 63 }, "max_line"},
		{func(c *Config) { c.MaxLine = 64 }, ""},
		{func(c *Config) { c.MaxLine = 4 * units.MiB }, ""},
		{func(c *Config) { c.MaxLine = 4*units.MiB + 1 }, "max_line"},
		{func(c *Config) { c.ReadBuffer = lines.FirstBuffer - 1 }, "read_buffer"},
		{func(c *Config) { c.ReadBuffer = lines.FirstBuffer }, ""},
		{func(c *Config) { c.ReadBuffer = 4 * units.MiB }, ""},
		{func(c *Config) { c.ReadBuffer = 4*units.MiB + 1 }, "read_buffer"},
		{func(c *Config) { c.MaxConnections = 1 }, ""},
		{func(c *Config) { c.RetryFor = 1 }, ""},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.key == "") || err != nil && !strings.HasPrefix(err.Error(), c.key+": ") {
			t.Errorf("%+v: %v, want %q", cfg, err, c.key)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"put m 1672531200 1 h=a", "puts m 5 \"two words\" h=a", "putm m 1 1.5e3 a=b c=d kairos_opt.ttl=5",
		"version", "put m 1 \"\" =", "put \"a\"b\" -1 .5 \x00 é=ü", "puts m 5 \"in\"side h=a\r",
		"put m -9223372036854775808 -0.0 h=a", "putm m 9223372036854775807 5e-324 h=a", "put m 2999999999 9007199254740993 h=a", "put m 3000000000 1e309 h=a",
		"put m 1 -9223372036854775809 \"ho st\"=\"x\" kairos_opt.ttl=0", "put m 1 1 " + strings.Repeat("t=v ", 70), "put m 00000001700000001000 1e-05 =",
	} {
		f.Add([]byte(s))
	}
	for _, n := range ingesttest.AwkwardNumbers {
		f.Add([]byte("put m 1700000000000 " + n + " h=a"))
		f.Add([]byte("putm m " + n + " 1 h=a"))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var c Command
		if c.Parse(line) != nil || c.Verb != Put {
			return
		}
		n := ingest.Names{Metric: string(c.Metric)}
		if ParseTags(c.Tags, &n, 64) != nil {
			return
		}
		if len(c.Metric) == 0 || len(n.Tags) == 0 {
			t.Fatalf("%q: accepted without metric or tags", line)
		}
		for _, tag := range n.Tags {
			if tag.Name == "" || tag.Value == "" || strings.ContainsAny(tag.Value, "=") {
				t.Fatalf("%q: tag %q", line, tag)
			}
		}
		if c.Kind == model.Double && c.Double-c.Double != 0 {
			t.Fatalf("%q: value %v is not finite", line, c.Double)
		}
	})
}

// TestTimeIsRememberedPerLine parses lines in turn with one Command: a time
// that is remembered must be the same word of the same kind of put.
func TestTimeIsRememberedPerLine(t *testing.T) {
	var c Command
	for _, step := range []struct {
		line string
		want int64 // -1 = a fault
	}{
		{`putm m "" 1 a=b`, -1},
		{"put m 1700000000 1 a=b", 1700000000000},
		{"put m 1700000000 2 a=c", 1700000000000},
		{"putm m 1700000000 2 a=c", 1700000000},
		{"put m 1700000000 2 a=c", 1700000000000},
		{"putm m 00000001700000001000 2 a=c", 1700000001000}, // too long to be remembered
		{"put m 1700000000 2 a=c", 1700000000000},
		{`put m "" 1 a=b`, -1},
		{"put m 1700000001 2 a=c", 1700000001000},
		{"put m x 2 a=c", -1},
		{"put m 1700000001 2 a=c", 1700000001000},
	} {
		got := int64(-1)
		if fault := c.Parse([]byte(step.line)); fault == nil {
			got = c.TimeMS
		}
		if got != step.want {
			t.Errorf("%s: time %d, want %d", step.line, got, step.want)
		}
	}
}

// TestWord: a word ends at the first blank wherever that is among the eight bytes that are
// looked at together, whatever bytes are around it.
func TestWord(t *testing.T) {
	alphabet := []byte("ab!\x00\t \x1f\x7f\x80\xa0\xff")
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		b := []byte{'a'}
		for range random.IntN(24) {
			c := byte('a')
			if random.IntN(4) == 0 {
				c = alphabet[random.IntN(len(alphabet))]
			}
			b = append(b, c)
		}
		end := slices.IndexFunc(b, func(c byte) bool { return c <= ' ' })
		if end < 0 {
			end = len(b)
		}
		if w, rest, ok := word(b); !ok || string(w) != string(b[:end]) || string(rest) != string(b[end:]) {
			t.Fatalf("word(%q) = %q, %q", b, w, rest)
		}
	}
}

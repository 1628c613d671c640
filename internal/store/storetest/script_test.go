package storetest

import "testing"

// TestScriptsReadBack: what format writes, parseOp reads.
func TestScriptsReadBack(t *testing.T) {
	g := newGenerator(1, testOrigin, true)
	for _, o := range g.ops(2000) {
		text := o.format(testOrigin)
		back, err := parseOp(text, testOrigin)
		if err != nil {
			t.Fatal(err)
		}
		if again := back.format(testOrigin); again != text {
			t.Fatalf("written, read and written again:\n%s\n%s", text, again)
		}
		if len(back.samples) != len(o.samples) {
			t.Fatalf("%s: %d samples read back, want %d", text, len(back.samples), len(o.samples))
		}
		for i := range o.samples {
			if back.samples[i] != o.samples[i] {
				t.Fatalf("%s: sample %d is read back as %+v, want %+v", text, i, back.samples[i], o.samples[i])
			}
		}
	}
}

func TestScriptErrors(t *testing.T) {
	for _, line := range []string{
		"", "fly", "append", "append load:long 1=1", "append load{a=b}:long 1", "append load{a=b}:long x=1",
		"append load{a=b}:long 1=1.5", "append load{a=b,a=c}:long 1=1", "append load{a=b}:complex 1=#0", "append load{a=b}:null 1=0",
		`append load{a="b}:long 1=1`, "read load{a=b}", "read load{a=b}:long -later=1", "read load{a=b}:long -limit=many",
		"select load a=/(/", "select load a=/b", "names things", "advance soon",
	} {
		if o, err := parseOp(line, testOrigin); err == nil {
			t.Errorf("%q is read as %q, want an error", line, o.format(testOrigin))
		}
	}
}

// TestGeneratorReaches counts what random lists ask for: a read of nothing
// proves little.
func TestGeneratorReaches(t *testing.T) {
	verbs, reads, empty := map[string]int{}, 0, 0
	for seed := range uint64(20) {
		g := newGenerator(seed, testOrigin, true)
		r := newRunner(t, referenceHarness(testOrigin, 0))
		for _, o := range g.ops(150) {
			verbs[o.verb]++
			answer := r.do(o)
			if o.verb == "read" || o.verb == "select" || o.verb == "names" {
				reads++
				if answer == "(none)" {
					empty++
				}
			}
		}
		r.close()
	}
	t.Logf("%d of %d reads found nothing; %v", empty, reads, verbs)
	if empty*2 > reads {
		t.Errorf("%d of %d reads found nothing, want less than half", empty, reads)
	}
	if len(verbs) != 17 {
		t.Errorf("%d kinds of operation, want all 17: %v", len(verbs), verbs)
	}
}

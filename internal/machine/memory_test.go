package machine

import (
	"math"
	"runtime/debug"
	"slices"
	"testing"
)

func TestMeminfo(t *testing.T) {
	if n := meminfoTotal([]byte("MemTotal:       16384 kB\nMemFree: 1 kB\n")); n != 16<<20 {
		t.Errorf("meminfo: %d", n)
	}
	for _, text := range []string{"", "MemTotal:", "MemTotal: -5 kB", "MemTotal: x kB"} {
		if n := meminfoTotal([]byte(text)); n < 1<<60 {
			t.Errorf("%q: %d", text, n)
		}
	}
}

func TestLimitsOfControlGroups(t *testing.T) {
	const v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	for text, want := range map[string][]string{
		"":                                    nil,
		"0::/\n":                              nil,
		"0::/system.slice/varve.service\n":    {v2 + "/system.slice/varve.service/memory.max", v2 + "/system.slice/memory.max"},
		"4:memory:/a/b\n1:cpu:/c\n0::/\n":     {v1 + "/a/b/memory.limit_in_bytes", v1 + "/a/memory.limit_in_bytes"},
		"5:cpu,memory:/a\n9:name=memory:/b\n": {v1 + "/a/memory.limit_in_bytes"},
		"3:memory\n:\nmemory:/\n4:memory:x\n": nil,
	} {
		want = append([]string{v2 + "/memory.max", v1 + "/memory.limit_in_bytes"}, want...)
		if got := limitsOf([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestShare(t *testing.T) {
	if n := Share(5 << 20); n != 5<<20 {
		t.Errorf("a share that is set to 5 MiB has %d bytes", n)
	}
	if all := Memory(); all > 0 && (Part(3, all) != all/3 || Part(3, 1000) != 1000 || Part(all+1, all) != 1) {
		t.Errorf("parts of %d bytes: %d, %d, %d", all, Part(3, all), Part(3, 1000), Part(all+1, all))
	}
	if n, all := Share(0), Memory(); n <= 0 || all > 0 && n != all/4 {
		t.Errorf("a share of %d bytes of memory has %d", all, n)
	}
}

// TestLimitGarbage: the limit that the process sets for itself does not count as a limit of its memory, and
// one from outside stays.
func TestLimitGarbage(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	defer ownLimit.Store(0)
	debug.SetMemoryLimit(math.MaxInt64)
	memory := Memory()
	if memory == 0 {
		t.Skip("the memory of this machine is not known")
	}
	LimitGarbage()
	if limit := debug.SetMemoryLimit(-1); limit != memory/5*4 || Memory() != memory {
		t.Errorf("of %d bytes, %d are the limit, and the memory is %d", memory, limit, Memory())
	}
	debug.SetMemoryLimit(1 << 20)
	LimitGarbage()
	if limit := debug.SetMemoryLimit(-1); limit != 1<<20 || Memory() != 1<<20 {
		t.Errorf("with GOMEMLIMIT, the limit is %d, and the memory %d", limit, Memory())
	}
}

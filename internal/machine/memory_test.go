package machine

import "testing"

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

func TestShare(t *testing.T) {
	if n := Share(5 << 20); n != 5<<20 {
		t.Errorf("a share that is set to 5 MiB has %d bytes", n)
	}
	if n, all := Share(0), Memory(); n <= 0 || all > 0 && n != all/4 {
		t.Errorf("a share of %d bytes of memory has %d", all, n)
	}
}

// Package machine says how much memory and how many open files this process may have.
package machine

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// LimitGarbage makes Go collect garbage more often when the process takes more than four fifths of
// [Memory], so that the kernel does not kill it for garbage. GOMEMLIMIT in the environment wins. It is
// called once, when the process starts.
func LimitGarbage() {
	if memory := Memory(); memory > 0 && debug.SetMemoryLimit(-1) == math.MaxInt64 {
		ownLimit.Store(memory / 5 * 4)
		debug.SetMemoryLimit(ownLimit.Load())
	}
}

// ownLimit is the limit that LimitGarbage has set.
var ownLimit atomic.Int64

// Memory returns the memory that this process may use: the least of the
// machine's memory, the limits of its control groups, and GOMEMLIMIT. It is 0 if
// none of them is known.
func Memory() int64 {
	most := int64(math.MaxInt64)
	if limit := debug.SetMemoryLimit(-1); limit > 0 && limit != ownLimit.Load() {
		most = limit
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		most = min(most, meminfoTotal(text))
	}
	for _, file := range cgroupLimits() {
		if text, err := os.ReadFile(file); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				most = min(most, n)
			}
		}
	}
	if most == math.MaxInt64 {
		return 0
	}
	return most
}

// meminfoTotal reads the first line of Linux' /proc/meminfo.
func meminfoTotal(text []byte) int64 {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) >= 2 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil && kib > 0 && kib < math.MaxInt64>>10 {
				return kib << 10
			}
		}
	}
	return math.MaxInt64
}

// cgroupLimits lists the files that may hold a limit of this process.
func cgroupLimits() []string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	return limitsOf(text)
}

// limitsOf lists the files that may hold a limit, by the text of /proc/self/cgroup: of version 2 and of the
// controller of memory of version 1, from the group of the process up. A container may see its group
// as the root, and its path from outside.
func limitsOf(text []byte) []string {
	const v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	files := []string{v2 + "/memory.max", v1 + "/memory.limit_in_bytes"}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, own, _ := strings.Cut(rest, ":")
		root, name := v2, "/memory.max"
		if slices.Contains(strings.Split(controllers, ","), "memory") {
			root, name = v1, "/memory.limit_in_bytes"
		} else if controllers != "" {
			continue
		}
		for ; strings.HasPrefix(own, "/") && own != "/"; own = path.Dir(own) {
			files = append(files, root+own+name)
		}
	}
	return files
}

// A share is one part in memoryShare of the memory, or unknownMemory if that is not
// known.
const (
	memoryShare   = 4
	unknownMemory = 1 << 30
)

// Part returns one part in parts of the memory of the machine or its control group, but not more
// than most. It is most if the memory is not known.
func Part(parts, most int64) int64 {
	if n := Memory(); n > 0 {
		return min(max(n/parts, 1), most)
	}
	return most
}

// Share returns the bytes of a setting whose 0 stands for a quarter of the memory of
// the machine or its control group: set, unless that is 0.
func Share(set int64) int64 {
	if set > 0 {
		return set
	}
	if n := Memory(); n > 0 {
		return max(n/memoryShare, 1)
	}
	return unknownMemory
}

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"varve/internal/embedded/datadir"
)

// A syncState is what the kernel reports about its clock.
type syncState struct {
	known, synchronised bool
	most                time.Duration // the kernel's estimate of the maximum error
}

// clockAhead is how far modification times of a store's files may be in the future.
const clockAhead = time.Minute

// built is earlier than every build of this program.
var built = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// clock checks the clock, as far as that is possible on this machine.
func clock(dataDir string) Finding {
	return judgeClock(time.Now(), newest(dataDir), clockState())
}

// newest returns when a server last created or removed a file in its directories, zero if
// there are none.
func newest(dataDir string) (t time.Time) {
	for _, dir := range []string{dataDir, filepath.Join(dataDir, datadir.Log), filepath.Join(dataDir, datadir.Blocks)} {
		if info, err := os.Stat(dir); err == nil && info.ModTime().After(t) {
			t = info.ModTime()
		}
	}
	return t
}

func judgeClock(now, newest time.Time, s syncState) Finding {
	const check = "clock"
	const do = "run a time service: systemd-timesyncd, chrony or ntpd; times-to-live, relative times of queries and, over Cassandra, the order of writes depend on the clock"
	text := now.UTC().Format(time.RFC3339)
	switch {
	case now.Before(built):
		return Finding{check, Fault, text + ", which is before this program was built", do}
	case newest.Sub(now) > clockAhead:
		return Finding{check, Fault, fmt.Sprintf("%s, but the data directory was written %s after that: the clock was set back", text, newest.Sub(now).Round(time.Second)), do}
	case !s.known:
		return ok(check, "%s; whether it is synchronised is not known on this system", text)
	case !s.synchronised:
		return Finding{check, Warning, text + ", not synchronised", do}
	}
	return ok(check, "%s, synchronised, at most %s off", text, s.most.Round(time.Millisecond))
}

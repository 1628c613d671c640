package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"varve/internal/embedded/datadir"
)

// A syncState is what the kernel says of its clock.
type syncState struct {
	known, synchronised bool
	most                time.Duration // error at most, as the kernel has it
}

// clockAhead is how far the files of a store may be in the future.
const clockAhead = time.Minute

// built is before every build of this program.
var built = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// clock tells whether the clock is right, as far as this machine knows.
func clock(dataDir string) Finding {
	return judgeClock(time.Now(), newest(dataDir), clockState())
}

// newest is the time of the newest file that a server has written, zero if there is none.
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

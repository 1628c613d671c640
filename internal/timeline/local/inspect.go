package local

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded/catalogue"
	"varve/internal/timeline"
	"varve/internal/units"
)

// inspectNames bounds the timelines that Inspect lists.
const inspectNames = 1000

// Inspect writes a list of the timelines in a directory. No server may be using the directory.
// Nothing in it is changed.
func Inspect(ctx context.Context, fs vfs.FS, dir string, w io.Writer) (err error) {
	if _, err := fs.Stat(dir); err != nil {
		return fmt.Errorf("%s holds no timelines: %w", dir, err)
	}
	s := &Shelf{fs: fs, dir: dir, logger: slog.New(slog.DiscardHandler)}
	s.numbers.known = map[string]number{}
	if s.db, err = catalogue.OpenPebbleToRead(fs, dir); err != nil {
		return fmt.Errorf("read timelines in %s (varve check reports details): %w", dir, err)
	}
	defer s.db.Close() // it was only read
	n, err := s.countHistories()
	if err != nil {
		return err
	}
	names, err := s.Names(ctx, "", "", inspectNames)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "timelines  %d\ndisk space %d bytes\n\n", n, s.db.Metrics().DiskSpaceUsage())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIMELINE\tTABLE BYTES\tLAYOUTS\tRETENTION\tOLDEST EVENT\tNEWEST EVENT")
	for _, name := range names {
		if err := s.inspect(ctx, t, name); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := n - len(names); more > 0 {
		fmt.Fprintf(w, "and %d more timelines\n", more)
	}
	_, err = fmt.Fprintln(w, "\nEvents of the last minutes are in the log and not counted in the bytes of tables.")
	return err
}

// inspect writes a line about a timeline.
func (s *Shelf) inspect(ctx context.Context, w io.Writer, name string) error {
	n, h, _, err := s.history(name)
	if err != nil {
		return err
	}
	bytes := uint64(0)
	for _, table := range []byte{tableEvent, tableMark, tableArrival} {
		b, err := s.db.EstimateDiskUsage(numbered(table, n), afterNumber(table, n))
		if err != nil {
			return s.failed("measure a timeline", err)
		}
		bytes += b
	}
	kept := "forever" // as in the stages of retention
	if h.Retention > 0 {
		kept = units.FormatDuration(h.Retention)
	}
	fmt.Fprintf(w, "%q\t%d\t%d\t%s", name, bytes, len(h.Layouts), kept)
	for _, d := range []timeline.Direction{timeline.Ascending, timeline.Descending} {
		found, err := s.Slice(ctx, timeline.Everything(name), timeline.All(), d, timeline.Limit{Entries: 1, Bytes: 1})
		if err != nil {
			return err
		}
		at := "-"
		if len(found.Entries) > 0 {
			at = time.UnixMicro(found.Entries[0].Time).UTC().Format("2006-01-02T15:04:05.000000Z")
		}
		fmt.Fprintf(w, "\t%s", at)
	}
	_, err = fmt.Fprintln(w)
	return err
}

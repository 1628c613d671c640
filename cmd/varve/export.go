package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/config"
	"varve/internal/diskfs"
	"varve/internal/embedded"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/transfer"
)

func exportCommand() command {
	return command{
		name:     "export",
		synopsis: "write points to a file as KairosDB's export does",
		usage:    "[-f FILE] [-n METRIC]... [--http-addr ADDR | --data-dir DIR] [FLAGS]",
		help: `Writes points as JSON, a series and at most 10,000 points in a line. What it writes can
be imported here and by KairosDB, but for values that only Varve holds. They come from the
server at --http-addr, or from the data directory that is named by --data-dir, --config
or the environment, which no server may be using. Without any of these they come from
the server at 127.0.0.1:8080.

Exit status: 0 all is written, 1 it could not be completed, 2 wrong command line,
3 completed, but there is no metric of a name that -n gives.

` + offlineFlags + `  --http-addr ADDR export from the server that runs at ADDR, for example 127.0.0.1:8080
  -f FILE          write to FILE instead of standard output; packed if it ends in .gz
  -n METRIC        only this metric; may be given more than once
  -a               append to FILE, which must end with a whole line or packed part
  -r FILE          note the metrics that are done in FILE, and leave out those noted there:
                   the same command once more goes on after an interruption
  --start TIME     first time, as ms since 1970 or 2024-01-31T00:00:00Z
  --end TIME       last time, likewise
`,
		run: export,
	}
}

// An exportSource is where points come from.
type exportSource interface {
	metrics(ctx context.Context) iter.Seq2[string, error]
	has(ctx context.Context, metric string) (bool, error)

	// export writes a metric. progress is told how many of its series are written,
	// if that is known.
	export(ctx context.Context, metric string, within model.TimeRange, w io.Writer, progress func(series, of int)) error
}

// takeAll cuts a flag that may be repeated out of args.
func takeAll(args []string, name string) (values, rest []string, err error) {
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		flag, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case !strings.HasPrefix(word, "-") || flag != name:
			rest = append(rest, word)
			if strings.HasPrefix(word, "-") && !hasValue && len(args) > 0 && takesValue(flag) {
				rest, args = append(rest, args[0]), args[1:]
			}
			continue
		case !hasValue && len(args) == 0:
			return nil, nil, &usageError{fmt.Errorf("flag -%s: needs a value", name)}
		case !hasValue:
			value, args = args[0], args[1:]
		}
		values = append(values, value)
	}
	return values, rest, nil
}

// takesValue tells the flags of export that are followed by a value.
func takesValue(flag string) bool { return flag != "a" && flag != "h" && flag != "help" }

func export(t terminal, args []string) error {
	only, args, err := takeAll(args, "n")
	if err != nil {
		return err
	}
	l, err := parseLine(args, "data-dir", "config", "http-addr", "f", "a?", "r", "start", "end")
	if err != nil {
		return err
	}
	if err := l.noWords(); err != nil {
		return err
	}
	within, err := l.timeRange()
	if err != nil {
		return err
	}
	if err := l.target(t); err != nil {
		return err
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	source, closeSource, err := l.exportSource(t)
	if err != nil {
		return err
	}
	e := &exportJob{source: source, only: only, within: within, progress: newProgress(t.stderr)}
	err = e.run(ctx, t.stdout, l)
	e.progress.clear()
	if err = errors.Join(err, closeSource()); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted" + e.wayOn(l))
		}
		return fmt.Errorf("%w%s", err, e.wayOn(l))
	}
	if l.flags["f"] != "" {
		fmt.Fprintln(t.stdout, "Export finished")
		fmt.Fprintf(t.stderr, "%d metrics, %s in %s\n", e.done, size(e.bytes), time.Since(e.progress.began).Round(time.Millisecond))
	}
	fmt.Fprintln(t.stdout, "All done")
	if len(e.unknown) > 0 {
		return &unknownError{e.unknown}
	}
	return nil
}

// An unknownError means that an export is complete, but metrics that were asked
// for are not there.
type unknownError struct{ metrics []string }

func (e *unknownError) Error() string {
	return "exported without what is not there: no metric " + strings.Join(e.metrics, ", ")
}

// timeRange reads --start and --end.
func (l line) timeRange() (model.TimeRange, error) {
	text := map[string]string{}
	for _, name := range []string{"start", "end"} {
		text[name] = l.flags[name]
		if at, err := time.Parse(time.RFC3339Nano, text[name]); err == nil {
			text[name] = strconv.FormatInt(at.UnixMilli(), 10)
		}
	}
	within, err := transfer.Range(text["start"], text["end"])
	if err != nil {
		return within, &usageError{fmt.Errorf("%w; want ms since 1970 or a time such as 2024-01-31T00:00:00Z", err)}
	}
	return within, nil
}

func (l line) exportSource(t terminal) (exportSource, func() error, error) {
	if l.online() {
		return remoteSource{l}, func() error { return nil }, l.reach()
	}
	s, _, err := l.openStore(t, false, false)
	if err != nil {
		return nil, nil, err
	}
	return localSource{s}, s.Close, nil
}

// holdsStore reports why a directory is not one to open: a typing error must not
// make a store.
func holdsStore(dir string, create bool) error {
	if _, err := os.Stat(filepath.Join(dir, "catalogue")); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case !create:
		return fmt.Errorf("%s holds no store (--data-dir); varve import --create makes one", dir)
	}
	for _, e := range entries {
		if name := e.Name(); name != "lost+found" && name != "LOCK" {
			return fmt.Errorf("%s holds no store, but %s: a new store needs a directory of its own", dir, name)
		}
	}
	return nil
}

// openStore opens the data directory, to be written or only read. Without create
// there must be a store.
func (l line) openStore(t terminal, write, create bool) (*embedded.Store, config.Config, error) {
	var args []string
	for _, name := range []string{"config", "data-dir"} {
		if value, ok := l.flags[name]; ok {
			args = append(args, "--"+name, value)
		}
	}
	loaded, err := load(t, args)
	if err != nil {
		return nil, config.Config{}, err
	}
	c := loaded.Config
	if c.Store == config.Cassandra {
		return nil, c, &usageError{errors.New("the configuration says store: cassandra; go through a running server, with --http-addr")}
	}
	c.Log.Level = max(c.Log.Level, slog.LevelWarn) // the progress is what people look at
	if err := holdsStore(c.DataDir, create); err != nil {
		return nil, c, err
	}
	o := embedded.Options{Registerer: prometheus.NewRegistry(), Logger: c.Log.Logger(t.stderr, c.Log.Level)}
	var s *embedded.Store
	if write {
		s, err = embedded.Open(vfs.Default, c.DataDir, c.Embedded, o)
	} else {
		s, err = embedded.OpenToRead(diskfs.Reading, c.DataDir, c.Embedded, o)
	}
	if locked := (*embedded.LockedError)(nil); errors.As(err, &locked) {
		return nil, c, fmt.Errorf("%w; or go through the server that uses it, with --http-addr", err)
	}
	return s, c, err
}

type localSource struct{ store *embedded.Store }

func (s localSource) metrics(ctx context.Context) iter.Seq2[string, error] {
	return transfer.Metrics(ctx, s.store)
}

func (s localSource) has(ctx context.Context, metric string) (there bool, err error) {
	view, err := s.store.View(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	names, _, err := view.Names(ctx, store.NamesQuery{Kind: store.MetricNames, Prefix: metric, Limit: 1})
	return slices.Contains(names, metric), err
}

func (s localSource) export(ctx context.Context, metric string, within model.TimeRange, w io.Writer, progress func(series, of int)) error {
	_, err := transfer.Export(ctx, s.store, metric, within, w, progress)
	return err
}

type remoteSource struct{ line line }

func (s remoteSource) get(ctx context.Context, path string) (io.ReadCloser, error) {
	addr := dialable(s.line.flags["http-addr"])
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, &usageError{fmt.Errorf("flag --http-addr: %w", err)}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return nil, fmt.Errorf("the server at %s answers %s %s", addr, response.Status, bytes.TrimSpace(text))
	}
	return response.Body, nil
}

func (s remoteSource) names(ctx context.Context, parameters string) ([]string, error) {
	var answer struct{ Results []string }
	body, err := s.get(ctx, "/api/v1/metricnames"+parameters)
	if err == nil {
		defer body.Close()
		err = json.NewDecoder(body).Decode(&answer)
	}
	if err != nil {
		return nil, fmt.Errorf("list metrics: %w", err)
	}
	return answer.Results, nil
}

func (s remoteSource) has(ctx context.Context, metric string) (bool, error) {
	names, err := s.names(ctx, "?prefix="+url.QueryEscape(metric))
	return slices.Contains(names, metric), err
}

func (s remoteSource) metrics(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := s.names(ctx, "")
		if err != nil {
			yield("", err)
			return
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

func (s remoteSource) export(ctx context.Context, metric string, within model.TimeRange, w io.Writer, _ func(series, of int)) error {
	q := url.Values{"metric": {metric}}
	if within.StartMS != model.AllTime.StartMS {
		q.Set("start", strconv.FormatInt(within.StartMS, 10))
	}
	if within.EndMS != model.AllTime.EndMS {
		q.Set("end", strconv.FormatInt(within.EndMS, 10))
	}
	body, err := s.get(ctx, "/api/v1/export?"+q.Encode())
	if err == nil {
		defer body.Close()
		_, err = io.Copy(w, body)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", metric, err)
	}
	return nil
}

// An exportJob is one run of the command.
type exportJob struct {
	source   exportSource
	only     []string
	within   model.TimeRange
	progress *progress
	out      *exportFile
	recovery *recovery
	done     int64    // metrics
	total    int64    // metrics
	share    float64  // of the metric at hand that is written
	shared   bool     // share is known
	bytes    int64    // unpacked
	unknown  []string // metrics of only that are not there
}

// wayOn says how to go on after a failure.
func (e *exportJob) wayOn(l line) string {
	if e.out != nil && l.flags["r"] != "" && l.flags["f"] != "" {
		return "; the same command once more goes on"
	}
	return ""
}

// names are the metrics to export.
func (e *exportJob) names(ctx context.Context) ([]string, error) {
	if e.only != nil {
		return e.only, nil
	}
	var names []string
	for name, err := range e.source.metrics(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func (e *exportJob) run(ctx context.Context, stdout io.Writer, l line) (err error) {
	if e.recovery, err = openRecovery(l.flags["r"]); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.recovery.close()) }()
	_, appending := l.flags["a"]
	if e.out, err = openExport(l.flags["f"], stdout, appending, len(e.recovery.done) > 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.out.close()) }()
	names, err := e.names(ctx)
	if err != nil {
		return err
	}
	e.total = int64(len(names))
	skipped := int64(0)
	for _, name := range names {
		if e.recovery.done[name] {
			skipped++
			e.done++
			continue
		}
		before := e.bytes
		e.share, e.shared = 0, false
		if err := e.source.export(ctx, name, e.within, exportWriter{e, skipped}, e.series); err != nil {
			return err
		}
		if e.only != nil && e.bytes == before { // nothing in the range, or no such metric
			there, err := e.source.has(ctx, name)
			if err != nil {
				return err
			}
			if !there {
				e.unknown = append(e.unknown, name)
			}
		}
		if err := e.out.endMetric(); err != nil {
			return err
		}
		e.done++
		if err := e.recovery.note(name, e.out); err != nil {
			return err
		}
	}
	return e.recovery.flush(e.out)
}

// series notes how much of a metric is written.
func (e *exportJob) series(series, of int) {
	e.share, e.shared = float64(series)/float64(max(of, 1)), true
}

// tell shows the progress. Its unit is a thousandth of a metric, since one
// metric may hold all points; a server does not say how much of one it has sent.
func (e *exportJob) tell(skipped int64) {
	const parts = 1000
	total := e.total * parts
	if e.total == 1 && !e.shared {
		total = 0
	}
	e.progress.update(skipped*parts, e.done*parts+int64(e.share*parts), total,
		fmt.Sprintf("%d of %d metrics, %s, %s/s", e.done, e.total, size(e.bytes), size(e.progress.rate(e.bytes))))
}

// An exportWriter counts what goes to the file.
type exportWriter struct {
	job     *exportJob
	skipped int64
}

func (w exportWriter) Write(p []byte) (int, error) {
	n, err := w.job.out.w.Write(p)
	e := w.job
	e.bytes += int64(n)
	e.tell(w.skipped)
	return n, err
}

// An exportFile is what is written to: a file, packed or not, or the standard
// output. Each metric of a packed file is a gzip member of its own, so that the
// file can be cut and appended to.
type exportFile struct {
	f   *os.File // nil for the standard output
	buf *bufio.Writer
	zip *gzip.Writer // nil if not packed
	w   io.Writer
}

func openExport(path string, stdout io.Writer, appending, resuming bool) (*exportFile, error) {
	if path == "" {
		buf := bufio.NewWriterSize(stdout, 1<<20)
		return &exportFile{buf: buf, w: buf}, nil
	}
	packed := strings.HasSuffix(path, ".gz")
	flags := os.O_RDWR | os.O_CREATE
	if !appending && !resuming {
		flags |= os.O_TRUNC
	}
	if _, err := os.Stat(path); resuming && err != nil {
		return nil, fmt.Errorf("the recovery file (-r) lists metrics that are done, but they are not there: %w", err)
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, err
	}
	if err := toEnd(f, packed, resuming); err != nil {
		return nil, errors.Join(fmt.Errorf("append to %s: %w", path, err), f.Close())
	}
	e := &exportFile{f: f, buf: bufio.NewWriterSize(f, 1<<20)}
	e.w = e.buf
	if packed {
		e.zip = gzip.NewWriter(e.buf)
		e.w = e.zip
	}
	return e, nil
}

// toEnd goes to the end of a file that is appended to. Where an interrupted
// export is resumed, it removes what that has left behind the last whole line, or
// the last whole gzip member. It removes nothing else: the file may be any.
func toEnd(f *os.File, packed, resuming bool) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var keep int64
	if packed {
		keep, err = wholeMembers(f, end)
	} else {
		keep, err = wholeLines(f, end)
	}
	if err != nil || keep == end {
		_, seekErr := f.Seek(end, io.SeekStart)
		return errors.Join(err, seekErr)
	}
	what := "a line"
	if packed {
		what = "a gzip member"
	}
	torn, err := tornExport(f, keep, end, packed)
	switch {
	case err != nil:
		return err
	case !torn:
		return fmt.Errorf("what is behind byte %d is not %s that an export has begun; nothing was changed", keep, what)
	case !resuming:
		return fmt.Errorf("it ends within %s, which begins at byte %d; nothing was changed; -r goes on with an interrupted export", what, keep)
	}
	if err := f.Truncate(keep); err != nil {
		return err
	}
	_, err = f.Seek(keep, io.SeekStart)
	return err
}

// tornExport reports whether what is from one offset to another begins as an
// export's lines do.
func tornExport(f *os.File, from, end int64, packed bool) (bool, error) {
	const head = `{"name":"`
	var in io.Reader = io.NewSectionReader(f, from, end-from)
	if packed {
		const magic = "\x1f\x8b\x08"
		first := make([]byte, min(end-from, int64(len(magic))))
		if _, err := f.ReadAt(first, from); err != nil {
			return false, err
		}
		if string(first) != magic[:len(first)] {
			return false, nil
		}
		zip, err := gzip.NewReader(in)
		if err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), nil // a part of a header
		}
		in = zip
	}
	text := make([]byte, len(head))
	n, err := io.ReadFull(in, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return string(text[:n]) == head[:n], nil
}

// wholeLines is the offset behind the last line end.
func wholeLines(f *os.File, end int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for end > 0 {
		from := max(0, end-int64(len(buf)))
		piece := buf[:end-from]
		if _, err := f.ReadAt(piece, from); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(piece, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	return 0, nil
}

// A countingReader knows how many bytes were taken from it.
type countingReader struct {
	r *bufio.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// wholeMembers is the offset behind the last gzip member that is complete. A file
// that is damaged before its end is an error: what is behind the damage may be
// whole, and is noted as done.
func wholeMembers(f *os.File, end int64) (keep int64, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	in := &countingReader{r: bufio.NewReaderSize(f, 1<<20)}
	zip, err := gzip.NewReader(in)
	for err == nil {
		zip.Multistream(false)
		if _, err = io.Copy(io.Discard, zip); err == nil {
			keep = in.n
			err = zip.Reset(in)
		}
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return keep, nil
	case keep == 0 && errors.Is(err, gzip.ErrHeader):
		return 0, errors.New("it is not packed with gzip, as its name says; nothing was changed")
	}
	return 0, fmt.Errorf("it cannot be unpacked behind byte %d of %d (%w); nothing was changed; truncate -s %d cuts that off, if it is not needed", keep, end, err, keep)
}

// endMetric completes a gzip member.
func (e *exportFile) endMetric() error {
	if e.zip == nil {
		return nil
	}
	err := e.zip.Close()
	e.zip.Reset(e.buf)
	return err
}

// sync puts on disk what was written.
func (e *exportFile) sync() error {
	if err := e.buf.Flush(); err != nil || e.f == nil {
		return err
	}
	return e.f.Sync()
}

func (e *exportFile) close() error {
	err := e.sync()
	if e.f != nil {
		err = errors.Join(err, e.f.Close())
	}
	return err
}

// A recovery is KairosDB's recovery file: the metrics that are done, one a line.
// They are noted after they are on disk.
type recovery struct {
	f       *os.File // nil if there is none
	done    map[string]bool
	pending []byte
	flushed time.Time
}

func openRecovery(path string) (*recovery, error) {
	r := &recovery{done: map[string]bool{}, flushed: time.Now()}
	if path == "" {
		return r, nil
	}
	f, err := os.OpenFile(filepath.Clean(path), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, err), f.Close())
	}
	whole := bytes.LastIndexByte(text, '\n') + 1 // a name may have been cut
	for name := range strings.Lines(string(text[:whole])) {
		r.done[strings.TrimRight(name, "\r\n")] = true
	}
	if _, err := f.Seek(int64(whole), io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.f = f
	return r, f.Truncate(int64(whole))
}

// recoveryEvery is how often metrics that are done are noted.
const recoveryEvery = time.Second

// note remembers a metric. One whose name breaks lines is not noted, and
// exported again.
func (r *recovery) note(name string, out *exportFile) error {
	if r.f == nil || strings.ContainsAny(name, "\r\n") {
		return nil
	}
	r.pending = append(append(r.pending, name...), '\n')
	if time.Since(r.flushed) < recoveryEvery {
		return nil
	}
	return r.flush(out)
}

func (r *recovery) flush(out *exportFile) error {
	if len(r.pending) == 0 {
		return nil
	}
	if err := out.sync(); err != nil {
		return err
	}
	_, err := r.f.Write(r.pending)
	r.pending, r.flushed = r.pending[:0], time.Now()
	return err
}

func (r *recovery) close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func timelineCommand() command {
	return command{
		name:     "timeline",
		synopsis: "append events to a timeline, read, follow and lay it out",
		usage:    "append|read|tail|layout|stats [NAME] [FLAGS]",
		help: `Works on the timelines of the server at --http-addr; docs/timelines.md says what they are.

varve timeline append NAME [-f FILE] [--json] [--type TYPE] [--time-format FORMAT]
  Appends each line of the standard input, or of FILE, as an event whose data is the text of
  the line and whose time is now. With --time-format the time is at the beginning of the
  line: FORMAT says how it looks, as in Go, for example "2006-01-02 15:04:05". With --json
  each line is an event: {"time": 1700000000000, "type": "...", "data": ...}. Lines are sent
  as they come. A line that is refused is reported with its number; the others are stored.

varve timeline read NAME... [--limit N] [--from TIME] [--until TIME] [--order asc|desc] [--type TYPE]
  Prints events, newest first, one line of JSON each: 100 unless --limit says otherwise, 0
  for all. Several timelines are merged. TIME is milliseconds since 1970, 2026-01-31 or
  2026-01-31T12:00:00Z.

varve timeline tail NAME [-n N] [--type TYPE] [--cursor CURSOR]
  Prints the newest events, 10 unless -n says otherwise, and then each one that arrives, until
  it is interrupted. It connects again by itself, and misses nothing meanwhile. With --cursor
  it goes on behind an event: the cursor that an earlier reader had.

varve timeline layout NAME [--size DURATION] [--partitions N] [--mode MODE] [--threshold BYTES]
                           [--placement PLACEMENT] [--from TIME]
  Prints the layouts of a timeline over time. With flags it proposes another one.

varve timeline stats [NAME]
  Prints what is known of a timeline, or the names of all.

The exit status is 0, 1 if the server could not do it, 2 for wrong use, 3 if some lines were
refused.

Flags:
  --http-addr ADDR  the server; ` + defaultServer + ` unless told otherwise
`,
		run: timelineRun,
	}
}

// timelineActions are the words after varve timeline, with the flags that each takes.
var timelineActions = map[string]struct {
	flags []string
	run   func(t terminal, l line) error
}{
	"append": {[]string{"f", "json?", "type", "time-format"}, timelineAppend},
	"read":   {[]string{"limit", "from", "until", "order", "type"}, timelineRead},
	"tail":   {[]string{"n", "type", "cursor"}, timelineTail},
	"layout": {[]string{"size", "partitions", "mode", "threshold", "placement", "from"}, timelineLayout},
	"stats":  {nil, timelineStats},
}

func timelineRun(t terminal, args []string) error {
	const which = "say what to do: varve timeline append, read, tail, layout or stats"
	if len(args) == 0 {
		return &usageError{errors.New(which)}
	}
	if wantsHelp(args) {
		return timelineCommand().explain(t.stdout, false)
	}
	action, ok := timelineActions[args[0]]
	if !ok {
		return &usageError{fmt.Errorf("unknown word %q; %s", args[0], which)}
	}
	l, err := parseLine(args[1:], append([]string{"http-addr"}, action.flags...)...)
	if err != nil {
		return err
	}
	if l.flags["http-addr"] == "" {
		l.flags["http-addr"] = defaultServer
	}
	return action.run(t, l)
}

// oneName returns the timeline that is named.
func (l line) oneName() (string, error) {
	if len(l.words) != 1 || l.words[0] == "" {
		return "", &usageError{errors.New("name one timeline")}
	}
	return l.words[0], nil
}

const timelineRoot = "/api/v1/timelines"

// timelinePath returns the path of something about a timeline.
func timelinePath(name, what string) string { return timelineRoot + "/" + escapeSegment(name) + what }

// escapeSegment escapes a name as one segment of a path, also "." and "..".
func escapeSegment(name string) string {
	return strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
}

// askTimeline sends a request and returns the answer with its text. An answer that is an error
// without a report is an error.
func (l line) askTimeline(ctx context.Context, method, path, kind string, body []byte) (status int, text []byte, err error) {
	response, err := l.openTimeline(ctx, method, path, kind, body)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, 256<<20))
	return response.StatusCode, text, err
}

func (l line) openTimeline(ctx context.Context, method, path, kind string, body []byte) (*http.Response, error) {
	addr := dialable(l.flags["http-addr"])
	response, err := ask(ctx, method, addr, path, kind, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the server at %s: %w", addr, err)
	}
	return response, nil
}

// A statusError is an answer that is an error.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// checkStatus returns the error that an answer is, nil if it is none.
func checkStatus(status int, text []byte) error {
	if status == http.StatusOK {
		return nil
	}
	var refusal struct{ Errors []string }
	if json.Unmarshal(text, &refusal) != nil || len(refusal.Errors) == 0 {
		return &statusError{status, fmt.Sprintf("the server answers %d %s", status, http.StatusText(status))}
	}
	return &statusError{status, strings.Join(refusal.Errors, "\n")}
}

// get prints the answer to a GET.
func (l line) get(t terminal, path string) error {
	status, text, err := l.askTimeline(context.Background(), http.MethodGet, path, "", nil)
	if err = cmp.Or(err, checkStatus(status, text)); err != nil {
		return err
	}
	return printJSON(t.stdout, text)
}

func printJSON(to io.Writer, text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return fmt.Errorf("answer of the server: %w", err)
	}
	out.WriteByte('\n')
	_, err := to.Write(out.Bytes())
	return err
}

func timelineStats(t terminal, l line) error {
	if len(l.words) > 0 {
		name, err := l.oneName()
		if err != nil {
			return err
		}
		return l.get(t, timelinePath(name, "/stats"))
	}
	for cursor := ""; ; {
		status, text, err := l.askTimeline(context.Background(), http.MethodGet, timelineRoot+"?limit=1000&cursor="+url.QueryEscape(cursor), "", nil)
		if err = cmp.Or(err, checkStatus(status, text)); err != nil {
			return err
		}
		var page struct {
			Timelines []json.RawMessage
			Cursor    string
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return fmt.Errorf("answer of the server: %w", err)
		}
		for _, each := range page.Timelines {
			fmt.Fprintf(t.stdout, "%s\n", each)
		}
		if cursor = page.Cursor; cursor == "" {
			return nil
		}
	}
}

func timelineLayout(t terminal, l line) error {
	name, err := l.oneName()
	if err != nil {
		return err
	}
	proposal := map[string]any{}
	for _, flag := range []string{"partitions", "threshold"} {
		if text, ok := l.flags[flag]; ok {
			if proposal[flag], err = strconv.Atoi(text); err != nil {
				return &usageError{fmt.Errorf("flag --%s: %q: want a whole number", flag, text)}
			}
		}
	}
	for _, flag := range []string{"mode", "placement"} {
		if text, ok := l.flags[flag]; ok {
			proposal[flag] = text
		}
	}
	if text, ok := l.flags["size"]; ok {
		size, err := parseAge(text)
		if err != nil {
			return &usageError{fmt.Errorf("flag --size: %w", err)}
		}
		proposal["size"] = size.Milliseconds()
	}
	if text, ok := l.flags["from"]; ok {
		if proposal["from"], err = parseTime(text); err != nil {
			return &usageError{fmt.Errorf("flag --from: %w", err)}
		}
	}
	if len(proposal) == 0 {
		return l.get(t, timelinePath(name, "/layout"))
	}
	body, err := json.Marshal(proposal)
	if err != nil {
		return err
	}
	status, text, err := l.askTimeline(context.Background(), http.MethodPost, timelinePath(name, "/layout"), "", body)
	if err = cmp.Or(err, checkStatus(status, text)); err != nil {
		return err
	}
	return printJSON(t.stdout, text)
}

// An eventsPage is a page as the server answers it.
type eventsPage struct {
	Events []json.RawMessage
	Cursor string
	End    bool
}

func (l line) page(ctx context.Context, path string, query url.Values) (page eventsPage, err error) {
	status, text, err := l.askTimeline(ctx, http.MethodGet, path+"?"+query.Encode(), "", nil)
	if err = cmp.Or(err, checkStatus(status, text)); err != nil {
		return page, err
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return page, fmt.Errorf("answer of the server: %w", err)
	}
	return page, nil
}

const pageLimit = 1000

func timelineRead(t terminal, l line) error {
	if len(l.words) == 0 {
		return &usageError{errors.New("name a timeline, or several")}
	}
	query, path := url.Values{}, timelinePath(l.words[0], "/events")
	if len(l.words) > 1 {
		query["timeline"], path = l.words, timelineRoot+"/events"
	}
	left := 100
	if text, ok := l.flags["limit"]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return &usageError{fmt.Errorf("flag --limit: %q: want a whole number, 0 for all", text)}
		}
		left = n
	}
	all := left == 0
	for _, flag := range []string{"from", "until"} {
		if text, ok := l.flags[flag]; ok {
			ms, err := parseTime(text)
			if err != nil {
				return &usageError{fmt.Errorf("flag --%s: %w", flag, err)}
			}
			query.Set(flag, strconv.FormatInt(ms, 10))
		}
	}
	for _, flag := range []string{"order", "type"} {
		if text, ok := l.flags[flag]; ok {
			query.Set(flag, text)
		}
	}
	for all || left > 0 {
		query.Set("limit", strconv.Itoa(pageLimit))
		if !all {
			query.Set("limit", strconv.Itoa(min(left, pageLimit)))
		}
		page, err := l.page(context.Background(), path, query)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if _, err := fmt.Fprintf(t.stdout, "%s\n", e); err != nil {
				return err
			}
		}
		if left -= len(page.Events); page.End {
			return nil
		}
		query.Set("cursor", page.Cursor)
	}
	return nil
}

// Blocks of lines that are sent together, at most.
const (
	timelineLines = 1000
	timelineBytes = 1 << 20
	timelinePause = 100 * time.Millisecond // after which what there is is sent
)

func timelineAppend(t terminal, l line) error {
	name, err := l.oneName()
	if err != nil {
		return err
	}
	_, isJSON := l.flags["json"]
	if isJSON && (l.flags["type"] != "" || l.flags["time-format"] != "") {
		return &usageError{errors.New("with --json each event says its type and time: leave --type and --time-format out")}
	}
	in := os.Stdin
	if path := l.flags["f"]; path != "" {
		if in, err = os.Open(path); err != nil {
			return err
		}
		defer in.Close()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &appender{line: l, path: timelinePath(name, "/events"), stderr: t.stderr, isJSON: isJSON, run: strconv.FormatInt(time.Now().UnixNano(), 36)}
	err = a.all(ctx, in)
	fmt.Fprintf(t.stderr, "%s appended\n", count(a.accepted, "event"))
	if err != nil {
		return err
	}
	if a.rejected > 0 {
		return &rejectedError{lines: a.rejected}
	}
	return nil
}

// An appender sends lines as events.
type appender struct {
	line
	path   string
	stderr io.Writer
	isJSON bool
	run    string // the beginning of ids

	number   int64 // of the line
	last     int64 // time of the last event that got the time of now, in microseconds
	block    bytes.Buffer
	numbers  []int64 // of the lines in the block
	accepted int64
	rejected int64
}

// all sends all lines of in, in blocks; those that are there are not kept waiting for more.
func (a *appender) all(ctx context.Context, in io.Reader) error {
	texts, failed := make(chan []byte, timelineLines), make(chan error, 1)
	go func() { // ends with the input, or with the process
		defer close(texts)
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			texts <- slices.Clone(lines.Bytes())
		}
		failed <- lines.Err()
	}()
	pause := time.NewTimer(timelinePause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return errors.Join(a.send(context.WithoutCancel(ctx)), errInterrupted)
		case <-pause.C:
			pause.Reset(timelinePause)
			if err := a.send(ctx); err != nil {
				return err
			}
			continue
		case text, ok := <-texts:
			if !ok {
				return cmp.Or(a.send(ctx), <-failed)
			}
			if err := a.add(text); err != nil {
				return err
			}
		}
		if len(a.numbers) >= timelineLines || a.block.Len() >= timelineBytes {
			if err := a.send(ctx); err != nil {
				return err
			}
		}
	}
}

// add adds a line to the block.
func (a *appender) add(text []byte) error {
	a.number++
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if !a.isJSON {
		at, err := a.timeOf(string(text))
		if err != nil {
			fmt.Fprintf(a.stderr, "line %d: %v\n", a.number, err)
			a.rejected++
			return nil
		}
		event := map[string]any{"time_us": at, "id": fmt.Sprintf("%s-%010d", a.run, a.number), "type": a.flags["type"], "data": strings.ToValidUTF8(string(text), "\uFFFD")}
		if text, err = json.Marshal(event); err != nil {
			return err
		}
	}
	a.numbers = append(a.numbers, a.number)
	a.block.Write(text)
	a.block.WriteByte('\n')
	return nil
}

// timeOf returns the time of a line in microseconds. Lines that come in one microsecond keep
// their order.
func (a *appender) timeOf(text string) (int64, error) {
	format := a.flags["time-format"]
	if format == "" {
		a.last = max(a.last+1, time.Now().UnixMicro())
		return a.last, nil
	}
	words, n := strings.Fields(text), len(strings.Fields(format))
	at, err := time.ParseInLocation(strings.Join(strings.Fields(format), " "), strings.Join(words[:min(n, len(words))], " "), time.Local)
	if err != nil {
		return 0, fmt.Errorf("the line does not begin with a time such as %s: %w", format, err)
	}
	return at.UnixMicro(), nil
}

// send sends the block.
func (a *appender) send(ctx context.Context) error {
	if len(a.numbers) == 0 {
		return nil
	}
	status, text, err := a.askTimeline(ctx, http.MethodPost, a.path, "application/x-ndjson", a.block.Bytes())
	if err != nil {
		return err
	}
	var report struct {
		Accepted int64
		Rejected []struct {
			Index int
			Error string
		}
		RejectedMore int64 `json:"rejected_more"`
		Next         *int64
	}
	if json.Unmarshal(text, &report) != nil || len(report.Rejected) == 0 && status != http.StatusOK || report.Next != nil {
		a.accepted += report.Accepted
		return checkStatus(status, text)
	}
	for _, r := range report.Rejected {
		if r.Index < len(a.numbers) {
			fmt.Fprintf(a.stderr, "line %d: %s\n", a.numbers[r.Index], r.Error)
		}
	}
	a.accepted += report.Accepted
	a.rejected += int64(len(report.Rejected)) + report.RejectedMore
	a.block.Reset()
	a.numbers = a.numbers[:0]
	return nil
}

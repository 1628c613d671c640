package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/url"
	"strconv"
	"time"

	"varve/internal/config"
	"varve/internal/remote"
	"varve/internal/timeline/client"
	"varve/internal/units"
)

var timelineCommand = command{
	name:     "timeline",
	synopsis: "append, read and follow events, and set layouts",
	usage:    "append|read|tail|layout|stats [NAME] [FLAGS]",
	help: `Works with the timelines of the server at --http-addr; docs/timelines.md explains them.

varve timeline append NAME [-f FILE] [--json] [--type TYPE] [--time-format FORMAT]
  Appends each line of the standard input, or of FILE, as an event whose data is the text of
  the line and whose time is now. With --time-format the line begins with its time, in
  FORMAT, a layout as in Go, for example "2006-01-02 15:04:05". With --json each line is
  an event: {"time": 1700000000000, "type": "...", "data": ...}. Lines are sent as they
  arrive. A refused line is reported with its number; the others are stored.

varve timeline read NAME... [--limit N] [--from TIME] [--until TIME] [--order asc|desc] [--type TYPE]
  Prints events, newest first, one line of JSON each: 100, or as many as --limit says, 0
  for all. Several timelines are merged. TIME is milliseconds since 1970, 2026-01-31 or
  2026-01-31T12:00:00Z.

varve timeline tail NAME [-n N] [--type TYPE] [--cursor CURSOR]
  Prints the newest events (-n, 10), and then each one that arrives, until it is
  interrupted. It reconnects after a failure without missing an event. With --cursor, the
  cursor of an earlier reader, it continues after the event where that reader stopped.

varve timeline layout NAME [--size DURATION] [--partitions N] [--mode MODE] [--threshold BYTES]
                           [--placement PLACEMENT] [--from TIME]
  Prints the past and present layouts of a timeline. With flags it proposes a new one.

varve timeline stats [NAME]
  Prints statistics of a timeline, or the names of all timelines.

The exit status is 0 on success, 1 if the server failed, 2 for wrong usage, 3 if some lines
were refused.

Flags:
  --http-addr ADDR  the server; ` + defaultServer + ` by default
  --tenant NAME     the tenant whose timelines are meant; by default the first one of the
                    token in VARVE_TOKEN, and "default" for a token of all tenants
`,
	run: timelineRun,
}

// timelineActions are the words after varve timeline, with the flags that each takes.
var timelineActions = map[string]struct {
	flags []string
	run   func(ctx context.Context, t terminal, l line, s *remote.Server) error
}{
	"append": {[]string{"f", "json?", "type", "time-format"}, timelineAppend},
	"read":   {[]string{"limit", "from", "until", "order", "type"}, timelineRead},
	"tail":   {[]string{"n", "type", "cursor"}, timelineTail},
	"layout": {[]string{"size", "partitions", "mode", "threshold", "placement", "from"}, timelineLayout},
	"stats":  {nil, timelineStats},
}

func timelineRun(t terminal, args []string) error {
	const which = "append, read, tail, layout or stats"
	if len(args) == 0 {
		return &usageError{errors.New("timeline needs a subcommand: " + which)}
	}
	if wantsHelp(args) {
		return config.ErrHelp
	}
	action, ok := timelineActions[args[0]]
	if !ok {
		return &usageError{fmt.Errorf("timeline: unknown subcommand %q; want %s", args[0], which)}
	}
	l, err := parseLine(args[1:], append([]string{"http-addr", "tenant"}, action.flags...)...)
	if err != nil {
		return err
	}
	if l.flags["http-addr"] == "" {
		l.flags["http-addr"] = defaultServer
	}
	s, err := l.server()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	if err = action.run(ctx, t, l, s); errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	return err
}

// oneName returns the name of the only timeline.
func (l line) oneName() (string, error) {
	if len(l.words) != 1 || l.words[0] == "" {
		return "", &usageError{errors.New("name one timeline")}
	}
	return l.words[0], nil
}

func printJSON(to io.Writer, text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return fmt.Errorf("read the answer of the server: %w", err)
	}
	out.WriteByte('\n')
	_, err := to.Write(out.Bytes())
	return err
}

func printLines(to io.Writer, texts iter.Seq2[json.RawMessage, error]) error {
	for text, err := range texts {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(to, "%s\n", text); err != nil {
			return err
		}
	}
	return nil
}

func timelineStats(ctx context.Context, t terminal, l line, s *remote.Server) error {
	if len(l.words) == 0 {
		return printLines(t.stdout, client.Timelines(ctx, s))
	}
	name, err := l.oneName()
	if err != nil {
		return err
	}
	text, err := client.Stats(ctx, s, name)
	if err != nil {
		return err
	}
	return printJSON(t.stdout, text)
}

func timelineLayout(ctx context.Context, t terminal, l line, s *remote.Server) error {
	name, err := l.oneName()
	if err != nil {
		return err
	}
	proposal := map[string]any{}
	propose := func(flag string, value func(text string) (any, error)) error {
		return l.value(flag, func(text string) (err error) { proposal[flag], err = value(text); return err })
	}
	whole := func(text string) (any, error) { return parseWhole(text) }
	word := func(text string) (any, error) { return text, nil }
	err = cmp.Or(propose("partitions", whole), propose("threshold", whole), propose("mode", word), propose("placement", word),
		propose("size", func(text string) (any, error) { d, err := parseAge(text); return d.Milliseconds(), err }),
		propose("from", func(text string) (any, error) { return parseTime(text) }))
	if err != nil {
		return err
	}
	var text json.RawMessage
	if len(proposal) == 0 {
		text, err = client.Layout(ctx, s, name)
	} else {
		text, err = client.Propose(ctx, s, name, proposal)
	}
	if err != nil {
		return err
	}
	return printJSON(t.stdout, text)
}

func timelineRead(ctx context.Context, t terminal, l line, s *remote.Server) error {
	if len(l.words) == 0 {
		return &usageError{errors.New("name a timeline, or several")}
	}
	q := client.Query{Timelines: l.words, Limit: 100, Filter: url.Values{}}
	for _, flag := range []string{"order", "type", "from", "until"} {
		err := l.value(flag, func(text string) error {
			if flag == "from" || flag == "until" {
				ms, err := parseTime(text)
				if err != nil {
					return err
				}
				text = strconv.FormatInt(ms, 10)
			}
			q.Filter.Set(flag, text)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := l.number("limit", &q.Limit, 0, math.MaxInt); err != nil { // 0 is all
		return err
	}
	events := 0
	counted := func(yield func(json.RawMessage, error) bool) {
		for text, err := range client.Events(ctx, s, q) {
			events++
			if !yield(text, err) {
				return
			}
		}
	}
	err := printLines(t.stdout, counted)
	if events == 0 {
		fmt.Fprintln(t.stderr, "no events; varve timeline stats lists the timelines")
	}
	return err
}

func timelineAppend(ctx context.Context, t terminal, l line, s *remote.Server) error {
	name, err := l.oneName()
	if err != nil {
		return err
	}
	a := &client.Appender{Server: s, Timeline: name, Type: l.flags["type"], TimeFormat: l.flags["time-format"],
		Run: strconv.FormatInt(time.Now().UnixNano(), 36), Refused: t.stderr}
	if _, a.JSON = l.flags["json"]; a.JSON && (a.Type != "" || a.TimeFormat != "") {
		return &usageError{errors.New("with --json each event has its own type and time: leave out --type and --time-format")}
	}
	if err := l.value("time-format", client.CheckTimeFormat); err != nil {
		return err
	}
	in, err := l.input("f")
	if err != nil {
		return err
	}
	defer in.Close()
	err = a.Append(ctx, in)
	fmt.Fprintf(t.stderr, "%s appended\n", units.Count(a.Accepted, "event"))
	if ctx.Err() != nil {
		return errors.Join(err, errInterrupted)
	}
	return cmp.Or(err, leftOut(a.Rejected, "line", "rejected", ""))
}

func timelineTail(ctx context.Context, t terminal, l line, s *remote.Server) error {
	name, err := l.oneName()
	if err != nil {
		return err
	}
	f := &client.Follower{Server: s, Timeline: name, Type: l.flags["type"], Newest: 10, Cursor: l.flags["cursor"], Out: t.stdout, Errors: t.stderr}
	if err := l.number("n", &f.Newest, 0, client.MaxPage); err != nil {
		return err
	}
	return f.Follow(ctx)
}

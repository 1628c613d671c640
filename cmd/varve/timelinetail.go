package main

import (
	"bufio"
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

	"varve/internal/work"
)

// A follower prints what arrives in a timeline.
type follower struct {
	line
	path   string // of the timeline
	out    io.Writer
	stderr io.Writer
	newest int             // events that are printed at first
	cursor string          // behind what was printed
	seen   map[string]bool // of the events at first, which may arrive once more
}

func timelineTail(t terminal, l line) error {
	name, err := l.oneName()
	if err != nil {
		return err
	}
	f := &follower{line: l, path: timelinePath(name, ""), out: t.stdout, stderr: t.stderr, newest: 10, cursor: l.flags["cursor"], seen: map[string]bool{}}
	if text, ok := l.flags["n"]; ok {
		if f.newest, err = strconv.Atoi(text); err != nil || f.newest < 0 || f.newest > pageLimit {
			return &usageError{fmt.Errorf("flag -n: %q: want a number from 0 to %d", text, pageLimit)}
		}
	}
	if f.cursor != "" {
		f.newest = 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return f.run(ctx)
}

// run follows until ctx ends. It connects again after a while if the server was there once.
func (f *follower) run(ctx context.Context) error {
	began := false
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		before := f.cursor
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		began = began || f.cursor != ""
		refused := (*statusError)(nil)
		if err != nil && (!began || errors.As(err, &refused) && refused.status != http.StatusServiceUnavailable) {
			return err
		}
		if err != nil {
			fmt.Fprintf(f.stderr, "varve: %v; connecting again\n", err)
		}
		if f.cursor != before {
			wait = time.Second
		}
		if work.Pause(ctx, wait) != nil {
			return nil
		}
	}
}

// follow prints what one answer has.
func (f *follower) follow(ctx context.Context) error {
	query := url.Values{}
	for name, value := range map[string]string{"cursor": f.cursor, "type": f.flags["type"]} {
		if value != "" {
			query.Set(name, value)
		}
	}
	response, err := f.openTimeline(ctx, http.MethodGet, f.path+"/tail?"+query.Encode(), "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		return checkStatus(response.StatusCode, text)
	}
	in := bufio.NewReaderSize(response.Body, 64<<10)
	for {
		kind, data, err := f.message(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.newest > 0 { // from the first message on nothing is missed
			if err := f.first(ctx); err != nil {
				return err
			}
		}
		switch {
		case kind == "error":
			return errors.New(data)
		case data == "":
		case len(f.seen) > 0 && f.seen[positionOf(data)]:
			delete(f.seen, positionOf(data))
		default:
			if _, err := fmt.Fprintln(f.out, data); err != nil {
				return err
			}
		}
	}
}

// message reads a message of server-sent events, and its id as the cursor.
func (f *follower) message(in *bufio.Reader) (kind, data string, err error) {
	cursor := ""
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			return "", "", err
		}
		field, value, _ := strings.Cut(strings.TrimRight(text, "\r\n"), ": ")
		switch field {
		case "id":
			cursor = value
		case "event":
			kind = value
		case "data":
			data = value
		case "":
			if value != "" { // a comment
				continue
			}
			if cursor != "" {
				f.cursor = cursor
			}
			return kind, data, nil
		}
	}
}

// first prints the newest events, the oldest of them first.
func (f *follower) first(ctx context.Context) error {
	query := url.Values{"limit": {strconv.Itoa(f.newest)}}
	if f.flags["type"] != "" {
		query.Set("type", f.flags["type"])
	}
	page, err := f.page(ctx, f.path+"/events", query)
	if err != nil {
		return err
	}
	f.newest = 0
	for _, e := range slices.Backward(page.Events) {
		f.seen[positionOf(string(e))] = true
		if _, err := fmt.Fprintf(f.out, "%s\n", e); err != nil {
			return err
		}
	}
	return nil
}

// positionOf tells an event from others.
func positionOf(event string) string {
	var e struct {
		Time   int64 `json:"time"`
		TimeUS int64 `json:"time_us"`
		ID     string
	}
	if json.Unmarshal([]byte(event), &e) != nil {
		return ""
	}
	return fmt.Sprint(e.Time, " ", e.TimeUS, " ", e.ID)
}

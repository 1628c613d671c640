package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"varve/internal/remote"
	"varve/internal/work"
)

// A Follower prints what arrives in a timeline, one event per line.
type Follower struct {
	Server   *remote.Server
	Timeline string
	Type     string // "": of all types
	Newest   int    // how many of the newest events are printed first, at most MaxPage; none with a Cursor
	Cursor   string // continues after what was printed

	Out    io.Writer
	Errors io.Writer // receives messages about lost connections

	seen map[string]string // the newest events, by position; they may arrive once more
}

// An outputError is an error of printing an event.
type outputError struct{ error }

// Follow follows until ctx ends. If the server has answered once, Follow connects again whenever
// the connection is lost. An event that cannot be printed ends it.
func (f *Follower) Follow(ctx context.Context) error {
	if f.Cursor != "" {
		f.Newest = 0
	}
	f.seen = map[string]string{}
	began := false
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		before := f.Cursor
		err := f.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if output, ok := errors.AsType[*outputError](err); ok {
			return output.error
		}
		began = began || f.Cursor != ""
		refused := (*remote.StatusError)(nil)
		if err != nil && (!began || errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable) {
			return err
		}
		if err != nil {
			fmt.Fprintf(f.Errors, "varve: %v; connecting again\n", err)
		}
		if f.Cursor != before {
			wait = time.Second
		}
		if work.Pause(ctx, wait) != nil {
			return nil
		}
	}
}

// once prints the events of one answer.
func (f *Follower) once(ctx context.Context) error {
	query := url.Values{}
	for name, value := range map[string]string{"cursor": f.Cursor, "type": f.Type} {
		if value != "" {
			query.Set(name, value)
		}
	}
	response, err := f.Server.Ask(ctx, http.MethodGet, pathOf(f.Timeline, "/tail?")+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	in := bufio.NewReaderSize(response.Body, 64<<10)
	for {
		kind, data, cursor, err := message(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if data == "" && cursor != "" {
			f.Cursor = cursor
		}
		if f.Newest > 0 { // after the first message, so that no event is missed in between
			if err := f.first(ctx); err != nil {
				return err
			}
		}
		switch {
		case kind == "error":
			return errors.New(data)
		case data == "":
			continue
		case f.wasFirst(data):
		default:
			if err := f.print(data); err != nil {
				return err
			}
		}
		if cursor != "" {
			f.Cursor = cursor
		}
	}
}

func (f *Follower) print(event string) error {
	if _, err := fmt.Fprintln(f.Out, event); err != nil {
		return &outputError{err}
	}
	return nil
}

// wasFirst reports whether an arrival is one of the newest events that were printed first, with
// the same content. It forgets that event: a later arrival at its position is another event.
func (f *Follower) wasFirst(event string) bool {
	if len(f.seen) == 0 {
		return false
	}
	at := positionOf(event)
	same := f.seen[at] == event
	delete(f.seen, at)
	return same
}

// message reads a message of server-sent events, and its id as the cursor.
func message(in *bufio.Reader) (kind, data, cursor string, err error) {
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			return "", "", "", err
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
			return kind, data, cursor, nil
		}
	}
}

// first prints the newest events, in ascending order.
func (f *Follower) first(ctx context.Context) error {
	q := Query{Timelines: []string{f.Timeline}, Limit: f.Newest}
	if f.Type != "" {
		q.Filter = url.Values{"type": {f.Type}}
	}
	var newest []string
	for e, err := range Events(ctx, f.Server, q) {
		if err != nil {
			return err
		}
		newest = append(newest, string(e))
	}
	f.Newest = 0
	for _, e := range slices.Backward(newest) {
		f.seen[positionOf(e)] = e
		if err := f.print(e); err != nil {
			return err
		}
	}
	return nil
}

// positionOf returns a text that identifies the position of an event.
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

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

// A Follower prints what arrives in a timeline, one event a line.
type Follower struct {
	Server   *remote.Server
	Timeline string
	Type     string // "": of all types
	Newest   int    // events that are printed at first, at most MaxPage; none with a Cursor
	Cursor   string // behind what was printed

	Out    io.Writer
	Errors io.Writer // is told why it connects again

	seen map[string]bool // of the events at first, which may arrive once more
}

// Follow follows until ctx ends. It connects again after a while if the server was there once.
func (f *Follower) Follow(ctx context.Context) error {
	if f.Cursor != "" {
		f.Newest = 0
	}
	f.seen = map[string]bool{}
	began := false
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		before := f.Cursor
		err := f.once(ctx)
		if ctx.Err() != nil {
			return nil
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

// once prints what one answer has.
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
		kind, data, err := f.message(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.Newest > 0 { // from the first message on nothing is missed
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
			if _, err := fmt.Fprintln(f.Out, data); err != nil {
				return err
			}
		}
	}
}

// message reads a message of server-sent events, and its id as the cursor.
func (f *Follower) message(in *bufio.Reader) (kind, data string, err error) {
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
				f.Cursor = cursor
			}
			return kind, data, nil
		}
	}
}

// first prints the newest events, the oldest of them first.
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
		f.seen[positionOf(e)] = true
		if _, err := fmt.Fprintln(f.Out, e); err != nil {
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

// Package client works on the timelines of a running server, for commands: it appends lines
// as events, reads pages, follows timelines, and reads and proposes layouts. Events stay the
// JSON that the server sent.
package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"varve/internal/remote"
)

const root = "/api/v1/timelines"

// pathOf returns the path of a timeline, followed by what.
func pathOf(name, what string) string { return root + "/" + escapeSegment(name) + what }

// escapeSegment escapes a name as one segment of a path, even "." and "..".
func escapeSegment(name string) string {
	return strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
}

// Stats returns the statistics of a timeline.
func Stats(ctx context.Context, s *remote.Server, name string) (text json.RawMessage, err error) {
	return text, s.Read(ctx, http.MethodGet, pathOf(name, "/stats"), nil, &text)
}

// Layout returns the layouts of a timeline over time.
func Layout(ctx context.Context, s *remote.Server, name string) (text json.RawMessage, err error) {
	return text, s.Read(ctx, http.MethodGet, pathOf(name, "/layout"), nil, &text)
}

// Propose proposes another layout of a timeline and returns its layouts over time.
func Propose(ctx context.Context, s *remote.Server, name string, proposal map[string]any) (text json.RawMessage, err error) {
	body, err := json.Marshal(proposal)
	if err != nil {
		return nil, err
	}
	return text, s.Read(ctx, http.MethodPost, pathOf(name, "/layout"), body, &text)
}

// MaxPage is the most events per page.
const MaxPage = 1000

// Timelines yields the description of each timeline.
func Timelines(ctx context.Context, s *remote.Server) iter.Seq2[json.RawMessage, error] {
	return pages(ctx, s, root, url.Values{}, 0)
}

// A Query says which events are read.
type Query struct {
	Timelines []string
	Limit     int        // 0: all
	Filter    url.Values // from, until, order, type: parameters of the server
}

// Events yields events in the order asked for.
func Events(ctx context.Context, s *remote.Server, q Query) iter.Seq2[json.RawMessage, error] {
	parameters, path := url.Values{}, pathOf(q.Timelines[0], "/events")
	maps.Copy(parameters, q.Filter)
	if len(q.Timelines) > 1 {
		parameters["timeline"], path = q.Timelines, root+"/events"
	}
	return pages(ctx, s, path, parameters, q.Limit)
}

// pages yields the items of all pages of an answer, up to a limit; 0 means no limit.
func pages(ctx context.Context, s *remote.Server, path string, parameters url.Values, limit int) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for left := limit; limit == 0 || left > 0; {
			parameters.Set("limit", strconv.Itoa(MaxPage))
			if limit > 0 {
				parameters.Set("limit", strconv.Itoa(min(left, MaxPage)))
			}
			var page struct {
				Events, Timelines []json.RawMessage // one of them
				Cursor            string            // "" after the last timelines
				End               bool              // of the events
			}
			if err := s.Read(ctx, http.MethodGet, path+"?"+parameters.Encode(), nil, &page); err != nil {
				yield(nil, err)
				return
			}
			items := append(page.Events, page.Timelines...)
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if left -= len(items); page.End || page.Cursor == "" {
				return
			}
			parameters.Set("cursor", page.Cursor)
		}
	}
}

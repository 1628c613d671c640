package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"varve/internal/remote"
	"varve/internal/work"
)

// Blocks of lines that are sent together, at most.
const (
	blockLines = 1000
	blockBytes = 1 << 20
	maxLine    = 64 << 20
	blockPause = 100 * time.Millisecond // how often a block that is not full is sent
)

// patience is how long a block is sent again to a server that has answered before, such as
// one that is started again.
const patience = 2 * time.Minute

// An Appender appends lines to a timeline, each as an event.
type Appender struct {
	Server   *remote.Server
	Timeline string

	JSON       bool      // each line is an event; else it is the data of one
	Type       string    // of events whose data is a line
	TimeFormat string    // how their time looks at the beginning of a line; "": they have the time of now
	Run        string    // the beginning of their ids, another one at each run
	Refused    io.Writer // is told of the lines that are refused or late

	Accepted, Rejected int64

	answered bool // by the server, at least once
	unnamed  bool // an event in the block has no id: sent twice, it would be there twice

	number  int64 // of the line
	last    int64 // time of the last event that got the time of now, in microseconds
	block   bytes.Buffer
	numbers []int64 // of the lines in the block
}

// Append sends all lines of in, in blocks; those that are there are not kept waiting for
// more. When ctx ends, it sends the lines that it has read and returns.
func (a *Appender) Append(ctx context.Context, in io.Reader) error {
	texts, failed := make(chan []byte, blockLines), make(chan error, 1)
	go func() { // ends with the input, or with the process
		defer close(texts)
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			texts <- slices.Clone(lines.Bytes())
		}
		failed <- lines.Err()
	}()
	pause := time.NewTimer(blockPause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return a.send(context.WithoutCancel(ctx))
		case <-pause.C:
			pause.Reset(blockPause)
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
		if len(a.numbers) >= blockLines || a.block.Len() >= blockBytes {
			if err := a.send(ctx); err != nil {
				return err
			}
		}
	}
}

// add adds a line to the block.
func (a *Appender) add(text []byte) error {
	a.number++
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if !a.JSON {
		at, err := a.timeOf(string(text))
		if err != nil {
			fmt.Fprintf(a.Refused, "line %d: %v\n", a.number, err)
			a.Rejected++
			return nil
		}
		event := map[string]any{"time_us": at, "id": fmt.Sprintf("%s-%010d", a.Run, a.number), "type": a.Type, "data": strings.ToValidUTF8(string(text), "\uFFFD")}
		if text, err = json.Marshal(event); err != nil {
			return err
		}
	} else if !named(text) {
		a.unnamed = true
	}
	a.numbers = append(a.numbers, a.number)
	a.block.Write(text)
	a.block.WriteByte('\n')
	return nil
}

// named reports whether an event has an id.
func named(event []byte) bool {
	var e struct{ ID string }
	return json.Unmarshal(event, &e) == nil && e.ID != ""
}

// timeOf returns the time of a line in microseconds. Lines that come in one microsecond keep
// their order.
func (a *Appender) timeOf(text string) (int64, error) {
	if a.TimeFormat == "" {
		a.last = max(a.last+1, time.Now().UnixMicro())
		return a.last, nil
	}
	words, format := strings.Fields(text), strings.Fields(a.TimeFormat)
	words = words[:min(len(format), len(words))]
	at, err := time.ParseInLocation(strings.Join(format, " "), strings.Join(words, " "), time.Local)
	if err != nil {
		return 0, fmt.Errorf("the line does not begin with a time such as %s: %w", a.TimeFormat, err)
	}
	return at.UnixMicro(), nil
}

// send sends the block.
func (a *Appender) send(ctx context.Context) error {
	if len(a.numbers) == 0 {
		return nil
	}
	status, text, err := a.exchange(ctx)
	if err != nil {
		return err
	}
	a.answered = true
	var report struct {
		Accepted int64
		Rejected []struct {
			Index int
			Error string
		}
		RejectedMore int64 `json:"rejected_more"`
		Next         *int64
	}
	err = json.Unmarshal(text, &report)
	a.Accepted += report.Accepted
	if err != nil || len(report.Rejected) == 0 && status != http.StatusOK || report.Next != nil {
		return a.Server.Refusal(status, text)
	}
	for _, r := range report.Rejected {
		if r.Index < len(a.numbers) {
			fmt.Fprintf(a.Refused, "line %d: %s\n", a.numbers[r.Index], r.Error)
		}
	}
	a.Rejected += int64(len(report.Rejected)) + report.RejectedMore
	a.block.Reset()
	a.numbers, a.unnamed = a.numbers[:0], false
	return nil
}

// exchange sends the block until the server answers, as long as patience lasts.
func (a *Appender) exchange(ctx context.Context) (status int, text []byte, err error) {
	deadline := time.Now().Add(patience)
	for wait := blockPause; ; wait = min(2*wait, 5*time.Second) {
		status, text, err = a.Server.Exchange(ctx, http.MethodPost, pathOf(a.Timeline, "/events"), "application/x-ndjson", a.block.Bytes())
		failed := err
		if status == http.StatusServiceUnavailable {
			failed = a.Server.Refusal(status, text)
		}
		if failed == nil || !a.answered || a.unnamed || ctx.Err() != nil || time.Now().After(deadline) {
			return status, text, err
		}
		if wait == blockPause {
			fmt.Fprintf(a.Refused, "line %d: not appended yet, sending it again for %v at most: %v\n", a.numbers[0], patience, failed)
		}
		if work.Pause(ctx, wait) != nil {
			return 0, nil, failed
		}
	}
}

package client

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
	"slices"
	"strings"
	"time"

	"varve/internal/clip"
	"varve/internal/remote"
	"varve/internal/work"
)

// Bounds of a block of lines, which are sent together.
const (
	blockLines = 1000
	blockBytes = 1 << 20
	maxLine    = 64 << 20
	blockPause = 100 * time.Millisecond // after this time, a block is sent although it is not full
)

// patience is how long a block is sent again to a server that has answered before, for example
// while it restarts.
const patience = 2 * time.Minute

// An Appender appends lines to a timeline, each as an event.
type Appender struct {
	Server   *remote.Server
	Timeline string

	JSON       bool      // each line is an event; otherwise it is the data of an event
	Type       string    // of events whose data is a line
	TimeFormat string    // layout of the time at the beginning of a line; "": events get the current time
	Run        string    // prefix of event ids, different for each run
	Refused    io.Writer // receives messages about lines that are refused or late

	Accepted, Rejected int64

	answered bool // the server has answered at least once
	unnamed  bool // an event in the block has no id: sent twice, it would be stored twice

	number  int64 // of the current line
	last    int64 // time of the last event that got the current time, in microseconds
	block   bytes.Buffer
	numbers []int64 // of the lines in the block
}

// Append sends all lines of in, in blocks. A block that is not full is sent after blockPause. When
// ctx ends, Append sends the lines that it has read, including a block that is being sent, and
// returns.
func (a *Appender) Append(ctx context.Context, in io.Reader) error {
	sending := context.WithoutCancel(ctx)
	texts, failed := make(chan []byte, blockLines), make(chan error, 1)
	go func() { // ends with the input, or with the process
		defer close(texts)
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, maxLine)
		read := 0
		for ; lines.Scan(); read++ {
			texts <- slices.Clone(lines.Bytes())
		}
		err := lines.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("line %d is longer than %d MiB; it and the lines after it are not appended", read+1, maxLine>>20)
		}
		failed <- err
	}()
	pause := time.NewTimer(blockPause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return a.sendRest(sending, texts)
		case <-pause.C:
			pause.Reset(blockPause)
			if err := a.send(sending); err != nil {
				return err
			}
			continue
		case text, ok := <-texts:
			if !ok {
				return cmp.Or(a.send(sending), <-failed)
			}
			if err := a.add(sending, text); err != nil {
				return err
			}
		}
	}
}

// sendRest sends the lines that were read before an interruption, but none that are read later.
func (a *Appender) sendRest(ctx context.Context, texts <-chan []byte) error {
	for range len(texts) {
		if err := a.add(ctx, <-texts); err != nil {
			return err
		}
	}
	return a.send(ctx)
}

// add adds a line to the block, and sends the block if it is full.
func (a *Appender) add(ctx context.Context, text []byte) error {
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
	if len(a.numbers) < blockLines && a.block.Len() < blockBytes {
		return nil
	}
	return a.send(ctx)
}

// named reports whether an event has an id.
func named(event []byte) bool {
	var e struct{ ID string }
	return json.Unmarshal(event, &e) == nil && e.ID != ""
}

// CheckTimeFormat returns an error if times in a format have no year: the server would reject them all.
func CheckTimeFormat(format string) error {
	format = strings.Join(strings.Fields(format), " ")
	const year = 2009 // not 2006, which in a Go layout means the year
	sample := time.Date(year, 10, 21, 16, 32, 43, 0, time.UTC).Format(format)
	at, err := time.ParseInLocation(format, sample, time.UTC)
	if err != nil {
		return fmt.Errorf("%q is not a time layout of Go: %w", clip.Text(format, 100), err)
	}
	if at.Year() != year {
		return fmt.Errorf(`%q has no year: write 2006 where the year is, as in "2006-01-02 15:04:05"`, clip.Text(format, 100))
	}
	return nil
}

// timeOf returns the time of a line in microseconds. Current times always increase, so that lines
// keep their order.
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

// A report is the server's answer to a block.
type report struct {
	Accepted int64
	Rejected []struct {
		Index int
		Error string
	}
	RejectedMore int64 `json:"rejected_more"`
	Next         *int  // the line from which to send again, if the server has not processed all lines
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
	var r report
	err = json.Unmarshal(text, &r)
	if err != nil || len(r.Rejected) == 0 && status != http.StatusOK || r.Next != nil {
		a.Accepted += r.Accepted
		return a.Server.Refusal(status, text)
	}
	a.settle(len(a.numbers), &r)
	return nil
}

// settle removes the first n lines from the block: they are stored or rejected.
func (a *Appender) settle(n int, r *report) {
	rejected := r.RejectedMore
	for _, line := range r.Rejected {
		if line.Index < n {
			fmt.Fprintf(a.Refused, "line %d: %s\n", a.numbers[line.Index], line.Error)
			rejected++
		}
	}
	a.Rejected += rejected
	a.Accepted += int64(n) - rejected
	for range n {
		a.block.Next(bytes.IndexByte(a.block.Bytes(), '\n') + 1)
	}
	if a.numbers = slices.Delete(a.numbers, 0, n); len(a.numbers) == 0 {
		a.block.Reset()
		a.unnamed = false
	}
}

// exchange sends the block until the server answers, for at most patience. Whenever the server
// accepts part of the block, the time limit starts again for the rest.
func (a *Appender) exchange(ctx context.Context) (status int, text []byte, err error) {
	deadline, told := time.Now().Add(patience), false
	for wait := blockPause; ; wait = min(2*wait, 5*time.Second) {
		status, text, err = a.Server.Exchange(ctx, http.MethodPost, pathOf(a.Timeline, "/events"), "application/x-ndjson", a.block.Bytes())
		failed := err
		if err == nil && status == http.StatusServiceUnavailable {
			failed = a.Server.Refusal(status, text)
			var r report
			if json.Unmarshal(text, &r) == nil && r.Next != nil && 0 < *r.Next && *r.Next < len(a.numbers) && !a.unnamed {
				a.answered = true
				a.settle(*r.Next, &r)
				deadline, wait = time.Now().Add(patience), blockPause
			}
		}
		if failed == nil || !a.answered || a.unnamed || ctx.Err() != nil || time.Now().After(deadline) {
			return status, text, err
		}
		if !told {
			told = true
			fmt.Fprintf(a.Refused, "line %d: not appended yet; will retry for at most %v: %v\n", a.numbers[0], patience, failed)
		}
		if work.Pause(ctx, wait) != nil {
			return 0, nil, failed
		}
	}
}

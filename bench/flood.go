package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A flood is one request that many connections send without a pause.
type flood struct {
	Name  string
	Path  string // the process that floods gets the whole URL here
	Body  string
	Token string
	Crowd int // connections
}

// flooded is how the requests of a flood ended.
type flooded struct{ Answered, Refused float64 }

// floodCommand is the first argument of the process that floods.
const floodCommand = "flood"

// startFlood floods until end is called. The flood comes from a process of its own with
// low priority: real senders are on other machines, and the measurement must show what
// the server does, not how two clients share a processor.
func startFlood(ctx context.Context, f flood) (end func() (flooded, error), err error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", "10", own, floodCommand)
	cmd.SysProcAttr, cmd.Stderr = orphansEnd(), os.Stderr
	var out strings.Builder
	cmd.Stdout = &out
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := in.Write(job); err != nil {
		return nil, err
	}
	return func() (done flooded, err error) {
		in.Close()
		if err := cmd.Wait(); err != nil {
			return done, fmt.Errorf("flood: %w", err)
		}
		return done, json.Unmarshal([]byte(out.String()), &done)
	}, nil
}

// floodUntilEOF is the process that floods: it reads a flood from its input, and sends it
// until the input ends.
func floodUntilEOF() error {
	var f flood
	if err := json.NewDecoder(os.Stdin).Decode(&f); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var answered, refused atomic.Int64
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: f.Crowd}}
	var crowd sync.WaitGroup
	for range f.Crowd {
		crowd.Go(func() {
			for ctx.Err() == nil {
				if f.send(ctx, client) == nil {
					answered.Add(1)
				} else if ctx.Err() == nil {
					refused.Add(1)
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	crowd.Wait()
	return json.NewEncoder(os.Stdout).Encode(flooded{float64(answered.Load()), float64(refused.Load())})
}

// send sends one request and reads the answer as it comes, without keeping it.
func (f flood) send(ctx context.Context, client *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.Path, strings.NewReader(f.Body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+f.Token)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s", answer.Status)
	}
	return nil
}

package main

import (
	"bufio"
	"errors"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestEventPeers: each peer of the stage timelines that is installed keeps events one by one
// and in batches, and shows the newest.
func TestEventPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	for _, target := range []eventTarget{redisTarget{}, postgresTarget{}} {
		t.Run(target.name(), func(t *testing.T) {
			version, err := target.version(t.Context())
			if errors.Is(err, exec.ErrNotFound) {
				t.Skipf("NOT TESTED: %v; scripts/bench-peers.sh installs it", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Log(version)
			s, err := target.start(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer s.account().kill()
			c, err := s.connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at := time.Now().UnixMicro()
			event := func(n int64) sentEvent { return sentEvent{at + n, eventData(n)} }
			for _, events := range [][]sentEvent{{event(1)}, {event(2)}, {event(3), event(4), event(5)}} {
				if err := c.append(t.Context(), events); err != nil {
					t.Fatal(err)
				}
			}
			for limit, want := range map[int]int{2: 2, 100: 5} {
				for range 2 {
					if n, err := c.newest(t.Context(), limit); err != nil || n != want {
						t.Errorf("the newest %d: %d, %v", limit, n, err)
					}
				}
			}
			if cpu, err := s.account().familySeconds(); err != nil || cpu < 0 {
				t.Error(cpu, err)
			}
			if err := errors.Join(c.close(), s.account().stop()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEventData(t *testing.T) {
	for n := range int64(1000) {
		if data := eventData(n); len(data) != eventDataBytes || strings.ContainsAny(string(data), "\t\n\\") {
			t.Fatalf("%d bytes: %s", len(data), data)
		}
	}
	if reflect.DeepEqual(eventData(1), eventData(2)) {
		t.Error("two events have the same data")
	}
}

func TestRedisReply(t *testing.T) {
	for text, want := range map[string]any{
		"+OK\r\n":                       "OK",
		":12\r\n":                       "12",
		"$3\r\na\nb\r\n":                "a\nb",
		"*2\r\n$1\r\na\r\n*1\r\n+b\r\n": []any{"a", []any{"b"}},
	} {
		c := &redisClient{in: bufio.NewReader(strings.NewReader(text))}
		if got, err := c.reply(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %#v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\r\n", "-ERR no\r\n", "?\r\n", "$x\r\n", "$5\r\nab\r\n", "*1\r\n"} {
		c := &redisClient{in: bufio.NewReader(strings.NewReader(text))}
		if got, err := c.reply(); err == nil {
			t.Errorf("%q: %#v and no error", text, got)
		}
	}
}

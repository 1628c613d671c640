package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// redisTarget is Redis with a stream, whose log is synced before each answer.
type redisTarget struct{}

func (redisTarget) name() string { return "redis" }

func (redisTarget) version(ctx context.Context) (string, error) {
	return packageVersion(ctx, "redis-server", "redis-server", "--version")
}

func (redisTarget) start(ctx context.Context, dir string) (eventServer, error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addrs[0])
	s := &redis{addr: addrs[0]}
	s.process, err = startProcess(ctx, "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		return nil, err
	}
	return s, s.awaitReady(usualPatience, func() error {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer c.close()
		_, err = c.(*redisClient).call("PING")
		return err
	})
}

type redis struct {
	*process
	addr string
}

func (s *redis) connect(ctx context.Context) (eventClient, error) {
	conn, err := dial(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	return &redisClient{conn: conn, in: bufio.NewReader(conn), out: bufio.NewWriterSize(conn, 64<<10)}, nil
}

// dial connects. The connection ends with ctx.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		context.AfterFunc(ctx, func() { conn.Close() })
	}
	return conn, err
}

// redisClient speaks RESP2: a command is an array of texts.
type redisClient struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
}

// append sends all commands at once: Redis syncs its log once for all commands that it
// reads together, before it answers any of them.
func (c *redisClient) append(_ context.Context, events []sentEvent) error {
	for _, e := range events {
		c.command("XADD", stream, "*", "time", strconv.FormatInt(e.us, 10), "type", eventType, "data", string(e.data))
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	var failed error
	for range events {
		if _, err := c.reply(); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

func (c *redisClient) newest(_ context.Context, limit int) (int, error) {
	found, err := c.call("XREVRANGE", stream, "+", "-", "COUNT", strconv.Itoa(limit))
	list, _ := found.([]any)
	return len(list), err
}

func (c *redisClient) close() error { return c.conn.Close() }

func (c *redisClient) call(words ...string) (any, error) {
	c.command(words...)
	if err := c.out.Flush(); err != nil {
		return nil, err
	}
	return c.reply()
}

func (c *redisClient) command(words ...string) {
	fmt.Fprintf(c.out, "*%d\r\n", len(words))
	for _, w := range words {
		c.out.WriteString("$" + strconv.Itoa(len(w)) + "\r\n")
		c.out.WriteString(w)
		c.out.WriteString("\r\n")
	}
}

// reply reads a string, a []any, or an error.
func (c *redisClient) reply() (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("redis: an empty reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return nil, errors.New("redis: " + rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil || kind != '$' && kind != '*' {
		return nil, fmt.Errorf("redis: reply %.100q is not understood", line)
	}
	if kind == '$' {
		text := make([]byte, max(n, 0)+2) // -1 stands for no text, which no command here returns
		_, err := io.ReadFull(c.in, text)
		return string(text[:max(n, 0)]), err
	}
	var list []any
	for range n {
		one, err := c.reply()
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

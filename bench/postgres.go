package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// postgresTarget is PostgreSQL as packaged by Debian, with its defaults: fsync
// and synchronous_commit are on. The columns are those of an event of Varve.
type postgresTarget struct{}

const postgresSchema = `CREATE TABLE events (timeline text NOT NULL, time bigint NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, type text NOT NULL, data json NOT NULL);
CREATE INDEX newest ON events (timeline, time DESC)`

func (postgresTarget) name() string { return "postgresql" }

// program finds a program of PostgreSQL, which Debian installs outside the
// PATH.
func (postgresTarget) program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.EvalSymlinks(path)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
	}
	return found[len(found)-1], nil
}

func (t postgresTarget) version(ctx context.Context) (string, error) {
	path, err := t.program("postgres")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	return string(bytes.TrimSpace(out)), err
}

// asPostgres makes a command run as the user postgres if this process is root,
// because PostgreSQL refuses to run as root, and makes that user the owner of dir.
func asPostgres(dir string) (func(*exec.Cmd), error) {
	if os.Getuid() != 0 {
		return func(*exec.Cmd) {}, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	if err := errors.Join(os.Chown(dir, uid, gid), os.Chmod(filepath.Dir(dir), 0o711)); err != nil {
		return nil, err
	}
	return func(c *exec.Cmd) {
		c.Dir = dir
		if c.SysProcAttr == nil {
			c.SysProcAttr = &syscall.SysProcAttr{}
		}
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}, nil
}

func (t postgresTarget) start(ctx context.Context, dir string) (eventServer, error) {
	initdb, err1 := t.program("initdb")
	binary, err2 := t.program("postgres")
	as, err3 := asPostgres(dir)
	addrs, err4 := freeAddrs(1)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	made := exec.CommandContext(ctx, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
	as(made)
	if out, err := made.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	_, port, _ := net.SplitHostPort(addrs[0])
	s := &postgres{addr: addrs[0]}
	s.process, err1 = startWith(ctx, as, binary, "-D", data, "-h", "127.0.0.1", "-p", port, "-k", dir, "-c", "fsync=on", "-c", "synchronous_commit=on")
	if err1 != nil {
		return nil, err1
	}
	var c eventClient
	err := s.awaitReady(usualPatience, func() (err error) {
		c, err = s.connect(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.(*postgresClient).query(postgresSchema); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

type postgres struct {
	*process
	addr string
}

// connect begins a session: https://www.postgresql.org/docs/15/protocol-flow.html
func (s *postgres) connect(ctx context.Context) (eventClient, error) {
	conn, err := dial(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	c := &postgresClient{conn: conn, in: bufio.NewReader(conn), rows: make(map[string]bool)}
	const version = 3 << 16
	hello := append(binary.BigEndian.AppendUint32(nil, version), "user\x00postgres\x00database\x00postgres\x00\x00"...)
	c.out = append(binary.BigEndian.AppendUint32(c.out, uint32(len(hello)+4)), hello...)
	if _, err := c.exchange(); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

type postgresClient struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte          // messages to be sent
	rows map[string]bool // prepared statements
}

// message adds a message: a letter, its length and its parts.
func (c *postgresClient) message(kind byte, parts ...string) {
	n := 4
	for _, p := range parts {
		n += len(p)
	}
	c.out = binary.BigEndian.AppendUint32(append(c.out, kind), uint32(n))
	for _, p := range parts {
		c.out = append(c.out, p...)
	}
}

func number16(n int) string { return string(binary.BigEndian.AppendUint16(nil, uint16(n))) }

func number32(n int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

// send sends the added messages.
func (c *postgresClient) send() error {
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// exchange sends the added messages, and reads until the server is ready for more. It
// returns the number of received rows.
func (c *postgresClient) exchange() (rows int, err error) {
	if err := c.send(); err != nil {
		return 0, err
	}
	var failed error
	for {
		kind, text, err := c.read()
		switch {
		case err != nil:
			return rows, err
		case kind == 'E':
			failed = fmt.Errorf("postgresql: %q", text)
		case kind == 'D':
			rows++
		case kind == 'Z':
			return rows, failed
		}
	}
}

func (c *postgresClient) read() (kind byte, text []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > 1<<30 {
		return 0, nil, fmt.Errorf("postgresql: a message of %d bytes", n)
	}
	text = make([]byte, n-4)
	_, err = io.ReadFull(c.in, text)
	return head[0], text, err
}

func (c *postgresClient) query(text string) error {
	c.message('Q', text, "\x00")
	_, err := c.exchange()
	return err
}

// execute runs a statement, which it prepares the first time, with texts in place of $1, $2 ...
func (c *postgresClient) execute(statement string, values ...string) (rows int, err error) {
	name := statement[:6] + "\x00" // INSERT or SELECT
	if !c.rows[name] {
		c.rows[name] = true
		c.message('P', name, statement, "\x00", number16(0))
	}
	parts := []string{"\x00", name, number16(0), number16(len(values))}
	for _, v := range values {
		parts = append(parts, number32(len(v)), v)
	}
	c.message('B', append(parts, number16(0))...)
	c.message('E', "\x00", number32(0))
	c.message('S')
	return c.exchange()
}

// append inserts one event by a prepared statement, and several by COPY, which is
// fastest.
func (c *postgresClient) append(_ context.Context, events []sentEvent) error {
	if len(events) == 1 {
		e := events[0]
		_, err := c.execute("INSERT INTO events (timeline, time, type, data) VALUES ($1, $2, $3, $4)", stream, strconv.FormatInt(e.us, 10), eventType, string(e.data))
		return err
	}
	c.message('Q', "COPY events (timeline, time, type, data) FROM STDIN", "\x00")
	if err := c.send(); err != nil {
		return err
	}
	if kind, text, err := c.read(); err != nil || kind != 'G' {
		return fmt.Errorf("postgresql: COPY was answered with %c %q, %w", kind, text, err)
	}
	for _, e := range events { // no text needs escapes
		c.message('d', stream, "\t", strconv.FormatInt(e.us, 10), "\t", eventType, "\t", string(e.data), "\n")
	}
	c.message('c')
	_, err := c.exchange()
	return err
}

func (c *postgresClient) newest(_ context.Context, limit int) (int, error) {
	return c.execute("SELECT time, id, type, data FROM events WHERE timeline = $1 ORDER BY time DESC LIMIT $2", stream, strconv.Itoa(limit))
}

func (c *postgresClient) close() error {
	c.message('X')
	return errors.Join(c.send(), c.conn.Close())
}

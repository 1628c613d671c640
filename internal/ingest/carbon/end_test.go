package carbon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestEndsOfPickleConnections: only an end that is not one of the usual is logged.
func TestEndsOfPickleConnections(t *testing.T) {
	for _, c := range []struct {
		err  error
		told bool
	}{
		{io.EOF, false}, {io.ErrUnexpectedEOF, false}, {net.ErrClosed, false}, {os.ErrDeadlineExceeded, false}, {syscall.ECONNRESET, false},
		{errors.New("the network is down"), true},
	} {
		for _, err := range []error{c.err, fmt.Errorf("read: %w", c.err)} {
			var log bytes.Buffer
			p := &pickleConn{h: &pickles{log: slog.New(slog.NewTextHandler(&log, nil))}, remote: "192.0.2.1:99"}
			p.noteEnd(err)
			if got := log.String(); (got != "") != c.told || c.told && (!strings.Contains(got, "192.0.2.1:99") || !strings.Contains(got, c.err.Error())) {
				t.Errorf("%v: %q", err, got)
			}
		}
	}
}

package catalogue

import (
	"fmt"
	"log/slog"
	"strings"
)

// Logger passes the catalogue's messages on. Pebble calls Fatalf when it cannot continue.
type Logger struct {
	Log   *slog.Logger
	Fatal func(reason string) // see the embedded store's Options

	// EndWhenFull makes a full disk fatal too, after some attempts.
	EndWhenFull bool

	// Failed, if not nil, is called when background work has failed and will be tried again.
	Failed func(error)
}

func (l Logger) Infof(format string, args ...any) {
	l.Log.Debug("catalogue: " + fmt.Sprintf(format, args...))
}

// Errorf keeps the error out of the message: an error names another file each time, and
// the log counts lines by their message.
func (l Logger) Errorf(format string, args ...any) {
	if text, ok := strings.CutSuffix(format, ": %v"); ok && len(args) == 1 {
		l.Log.Error("catalogue: "+text, "error", fmt.Sprint(args[0])) // of an error, slog would log Pebble's stack
		return
	}
	l.Log.Error("catalogue: " + fmt.Sprintf(format, args...))
}

func (l Logger) Fatalf(format string, args ...any) {
	reason := "the catalogue cannot be written: " + fmt.Sprintf(format, args...)
	if l.Fatal != nil {
		l.Fatal(reason)
	}
	panic(reason)
}

// Quiet drops the catalogue's messages. Failures that matter are returned as errors too.
type Quiet struct{}

func (Quiet) Infof(string, ...any) {}

func (Quiet) Errorf(string, ...any) {}

func (Quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

package server

import (
	"context"
	"log/slog"
	"strings"
)

// An httpLog writes the lines of net/http to a log. Many lines name the address of a client, with a
// new port each time. If the address were part of the message, package loglimit, which limits lines
// by message, would count each line as a message of its own. A client that keeps breaking
// connections could then use up the messages that loglimit distinguishes, and other faults would not be
// logged.
type httpLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (l httpLog) Handle(ctx context.Context, r slog.Record) error {
	message, detail := beforeAddress(strings.TrimSpace(r.Message))
	cut := slog.NewRecord(r.Time, r.Level, message, r.PC)
	if detail != "" {
		cut.AddAttrs(slog.String("detail", detail))
	}
	return l.Handler.Handle(ctx, cut)
}

// beforeAddress cuts a text off before the first word that is an address with a port.
func beforeAddress(text string) (before, rest string) {
	for i := 0; i < len(text); {
		word, _, _ := strings.Cut(text[i:], " ")
		if strings.Contains(strings.TrimSuffix(word, ":"), ":") {
			return strings.TrimRight(text[:i], " "), text[i:]
		}
		i += len(word) + 1
	}
	return text, ""
}

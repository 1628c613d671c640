package cql

import (
	"context"
	"log/slog"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// driverLog passes the driver's messages on at debug level: the driver reports each lost
// connection and each attempt to reconnect. The session itself logs what matters, once.
type driverLog struct{ log *slog.Logger }

func (d driverLog) say(level, msg string, fields []gocql.LogField) {
	if !d.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := make([]slog.Attr, 0, len(fields)+1)
	attrs = append(attrs, slog.String("driver", level))
	for _, f := range fields {
		attrs = append(attrs, slog.String(f.Name, f.Value.String()))
	}
	d.log.LogAttrs(context.Background(), slog.LevelDebug, msg, attrs...)
}

func (d driverLog) Error(msg string, fields ...gocql.LogField)   { d.say("error", msg, fields) }
func (d driverLog) Warning(msg string, fields ...gocql.LogField) { d.say("warning", msg, fields) }
func (d driverLog) Info(msg string, fields ...gocql.LogField)    { d.say("info", msg, fields) }
func (d driverLog) Debug(msg string, fields ...gocql.LogField)   { d.say("debug", msg, fields) }

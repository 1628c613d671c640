package ingest

import (
	"fmt"
	"net/http"

	"varve/internal/clip"
)

// Reason says in one word why an input was refused. It is a metric label, so
// the set is fixed.
type Reason uint8

const (
	BadCommand    Reason = iota // no such telnet command
	BadSyntax                   // words missing, not JSON, not gzip
	BadName                     // empty metric name
	BadTag                      // tag not name=value, empty, or given twice
	NoTags                      // a protocol that wants tags got none
	BadTime                     // not a time
	BadValue                    // not a value of the type
	NotFinite                   // NaN or an infinity, or too large for a double
	BadType                     // unknown value type
	BadTTL                      // not a time-to-live
	Expired                     // the time-to-live has passed already
	BadUTF8                     // bytes that are not UTF-8
	NameTooLong                 // metric, tag name or tag value
	SeriesTooLong               // all names of a series together
	TooManyTags                 //
	ValueTooLong                // string value
	LineTooLong                 //
	BodyTooLarge                //
	TooSlow                     // a body that arrives below the least rate
	Unterminated                // last line of a connection, without its end
	NewSeriesRate               // new_series_per_second
	MaxSeries                   // max_series
	SeriesMemory                // max_series_memory
	Unavailable                 // the store could not accept it in time
	Refused                     // the store calls it the sender's fault
	OtherProtocol               // HTTP or TLS on the port of telnet
	Forbidden                   // the sender has no right to write it
	reasons
)

var reasonNames = [...]string{
	"bad_command", "bad_syntax", "bad_name", "bad_tag", "no_tags", "bad_time",
	"bad_value", "not_finite", "bad_type", "bad_ttl", "expired", "bad_utf8", "name_too_long", "series_too_long",
	"too_many_tags", "value_too_long", "line_too_long", "body_too_large",
	"too_slow", "unterminated", "new_series_rate", "max_series", "max_series_memory", "unavailable", "refused",
	"other_protocol", "forbidden",
}

var _ [reasons]struct{} = [len(reasonNames)]struct{}{} // each reason has a name

func (r Reason) String() string { return reasonNames[r] }

// A Fault is an input that is refused while the input around it is processed. Text is for the
// sender. Detail is for /admin/rejected and the log; if it is empty, they show Text. Err is the
// *store.LimitError behind it, if any.
type Fault struct {
	Reason Reason
	Text   string
	Detail string
	Err    error
}

const (
	briefBytes   = 100  // of a sender's text inside a message
	messageBytes = 1024 // of a message
)

// Brief cuts a sender's text for use in a message.
func Brief[T string | []byte](s T) string { return clip.Text(s, briefBytes) }

// Message cuts a message that may repeat texts of senders.
func Message(s string) string { return clip.Text(s, messageBytes) }

// detail is the text for /admin/rejected and the log.
func (f *Fault) detail() string {
	if f.Detail != "" {
		return Message(f.Detail)
	}
	return Message(f.Text)
}

func (f *Fault) Error() string { return f.Text }
func (f *Fault) Unwrap() error { return f.Err }

// HTTPStatus is the status of a request that ended with f.
func (f *Fault) HTTPStatus() int {
	if f.Reason == TooSlow {
		return http.StatusRequestTimeout
	}
	return http.StatusBadRequest
}

// ErrLeft ends the parsing of a body if the sender has left and all inputs of the
// last block were refused. Valid samples are stored although the sender has left,
// since many senders close the connection after the last byte.
var ErrLeft = &Fault{Reason: Unterminated, Text: "the sender left, and the last inputs of its body were all refused; the inputs after them were not read"}

// Faultf makes a Fault.
func Faultf(r Reason, format string, args ...any) *Fault {
	return &Fault{Reason: r, Text: fmt.Sprintf(format, args...)}
}

package cql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/store"
)

// A Reason says why a statement was refused.
type Reason string

const (
	BatchTooLarge    Reason = "batch_too_large"   // more than one partition, and above batch_size_fail_threshold
	RequestTooLarge  Reason = "request_too_large" // above the largest frame or mutation
	KeyTooLong       Reason = "key_too_long"      // above 65,535 bytes
	TTLTooLong       Reason = "ttl_too_long"      // beyond 20 years, or beyond 2038 if the server's file format ends there
	ValueTooLarge    Reason = "value_too_large"   // above a limit for values set by the cluster's operator
	GuardrailHit     Reason = "guardrail"         // another limit set by the cluster's operator
	Unauthorized     Reason = "unauthorized"      // the user lacks a right
	NoSuchTable      Reason = "no_such_table"     // table, column or keyspace is missing
	BadSyntax        Reason = "syntax"            // the statement cannot be parsed
	BadConfiguration Reason = "bad_configuration" // options of a table or keyspace are refused
	Invalid          Reason = "invalid"           // any other refusal
	AlreadyExists    Reason = "already_exists"    // from a schema change
	BadArgument      Reason = "bad_argument"      // a value does not fit its column, which is a fault of Varve
)

// A RefusedError means that Cassandra would refuse the same statement again. If the reason is
// the state of the keyspace and not the statement, a *store.UnavailableError contains it.
type RefusedError struct {
	Statement string // name
	Table     string // empty if the statement names no table
	Reason    Reason
	Err       error // the server's error
}

func (e *RefusedError) Error() string {
	s := "cassandra refuses " + e.Statement
	if e.Table != "" {
		s += " on table " + e.Table
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if out := waysOut[e.Reason]; out != "" {
		s += ": " + out
	}
	return s
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Is reports whether target is [store.ErrLacks] and the reason is that the keyspace lacks something.
func (e *RefusedError) Is(target error) bool {
	return target == store.ErrLacks && e.Reason.lacks() != ""
}

// IsRefused reports whether err contains a RefusedError with this reason.
func IsRefused(err error, r Reason) bool {
	refused, ok := errors.AsType[*RefusedError](err)
	return ok && refused.Reason == r
}

// waysOut say what to do about a refusal, for those reasons where the operator can do something.
var waysOut = map[Reason]string{
	BatchTooLarge:   "raise batch_size_fail_threshold in cassandra.yaml",
	RequestTooLarge: "write smaller batches, or raise native_transport_max_frame_size and commitlog_segment_size in cassandra.yaml",
	TTLTooLong:      "use a shorter time-to-live; Cassandra 5.0 with storage_compatibility_mode NONE takes times up to 2106",
	ValueTooLarge:   "write shorter values, or raise this guardrail in cassandra.yaml",
	GuardrailHit:    "lift this guardrail in cassandra.yaml",
	Unauthorized:    "grant the user the right, or use another user",
	NoSuchTable:     "another server may be creating it now; if not, restart a server that may create tables, or create the table by hand",
}

// lacks says what the keyspace lacks, if that is why it refuses a statement; otherwise it is "".
// The same statement may succeed later: another server may be creating the table now, or an
// operator may create it or grant the right.
func (r Reason) lacks() string {
	switch r {
	case NoSuchTable:
		return "the keyspace lacks a table or a column"
	case Unauthorized:
		return "the user of the keyspace lacks a right"
	}
	return ""
}

// A TombstoneError means that a read met more tombstones than Cassandra is willing to skip.
type TombstoneError struct {
	Statement string
	Table     string
	Err       error
}

func (e *TombstoneError) Error() string {
	s := "cassandra gave up " + e.Statement
	if e.Table != "" {
		s += " on table " + e.Table
	}
	return s + ", too many deleted rows (tombstones): read a smaller range, let the table be compacted after gc_grace_seconds, or raise tombstone_failure_threshold in cassandra.yaml: " + e.Err.Error()
}

func (e *TombstoneError) Unwrap() error { return e.Err }

// class groups the outcomes of an attempt.
type class uint8

const (
	classOK class = iota
	classRefused
	classTombstones
	classTimeout     // the coordinator or the client waited too long: also a sign of overload
	classOverloaded  // reported by the node
	classUnavailable // too few replicas alive
	classTransport   // connection lost, no answer
	classNoHost      // no node is connected
	classServer      // an error inside the server
	classDisagreed   // nodes have different schemas
	classCanceled    // by the caller
	classes
)

var classNames = [classes]string{"ok", "refused", "tombstones", "timeout", "overloaded", "unavailable", "transport", "no_host", "server", "disagreement", "canceled"}

func (c class) String() string { return classNames[c] }

// retryable reports whether another attempt may succeed.
func (c class) retryable() bool { return c >= classTimeout && c < classDisagreed }

// congested reports whether fewer concurrent statements may help.
func (c class) congested() bool { return c == classTimeout || c == classOverloaded }

// A waitError means that the caller gave up while the statement waited for others to end.
type waitError struct{ err error }

func (e *waitError) Error() string { return "waiting for statements before it: " + e.err.Error() }
func (e *waitError) Unwrap() error { return e.err }

var (
	errAttemptTimeout = errors.New("no answer in time")
	errStalled        = errors.New("the node answers nothing at present")
	errWaits          = errors.New("the node seems to be waiting for a node that is down")
	errNoSession      = errors.New("not connected")
)

// classify returns the class of err, the error of one attempt. ctx is the caller's context.
func classify(ctx context.Context, err error) class {
	if err == nil {
		return classOK
	}
	switch {
	case errors.As(err, new(*outage)):
		return classNoHost
	case errors.Is(err, errAttemptTimeout), errors.Is(err, errStalled), errors.Is(err, errWaits):
		return classTimeout
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ctx.Err())) {
		return classCanceled
	}
	switch {
	case errors.Is(err, errNoSession), errors.Is(err, gocql.ErrNoConnections), errors.Is(err, gocql.ErrSessionClosed):
		return classNoHost
	case errors.Is(err, gocql.ErrTimeoutNoResponse), errors.Is(err, context.DeadlineExceeded):
		return classTimeout
	}
	if errors.As(err, new(*disagreement)) {
		return classDisagreed
	}
	request, ok := errors.AsType[gocql.RequestError](err)
	if !ok {
		if marshalFault(err) {
			return classRefused
		}
		return classTransport
	}
	switch request.Code() {
	case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig,
		gocql.ErrCodeAlreadyExists, gocql.ErrCodeProtocol, gocql.ErrCodeFunctionFailure:
		return classRefused
	case gocql.ErrCodeReadFailure:
		if tombstones(err) {
			return classTombstones
		}
		return classServer
	case gocql.ErrCodeUnavailable:
		return classUnavailable
	case gocql.ErrCodeOverloaded:
		return classOverloaded
	case gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteTimeout, gocql.ErrCodeCASWriteUnknown:
		return classTimeout
	}
	if request.Code() == gocql.ErrCodeServer && finder(request.Message())("oversized mutation") {
		return classRefused // it exceeds max_mutation_size, which is permanent
	}
	return classServer // bootstrapping, truncate, write failure, unprepared, credentials, internal
}

// isAnswer reports whether the outcome of a statement is the answer of a node.
func isAnswer(err error) bool { return err == nil || errors.As(err, new(gocql.RequestError)) }

// finder returns a function that reports whether a text has one of several parts, in any case.
func finder(text string) func(parts ...string) bool {
	text = strings.ToLower(text)
	return func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
	}
}

// A misfit error means that a value that was bound or scanned has an unexpected type or form.
type misfit struct{ text string }

func (e *misfit) Error() string { return e.text }

// marshalFault reports whether the driver could not bind or scan a value. Some of its errors
// for this have no type and are recognised by their prefix. A word in the middle of a text is
// not sufficient: "unmarshal" also occurs in TLS errors.
func marshalFault(err error) bool {
	if errors.As(err, new(gocql.MarshalError)) || errors.As(err, new(gocql.UnmarshalError)) || errors.As(err, new(*misfit)) ||
		errors.Is(err, gocql.ErrUnsupported) || errors.Is(err, gocql.ErrTooManyStmts) {
		return true
	}
	text := err.Error()
	return strings.HasPrefix(text, "gocql: expected ") || strings.HasPrefix(text, "gocql: batch statement ") ||
		strings.HasPrefix(text, "gocql: not enough columns to scan") || strings.HasPrefix(text, "can not marshal ")
}

// tombstones reports whether a replica gave up a read because of too many tombstones.
func tombstones(err error) bool {
	const readTooManyTombstones = 1
	failure, ok := errors.AsType[*gocql.RequestErrReadFailure](err)
	return ok && (slices.Contains(slices.Collect(maps.Values(failure.ErrorMap)), readTooManyTombstones) || finder(failure.Message())("tombstone"))
}

// reason determines why a statement was refused. Most refusals have the same type and differ
// only in their text.
func reason(err error) Reason {
	request, ok := errors.AsType[gocql.RequestError](err)
	if !ok {
		return BadArgument
	}
	has := finder(request.Message())
	switch request.Code() {
	case gocql.ErrCodeUnauthorized:
		return Unauthorized
	case gocql.ErrCodeSyntax:
		return BadSyntax
	case gocql.ErrCodeConfig:
		return BadConfiguration
	case gocql.ErrCodeAlreadyExists:
		return AlreadyExists
	}
	switch {
	case has("guardrail") && has("value_size", "collection_size", "items_per_collection"):
		return ValueTooLarge
	case has("guardrail"):
		return GuardrailHit
	case has("batch too large"):
		return BatchTooLarge
	case has("request is too big", "exceeds allowed maximum", "mutation of", "oversized mutation", "too large for the maximum size", "max_mutation_size"):
		return RequestTooLarge
	case has("key length of", "longer than maximum of 65535", "exceeds the maximum supported size"):
		return KeyTooLong
	case has("ttl is too large", "a ttl must be", "maximum supported expiration date"):
		return TTLTooLong
	case has("unconfigured table", "does not exist", "undefined column", "unknown identifier", "unknown column"):
		return NoSuchTable
	}
	return Invalid
}

// told converts the error of the last attempt to the error for the caller.
func (s *Session) told(ctx context.Context, st *Statement, err error, c class, attempts int) error {
	switch c {
	case classOK:
		return nil
	case classCanceled:
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("%s: %w", st.Name, cause)
		}
		return fmt.Errorf("%s: %w", st.Name, err)
	case classRefused:
		refused := &RefusedError{Statement: st.Name, Table: st.table(), Reason: reason(err), Err: err}
		if lacks := refused.Reason.lacks(); lacks != "" {
			return &store.UnavailableError{Reason: lacks, Err: refused}
		}
		return refused
	case classTombstones:
		return &TombstoneError{Statement: st.Name, Table: st.table(), Err: err}
	}
	what, away := fmt.Sprintf("cassandra: %s", st.Name), false
	if t := st.table(); t != "" {
		what += " on table " + t
	}
	if attempts > 1 {
		what += fmt.Sprintf(" failed %d times", attempts)
	} else {
		what += " failed"
	}
	switch c {
	case classNoHost, classTransport:
		if o, ok := errors.AsType[*outage](err); ok {
			what, err, away = what+": "+o.Error(), nil, true
		} else {
			what += ": no node answers"
		}
		what += "; check that the nodes run and that cassandra.hosts names some of them"
	case classUnavailable:
		what += ": too few replicas are alive for the requested consistency; start the missing nodes or lower the consistency"
	case classTimeout:
		what += ": no answer in time; the cluster is overloaded or nodes hang"
	case classOverloaded:
		what += ": the cluster is overloaded"
	case classDisagreed:
		what += ": the nodes do not agree about the schema; see nodetool describecluster and try again"
	}
	if away {
		return awayError{&store.UnavailableError{Reason: what}}
	}
	return &store.UnavailableError{Reason: what, Err: err}
}

// ErrAway is in the errors of statements that were given up because no node answers.
var ErrAway error = awayError{&store.UnavailableError{Reason: "cassandra: no node answers"}}

type awayError struct{ *store.UnavailableError }

func (e awayError) Unwrap() error        { return e.UnavailableError }
func (e awayError) Is(target error) bool { return target == ErrAway }

package cql

import (
	"errors"
	"fmt"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// TestMisfits: only what the driver or a Scan says of a value counts as a value
// that does not fit; a connection that cannot be made has often to do with
// marshalling too.
func TestMisfits(t *testing.T) {
	for _, c := range []struct {
		err  error
		want class
	}{
		{gocql.MarshalError("can not marshal string into int"), classRefused},
		{fmt.Errorf("bind: %w", gocql.UnmarshalError("x")), classRefused},
		{errors.New("gocql: expected 3 values send got 2"), classRefused},
		{errors.New("gocql: batch statement 1 expected 3 values send got 2"), classRefused},
		{gocql.ErrTooManyStmts, classRefused},
		{errors.New("tls: failed to unmarshal elliptic curve point"), classTransport},
		{errors.New("read tcp: gocql: expected nothing"), classTransport},
		{errors.New("dial node marshal.example.org: connection refused"), classTransport},
	} {
		if got := classify(t.Context(), c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"varve/internal/cassandra/cql"
)

// ErrChanged means that the value to be replaced was changed by another process meanwhile. Read
// it again before deciding what to do.
var ErrChanged = errors.New("the value was changed by another process meanwhile")

// Table is the definition of the table of registers.
var Table = cql.Definition{Name: "varve_registers", Columns: []cql.Column{
	cql.KeyColumn("space", "text"), cql.OrderColumn("name", "text"), cql.PlainColumn("version", "bigint"),
	cql.PlainColumn("nonce", "text"), cql.PlainColumn("value", "blob"), cql.PlainColumn("written", "timestamp"), cql.PlainColumn("intent", "text")}}

// Page is the page of the documentation that describes the table.
const Page = "docs/formats/cluster-cassandra.md"

var (
	readRegister = &cql.Statement{Name: "read_register", Level: cql.Serial,
		Text: "SELECT version, nonce, value, written FROM varve_registers WHERE space = ? AND name = ?"}
	swapRegister = &cql.Statement{Name: "swap_register",
		Text: "UPDATE varve_registers USING TTL ? SET version = ?, nonce = ?, value = ?, written = toTimestamp(now()) WHERE space = ? AND name = ? IF version = ? AND nonce = ?"}
	swapIntended   = &cql.Statement{Name: "swap_intended_register", Text: swapRegister.Text + " AND intent = ?"}
	intendRegister = &cql.Statement{Name: "intend_register", Text: "UPDATE varve_registers USING TTL ? SET intent = ? WHERE space = ? AND name = ? IF version = ? AND nonce = ?"}
	removeRegister = &cql.Statement{Name: "remove_register", Text: "DELETE FROM varve_registers WHERE space = ? AND name = ? IF version = ? AND nonce = ?"}
)

// A Value is the content of a register. The zero Value means that the register does not exist.
type Value struct {
	Version int64  // larger than that of any earlier value; 0 if there is none
	Data    []byte // read-only
	Written time.Time

	nonce string
}

// Registers are versioned values in the keyspace of a session.
type Registers struct {
	session *cql.Session
	now     func() time.Time
}

// OpenRegisters creates the table if it is missing and create is set.
func OpenRegisters(ctx context.Context, session *cql.Session, create bool) (*Registers, error) {
	if err := session.MakeTables(ctx, create, Page, Table); err != nil {
		return nil, err
	}
	return &Registers{session: session, now: time.Now}, nil
}

// Get reads a register. It sees every Swap that has returned.
func (r *Registers) Get(ctx context.Context, space, name string) (Value, error) {
	var v Value
	var written cql.Millis
	_, err := r.session.One(ctx, readRegister, []any{space, name}, &v.Version, &v.nonce, &v.Data, &written)
	v.Written = time.UnixMilli(written.MS)
	return v, err
}

// Swap replaces old, which Get has returned, by data. It returns the new value, without
// the time at which it was written. The value expires after keep; 0 means never. ErrChanged
// means that the register holds another value. After any other error the new value may be
// stored, or may still be stored later. Get then returns it; if Get does not, it is
// never stored.
func (r *Registers) Swap(ctx context.Context, space, name string, old Value, data []byte, keep time.Duration) (Value, error) {
	return r.send(ctx, swapRegister, change{space, name, old, r.next(old), data, keep})
}

// next returns the version after that of old. The first version is the time in microseconds, so
// that a register that expired and is created again does not restart from 1.
func (r *Registers) next(old Value) int64 {
	if old.Version == 0 {
		return r.now().UnixMicro()
	}
	return old.Version + 1
}

// A change replaces the old value of a register.
type change struct {
	space, name string
	old         Value
	version     int64 // of the new value
	data        []byte
	keep        time.Duration
}

// send executes a statement that applies c, with the arguments of further conditions.
func (r *Registers) send(ctx context.Context, st *cql.Statement, c change, further ...any) (Value, error) {
	v := Value{Version: c.version, Data: c.data, nonce: rand.Text()}
	var oldVersion, oldNonce any // null if there is no old value
	if c.old.Version != 0 {
		oldVersion, oldNonce = c.old.Version, c.old.nonce
	}
	args := append([]any{int(c.keep / time.Second), v.Version, v.nonce, v.Data, c.space, c.name, oldVersion, oldNonce}, further...)
	applied, there, err := r.session.Swap(ctx, st, args...)
	if err != nil {
		return Value{}, fmt.Errorf("change %s of %s: %w", c.name, c.space, err)
	}
	if !applied && there["nonce"] != v.nonce { // an attempt that failed may have been applied
		return Value{}, fmt.Errorf("change %s of %s: %w", c.name, c.space, ErrChanged)
	}
	return v, nil
}

// SwapInTime is like Swap, but for an existing value only, and is never applied after the
// deadline of ctx, even if this process is stopped in between: it first writes an intent that
// expires in Cassandra before the deadline, and the value is replaced only while the intent
// exists. The deadline must be at least 2 s away. ErrChanged can also mean that the intent has
// expired.
func (r *Registers) SwapInTime(ctx context.Context, space, name string, old Value, data []byte, keep time.Duration) (Value, error) {
	deadline, ok := ctx.Deadline()
	left := time.Until(deadline)
	if !ok || left < 2*time.Second || old.Version == 0 {
		return Value{}, fmt.Errorf("change %s of %s: the deadline is too near, or there is none", name, space)
	}
	intent, err := r.intend(ctx, space, name, old, left/2)
	if err != nil {
		return Value{}, err
	}
	if time.Until(deadline) < left/2 {
		return Value{}, fmt.Errorf("change %s of %s: %w", name, space, context.DeadlineExceeded)
	}
	return r.send(ctx, swapIntended, change{space, name, old, r.next(old), data, keep}, intent)
}

// intend writes an intent that expires after life at the latest.
func (r *Registers) intend(ctx context.Context, space, name string, old Value, life time.Duration) (intent string, err error) {
	intent = rand.Text()
	applied, _, err := r.session.Swap(ctx, intendRegister, int(life/time.Second), intent, space, name, old.Version, old.nonce)
	if err == nil && !applied {
		err = ErrChanged
	}
	if err != nil {
		return "", fmt.Errorf("change %s of %s: %w", name, space, err)
	}
	return intent, nil
}

// Remove removes old, which Get has returned. Its errors are those of Swap. Removing a value
// that no longer exists is not an error.
func (r *Registers) Remove(ctx context.Context, space, name string, old Value) error {
	applied, there, err := r.session.Swap(ctx, removeRegister, space, name, old.Version, old.nonce)
	if err == nil && !applied && len(there) > 0 {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("remove %s of %s: %w", name, space, err)
	}
	return nil
}

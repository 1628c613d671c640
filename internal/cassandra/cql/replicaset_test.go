package cql

import (
	"encoding/hex"
	"testing"
)

// TestPartitionKey: the bytes that Cassandra hashes, as `SELECT token(...)` and
// nodetool getendpoints take them.
func TestPartitionKey(t *testing.T) {
	for _, test := range []struct {
		args []any
		want string
	}{
		{[]any{[]byte("key")}, "6b6579"},
		{[]any{[][]byte{[]byte("key"), []byte("of the same replicas")}}, "6b6579"},
		{[]any{"m", int64(1500508800000), "host", "a", 3}, "0001" + "6d" + "00" + "0008" + "0000015d5d4b4400" + "00" + "0004" + "686f7374" + "00" + "0001" + "61" + "00" + "0004" + "00000003" + "00"},
	} {
		if got := hex.EncodeToString(partitionKey(test.args)); got != test.want {
			t.Errorf("%v: %s, want %s", test.args, got, test.want)
		}
	}
}

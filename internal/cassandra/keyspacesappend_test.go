package cassandra

import (
	"net/netip"
	"testing"

	"varve/internal/store"
)

// An epoch is an appender that has only that.
type epoch struct{ store.Appender }

func (epoch) Epoch() uint64 { return 1 }

// TestSenderOfParts: the parts of a batch have its sender, so that senders take turns in each keyspace.
func TestSenderOfParts(t *testing.T) {
	k := &Keyspaces{stores: []*Store{{Appender: epoch{}}, {Appender: epoch{}}}}
	for _, sender := range []string{"192.0.2.1/32", "192.0.2.2/32"} { // the second takes the parts of the first
		b := store.Batch{Sender: netip.MustParsePrefix(sender)}
		b.Reset(k.Epoch())
		b.AddLong(0, 1, 1, 0)
		b.AddLong(1, 1, 1, 0)
		p := k.parts.take(len(k.stores))
		if !k.divide(p, &b) {
			t.Fatal("the batch is of another epoch")
		}
		for i := range p.of {
			if got := p.of[i].Sender.String(); got != sender || len(p.of[i].Samples) != 1 {
				t.Errorf("part %d has %d samples of %s, want 1 of %s", i, len(p.of[i].Samples), got, sender)
			}
		}
		k.parts.put(p)
	}
}

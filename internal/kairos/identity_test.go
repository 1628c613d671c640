package kairos

import (
	"bytes"
	"testing"
)

// TestIdentity: requests whose answers may differ have different identities, also if their times
// are the same digits. Members in another order, blanks and cache_time are no difference.
func TestIdentity(t *testing.T) {
	of := func(text string) identity {
		t.Helper()
		top, err := parseValue(text)
		if err != nil {
			t.Fatal(err)
		}
		before := top.appendJSON(nil, false)
		id := identityOf(top, &top.member("metrics").items[0])
		if after := top.appendJSON(nil, false); !bytes.Equal(before, after) {
			t.Errorf("the request %s became %s", before, after)
		}
		return id
	}
	metrics := `"metrics":[{"tags":{"host":["a"]},"name":"m"}]}`
	seen := map[identity]string{}
	for _, times := range []string{
		`"start_absolute":1,"end_absolute":23`, `"start_absolute":12,"end_absolute":3`, `"start_absolute":123`, `"end_absolute":123`,
		`"start_absolute":123,"time_zone":"UTC"`, `"start_relative":{"value":1,"unit":"days"}`, `"end_relative":{"value":1,"unit":"days"}`,
	} {
		id := of("{" + times + "," + metrics)
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s are the same", times, other)
		}
		seen[id] = times
	}
	alike := of(`{"cache_time":7,"metrics":[{"name":"m", "tags":{"host":["a"]}}],"end_absolute":23,"start_absolute":1}`)
	if seen[alike] != `"start_absolute":1,"end_absolute":23` {
		t.Error("the same request in another order has another identity")
	}
}

package kairos

import (
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"varve/internal/query"
)

// A request with too many or too costly parts is refused before it takes much
// memory. The message names the limit.
func TestCostlyRequestsAreRefused(t *testing.T) {
	a := New(nil, idleEngine(), DefaultConfig(), "", time.Now)
	metric := func(members string) string {
		return `{"start_absolute":1,"metrics":[{"name":"m",` + members + `}]}`
	}
	costly := strings.Repeat(`(?:a?){1000}`, 20)
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf(`"regex:(?:ab?){400}%d"`, i)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"a costly pattern":   {metric(`"tags":{"h":"regex:` + costly + `"}`), "more than 5000"},
		"many patterns":      {metric(`"tags":{"h":[` + strings.Join(many, ",") + `]}`), "more than 50000"},
		"many short ones":    {metric(`"tags":{"h":["regex:a"` + strings.Repeat(`,"regex:a"`, 49_000) + `]}`), "more than 50000"},
		"many aggregators":   {metric(`"aggregators":[` + strings.Repeat(`{"name":"diff"},`, 201) + `{"name":"diff"}]`), "more than 200"},
		"many group-bys":     {metric(`"group_by":[` + strings.Repeat(`{"name":"value","range_size":1},`, 201) + `{"name":"diff"}]`), "more than 200"},
		"many group-by tags": {metric(`"group_by":[{"name":"tag","tags":[` + strings.Repeat(`"a",`, 1000) + `"b"]}]`), "more than 1000"},
		"many bins":          {metric(`"group_by":[{"name":"bin","bins":[` + strings.Repeat(`1,`, 10_000) + `2]}]`), "more than 10000"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := a.ParseQuery([]byte(tt.text))
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
			t.Errorf("%s took %d bytes", name, took)
		}
	}
}

// Members of large objects are looked up in constant time. Of repeated members the
// last one counts, and members keep their order.
func TestObjectsOfManyMembers(t *testing.T) {
	var text strings.Builder
	text.WriteByte('{')
	const n = 100_000
	for i := range n {
		fmt.Fprintf(&text, `"m%d":%d,`, i%(n-1), i)
	}
	text.WriteString(`"last":0}`)
	v, err := parseValue(text.String())
	if err != nil {
		t.Fatal(err)
	}
	if len(v.members) != n || v.places == nil || v.repeated == nil || *v.repeated != "m0" {
		t.Errorf("%d members, repeated %v", len(v.members), v.repeated)
	}
	if m := v.member("m0"); m == nil || m.text != fmt.Sprint(n-1) || v.members[0].name != "m0" {
		t.Errorf("m0 is %v", m)
	}
	if v.member("m") != nil || v.member("last") == nil || v.members[n-1].name != "last" {
		t.Error("members are not found by their names")
	}
}

// Requests for names have a hash of their own, by which one is killed without
// the others.
func TestHashesOfNameRequests(t *testing.T) {
	hashes := map[string]string{}
	for _, text := range []string{"/api/v1/tagvalues?metric=a&filter=x=1", "/api/v1/metricnames?start=5", "", "5"} {
		hash := hashOf(&query.Running{Text: text})
		if other, ok := hashes[hash]; ok || len(hash) != 32 {
			t.Errorf("%q and %q have the hash %s", text, other, hash)
		}
		hashes[hash] = text
	}
}

// Lists and objects of all sizes, inside each other and in one request after the
// other, keep what was written.
func TestValuesDoNotShareRoom(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"first":[1,`)
	for i := range 2 * keptMembers {
		fmt.Fprintf(&text, `{"n":[%d,[%d]]},`, i, -i)
	}
	text.WriteString(`2],"large":{`)
	for i := range 2 * keptMembers {
		fmt.Fprintf(&text, `"m%d":{"v":%d},`, i, i)
	}
	text.WriteString(`"end":3},"last":[4,5]}`)
	var kept []*value
	for range 3 {
		v, err := parseValue(text.String())
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, v)
	}
	for _, v := range kept {
		if got := string(v.appendJSON(nil, false)); got != text.String() {
			t.Fatalf("%.200s... was read as %.200s...", text.String(), got)
		}
	}
}

// No answer repeats a long text of a client.
func TestMessagesRepeatLittle(t *testing.T) {
	s := startServer(t)
	long := strings.Repeat("x", 5000)
	for _, request := range []string{
		"GET /api/v1/features/" + long, "GET /api/v1/metricnames?limit=" + long, "GET /api/v1/metricnames?start=" + long,
		"GET /api/v1/metricnames?filter=" + long, "GET /api/v1/metricnames?" + long + "=1", "GET /api/v1/tagvalues?pattern=" + long + "(",
		"GET /api/v1/metadata/" + long, "DELETE /api/v1/metric/x?" + long, "POST /api/v1/metadata/s/k/" + long,
		"GET " + queryPath + "?partial=" + long + "&query=" + url.QueryEscape(`{"start_absolute":0,"metrics":[{"name":"m"}]}`),
	} {
		method, path, _ := strings.Cut(request, " ")
		if resp, body := s.do(t, method, path, ""); len(body) > 1000 {
			t.Errorf("%.60s: %s, %d bytes: %.300s", request, resp.Status, len(body), body)
		}
	}
}

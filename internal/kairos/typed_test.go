package kairos

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"varve/internal/datatype"
	"varve/internal/model"
	"varve/internal/store"
)

// Every registered type can be written and read as its example says, in a group of its
// own, and numeric aggregators ignore it.
func TestDataTypes(t *testing.T) {
	s := startServer(t)
	for _, typ := range datatype.All() {
		for _, body := range []string{
			fmt.Sprintf(`{"name":"%s.1","tags":{"a":"b"},"datapoints":[[1,%s,"%s"],[2,5]]}`, typ.Name, typ.Example, typ.Name),
			fmt.Sprintf(`{"name":"%s.2","tags":{"a":"b"},"type":"%s","timestamp":1,"value":%s}`, typ.Name, typ.Name, typ.Example),
		} {
			if resp, answer := s.do(t, "POST", "/api/v1/datapoints", body); resp.StatusCode != 204 {
				t.Fatalf("%s: %d %s", body, resp.StatusCode, answer)
			}
		}
		for _, ask := range []string{
			`{"name":"%s.1"}`, `{"name":"%s.2"}`,
			`{"name":"%s.1","aggregators":[{"name":"sum"}]}`,
			`{"name":"%s.1","order":"desc","aggregators":[{"name":"first","sampling":{"value":1,"unit":"hours"}}]}`,
			`{"name":"%s.1","group_by":[{"name":"tag","tags":["a"]}],"aggregators":[{"name":"save_as","metric_name":"saved"}]}`,
			`{"name":"saved"}`,
		} {
			if strings.Contains(ask, "%s") {
				ask = fmt.Sprintf(ask, typ.Name)
			}
			_, answer := s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[`+ask+`]}`)
			var got struct {
				Queries []struct {
					Results []struct {
						GroupBy []struct{ Name, Type string } `json:"group_by"`
						Values  [][2]json.RawMessage
					}
				}
			}
			if err := json.Unmarshal([]byte(answer), &got); err != nil {
				t.Fatalf("%v: %s", err, answer)
			}
			found := false
			for _, r := range got.Queries[0].Results {
				found = found || len(r.Values) == 1 && string(r.Values[0][1]) == typ.Example
			}
			if !found {
				t.Errorf("%s: %s, want %s", ask, answer, typ.Example)
			}
		}
		_, answer := s.do(t, "POST", queryPath, fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":"%s.1","aggregators":[{"name":"count","sampling":{"value":1,"unit":"hours"}}]}]}`, typ.Name))
		if strings.Count(answer, "[[1,1]]") != 1 {
			t.Errorf("count: %s", answer)
		}
	}
}

// A newly registered type can be queried without further changes.
func TestAddedDataType(t *testing.T) {
	s := startServer(t)
	added := datatype.Type{
		Name: "point", Stored: "acme_point",
		Append: func(dst, value []byte, number func([]byte, float64) []byte) ([]byte, error) {
			dst = number(append(dst, `{"x":`...), float64(value[0]))
			return append(dst, '}'), nil
		},
	}
	ref, err := s.store.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("h", "a"), Type: added.Stored})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.store.Epoch())
	b.AddBytes(ref, 1, []byte{7}, 0)
	if err := s.store.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	const q = `{"start_absolute":0,"metrics":[{"name":"m"}]}`
	if _, answer := s.do(t, "POST", queryPath, q); !strings.Contains(answer, `"type":"acme_point"}],"tags":{"h":["a"]},"values":[[1,"Bw=="]]`) {
		t.Errorf("not registered: %s", answer)
	}
	s.api.types = append(datatype.All(), added)
	if _, answer := s.do(t, "POST", queryPath, q); !strings.Contains(answer, `"values":[[1,{"x":7}]]`) {
		t.Errorf("registered: %s", answer)
	}
}

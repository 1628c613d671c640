package read

import (
	"encoding/binary"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"

	"varve/internal/cassandra/kairosrows/schema"
)

// What KairosDB wrote, before and after 0.9.4, is shown in text that people can
// read.
func TestInspectLegacy(t *testing.T) {
	b := newReadBench(t, readConfig(), legacyKeyspace(t))
	const row = 1_500_508_800_000
	host := model.MustTags("host", "a")
	old := rowtime.Key{Metric: "load", RowTimeMS: row, Type: rowtime.TypeLegacy, Tags: host}
	cell := func(k rowtime.Key, column uint32, value string) {
		b.Exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", keyBytes(t, k), binary.BigEndian.AppendUint32(nil, column), []byte(value))
	}
	cell(old, 1000<<1, "\x01\x00")
	cell(old, 2000<<1|1, "\x01\x3f\xc0\x00\x00")
	b.Exec("INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)", []byte("load"), keyBytes(t, old), []byte{})
	typed := rowtime.Key{Metric: "load", RowTimeMS: row, Type: model.TypeString, Tags: host}
	cell(typed, 3000<<1, "\x00\x02hi")
	b.Exec("INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())",
		"load", schema.DataPoints, int64(row), string(typed.Type), map[string]string{"host": "a"})
	b.Exec("INSERT INTO row_key_time_index (metric, table_name, row_time, value) VALUES (?, ?, ?, '')", "load", schema.DataPoints, int64(row))
	b.Exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), "load", []byte{})
	b.Exec("INSERT INTO service_index (service, service_key, key, value) VALUES ('_Hosts', 'Active', 'guid', 'name')")

	for _, test := range []struct {
		name  string
		show  func(in *Inspector) error
		wants []string
	}{
		{"overview", func(in *Inspector) error { return in.Overview(t.Context()) }, []string{"unit LEGACY, width 1814400000", "row_key_index"}},
		{"metrics", func(in *Inspector) error { return in.Metrics(t.Context(), "lo") }, []string{"load\t1 row times\t1500508800000 (2017-07-20T00:00:00.000Z)"}},
		{"rows", func(in *Inspector) error {
			return in.Rows(t.Context(), store.Selection{Metric: "load", Range: model.AllTime}, 5)
		}, []string{", legacy, longs", ", legacy, doubles", "256 (0x0100)", "1.5 (0x013fc00000)", `"hi" (0x00026869)`, "0x00000fa1  1500508802000 "}},
		{"no cells", func(in *Inspector) error {
			return in.Rows(t.Context(), store.Selection{Metric: "load", Range: model.AllTime}, 0)
		}, []string{"key 0x6c6f616400"}},
		{"index", func(in *Inspector) error { return in.Index(t.Context(), "load", model.AllTime) },
			[]string{"row_key_index: 1 keys", "type kairos_legacy", "row_keys         1 map[kairos_string:1]", "covered          not yet"}},
		{"services", func(in *Inspector) error { return in.Services(t.Context(), "_Hosts") }, []string{"_Hosts / Active", "  guid = name  (written "}},
		{"service keys", func(in *Inspector) error { return in.Services(t.Context(), "") }, []string{"_Hosts / Active"}},
	} {
		var out strings.Builder
		if err := test.show(NewInspector(b.reader, &out)); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		for _, want := range test.wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", test.name, want, out.String())
			}
		}
	}
}

package read

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

func TestSliceOf(t *testing.T) {
	ms := rowtime.Default
	seconds := rowtime.Spec{Unit: rowtime.Seconds, Width: 1814400}
	legacy := rowtime.Spec{Unit: rowtime.Legacy, Width: rowtime.DefaultWidth}
	const row = 1_500_508_800_000
	inside := model.TimeRange{StartMS: row + 1500, EndMS: row + 2500}
	for _, test := range []struct {
		name string
		spec rowtime.Spec
		row  Row
		r    model.TimeRange
		want slice
	}{
		{name: "milliseconds", spec: ms, row: Row{TimeMS: row}, r: inside, want: slice{from: 1500, to: 2500, within: inside}},
		{name: "all of a row", spec: ms, row: Row{TimeMS: row}, r: model.AllTime, want: slice{from: 0, to: rowtime.DefaultWidth, within: model.AllTime}},
		{name: "before the row", spec: ms, row: Row{TimeMS: row}, r: model.TimeRange{StartMS: 0, EndMS: row - 1}, want: slice{empty: true}},
		{name: "a typed row of a legacy keyspace", spec: legacy, row: Row{TimeMS: row}, r: inside, want: slice{from: 3000, to: 5000, within: inside}},
		{name: "a legacy row", spec: legacy, row: Row{row, LegacyDouble}, r: inside, want: slice{from: 3000, to: 5001, within: inside}},
		// KairosDB cuts the start off to whole seconds of the row.
		{name: "seconds", spec: seconds, row: Row{TimeMS: seconds.RowTime(row)}, r: inside,
			want: slice{from: uint32((row + 1500 - seconds.RowTime(row)) / 1000), to: uint32((row + 2500 - seconds.RowTime(row)) / 1000),
				within: model.TimeRange{StartMS: seconds.RowTime(row) + (row+1500-seconds.RowTime(row))/1000*1000, EndMS: row + 2500}}},
		// Rows that KairosDB does not look at are read exactly.
		{name: "seconds, below the rows of KairosDB", spec: seconds, row: Row{TimeMS: -1_816_214_398}, r: model.TimeRange{StartMS: -1_814_400_000, EndMS: 0},
			want: slice{from: 1814, to: 1_814_400, within: model.TimeRange{StartMS: -1_814_400_000, EndMS: 0}}},
	} {
		got := sliceOf(test.spec, test.row, test.r)
		if test.name == "seconds, below the rows of KairosDB" {
			got.to = test.want.to // the end of the row is not what this is about
		}
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// legacyKeyspace makes the beginnings of a keyspace of KairosDB before 1.3.
func legacyKeyspace(t *testing.T) func(*cql.Session) {
	return func(s *cql.Session) {
		cqltest.Must(t, s,
			"CREATE TABLE spec (spec_type text, name text, value text, PRIMARY KEY (spec_type, name))",
			"CREATE TABLE row_key_index (key blob, column1 blob, value blob, PRIMARY KEY (key, column1)) WITH COMPACT STORAGE",
			"CREATE TABLE data_points (key blob, column1 blob, value blob, PRIMARY KEY (key, column1)) WITH COMPACT STORAGE")
		for name, value := range map[string]string{"row_time_unit": "LEGACY", "row_width": "1814400000"} {
			cqltest.Must(t, s, fmt.Sprintf("INSERT INTO spec (spec_type, name, value) VALUES ('cluster_config', '%s', '%s') USING TIMESTAMP 1", name, value))
		}
	}
}

// TestOverwrittenLegacyPoint: a point in a row without a type was written before KairosDB 0.9.4. One of the
// same series and time in a row with a type is newer.
func TestOverwrittenLegacyPoint(t *testing.T) {
	b := newReadBench(t, readConfig(), legacyKeyspace(t))
	const metric, row = "load", 1_500_508_800_000
	host := model.MustTags("host", "a")
	cell := func(typ model.Type, column uint32, value string) []byte {
		key := keyBytes(t, rowtime.Key{Metric: metric, RowTimeMS: row, Type: typ, Tags: host})
		b.Exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, binary.BigEndian.AppendUint32(nil, column), []byte(value))
		return key
	}
	old := cell(rowtime.TypeLegacy, 1000<<1, "\x01\x00")
	cell(rowtime.TypeLegacy, 2000<<1, "\x01\x00")
	cell(rowtime.TypeLegacy, 3000<<1|1, "\x02\x40\x09\x21\xf9\xf0\x1b\x86\x6e")
	cell(model.TypeLong, 1000<<1, "\x0a")
	cell(model.TypeDouble, 3000<<1, "\x3f\xf8\x00\x00\x00\x00\x00\x00")
	b.Exec("INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)", []byte(metric), old, []byte{})
	for _, typ := range []model.Type{model.TypeLong, model.TypeDouble} {
		b.Exec("INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())",
			metric, schema.DataPoints, int64(row), string(typ), cql.TagMap{Tags: host})
	}
	b.Exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, schema.DataPoints, int64(row))
	found, err := b.reader.Look().Select(t.Context(), store.Selection{Metric: metric, Range: model.AllTime})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[int64]string{}
	for place := range found.Len() {
		points := map[int64]string{}
		got[found.Series(place).String()] = points
		c := found.Open(t.Context(), place, store.ReadOptions{Range: model.AllTime})
		for {
			block, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if block == nil {
				break
			}
			for i, ms := range block.Times {
				points[ms] = fmt.Sprintf("%x", block.Values[i])
			}
		}
		c.Close()
	}
	want := map[string]map[int64]string{
		"load{host=a} (kairos_long)":   {row + 1000: "5", row + 2000: "100"},
		"load{host=a} (kairos_double)": {row + 3000: "3ff8000000000000"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLegacyRows reads rows as KairosDB before 0.9.4, before 1.2 and since wrote
// them, of one metric.
func TestLegacyRows(t *testing.T) {
	b := newReadBench(t, readConfig(), legacyKeyspace(t))
	const metric, row = "load", 1_500_508_800_000
	host := model.MustTags("host", "a")
	old := rowtime.Key{Metric: metric, RowTimeMS: row, Type: rowtime.TypeLegacy, Tags: host}
	cell := func(k rowtime.Key, column uint32, value string) {
		b.Exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", keyBytes(t, k), binary.BigEndian.AppendUint32(nil, column), []byte(value))
	}
	index := func(k rowtime.Key) {
		b.Exec("INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)", []byte(metric), keyBytes(t, k), []byte{})
	}
	// A row without a type: long 256 at +1 s, float 1.5 at +2 s, double at +3 s,
	// negative long at +4 s.
	index(old)
	cell(old, 1000<<1, "\x01\x00")
	cell(old, 2000<<1|1, "\x01\x3f\xc0\x00\x00")
	cell(old, 3000<<1|1, "\x02\x40\x09\x21\xf9\xf0\x1b\x86\x6e")
	cell(old, 4000<<1, "\xff\xff\xff\xff\xff\xff\xff\xff")
	// A typed row that only the old index has, below zero, and one that both have.
	below := rowtime.Key{Metric: metric, RowTimeMS: -2000, Type: model.TypeLong, Tags: host}
	index(below)
	cell(below, 1000<<1, "\x02")
	both := rowtime.Key{Metric: metric, RowTimeMS: row + rowtime.DefaultWidth, Type: model.TypeLong, Tags: host}
	index(both)
	cell(both, 5000<<1, "\x0a")
	b.Exec("INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())",
		metric, schema.DataPoints, both.RowTimeMS, string(both.Type), cql.TagMap{Tags: host})
	b.Exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, schema.DataPoints, both.RowTimeMS)
	// What cannot be parsed is passed by.
	b.Exec("INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)", []byte(metric), append(rowtime.AppendIndexBound(nil, metric, row, false)[:len(metric)+9], 1, 2), []byte{})

	long := model.Series{Metric: metric, Tags: host, Type: model.TypeLong}
	double := model.Series{Metric: metric, Tags: host, Type: model.TypeDouble}
	for _, test := range []struct {
		name string
		r    model.TimeRange
		want map[string]map[int64]string
	}{
		{"all", model.AllTime, map[string]map[int64]string{
			long.String():   {-1000: "1", row + 1000: "100", row + 4000: "ffffffffffffffff", row + rowtime.DefaultWidth + 5000: "5"},
			double.String(): {row + 2000: "3ff8000000000000", row + 3000: "400921f9f01b866e"},
		}},
		{"a double at the very end", model.TimeRange{StartMS: row + 1001, EndMS: row + 2000}, map[string]map[int64]string{
			double.String(): {row + 2000: "3ff8000000000000"},
		}},
		{"below zero", model.TimeRange{StartMS: math.MinInt64, EndMS: -1}, map[string]map[int64]string{long.String(): {-1000: "1"}}},
		{"from the middle below zero", model.TimeRange{StartMS: -1000, EndMS: 0}, map[string]map[int64]string{long.String(): {-1000: "1"}}},
	} {
		l := b.reader.Look()
		for range 3 { // the third time from packed chunks
			got := map[string]map[int64]string{}
			for _, s := range b.lookup(l, store.Selection{Metric: metric, Range: test.r}) {
				if samples := b.samplesOf(l, s.Series, s.Rows, store.ReadOptions{Range: test.r}); len(samples) > 0 {
					got[s.Series.String()] = samples
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
		}
	}
	names, more, err := b.reader.Look().Names(t.Context(), store.NamesQuery{Kind: store.TagValues, Metric: metric})
	if err != nil || more || !cmp.Equal(names, []string{"a"}) {
		t.Errorf("tag values %q, %v, %v", names, more, err)
	}
}

func keyBytes(t testing.TB, k rowtime.Key) []byte {
	t.Helper()
	b, err := k.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestReadRowForms reads parts of one row: ascending and descending, limited, in
// several pages, again from packed chunks, and as statistics.
func TestReadRowForms(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	row := Row{TimeMS: keyspacetest.CityTime(0)}
	s := model.Series{Metric: b.Name("m"), Type: model.TypeDouble, Tags: model.MustTags("k", "v")}
	const cells = 7000
	b.fillRow(s, row, cells)
	at := func(i int) int64 { return row.TimeMS + int64(i)*1000 }
	for _, test := range []struct {
		name     string
		from, to int // cells
		limit    int
		want     int
	}{
		{"all", 0, cells - 1, 0, cells},
		{"part", 1000, 5999, 0, 5000},
		{"three", 10, 12, 0, 3},
		{"limited", 0, cells - 1, 5, 5},
		{"limit above a page", 0, cells - 1, 6000, 6000},
		{"limit above what is there", 6990, cells - 1, 100, 10},
	} {
		for _, descending := range []bool{false, true} {
			for _, cached := range []bool{false, true} {
				if !cached {
					b.reader.RowChanged(keyBytes(t, rowtime.Key{Metric: s.Metric, RowTimeMS: row.TimeMS, Type: s.Type, Tags: s.Tags}))
				} else {
					b.readRow(b.reader.Look(), s, row, store.ReadOptions{Range: model.AllTime})
				}
				l := b.reader.Look()
				b.Counts.Take()
				times, values := b.readRow(l, s, row, store.ReadOptions{
					Range: model.TimeRange{StartMS: at(test.from) - 500, EndMS: at(test.to) + 500}, Limit: test.limit, Descending: descending})
				if n := keyspacetest.Total(b.Counts.Take()); cached != (n == 0) {
					t.Errorf("%s, descending %v, cached %v: %d statements", test.name, descending, cached, n)
				}
				if len(times) != test.want || len(values) != test.want {
					t.Fatalf("%s, descending %v, cached %v: %d samples, want %d", test.name, descending, cached, len(times), test.want)
				}
				for i, ms := range times {
					want := at(test.from + i)
					if descending {
						want = at(test.to - i)
					}
					if ms != want {
						t.Fatalf("%s, descending %v, cached %v: sample %d at %d, want %d", test.name, descending, cached, i, ms, want)
					}
				}
			}
		}
	}
	b.checkStatistics(s, row, cells)
}

func (b *readBench) checkStatistics(s model.Series, row Row, cells int) {
	b.T.Helper()
	b.readRow(b.reader.Look(), s, row, store.ReadOptions{Range: model.AllTime})
	c := b.reader.Look().ReadRow(b.T.Context(), s, row, store.ReadOptions{Range: model.AllTime, Summarize: &store.Summary{Needs: model.AllStats, Final: func(ms int64) int64 {
		if ms > row.TimeMS {
			return math.MaxInt64
		}
		return ms
	}}})
	defer c.Close()
	samples, summarized := 0, 0
	last := int64(math.MinInt64)
	for {
		block, err := c.Next()
		if err != nil {
			b.T.Fatal(err)
		}
		if block == nil {
			break
		}
		var first int64
		if block.Stats != nil {
			for _, s := range block.Stats {
				summarized += s.Count
			}
			first, last = block.Stats[0].FirstMS, block.Stats[len(block.Stats)-1].LastMS
		} else {
			samples += block.Len()
			first, last = block.Times[0], block.Times[block.Len()-1]
		}
		if first > last {
			b.T.Errorf("block from %d to %d", first, last)
		}
	}
	if samples != blockSamples || summarized != cells-blockSamples {
		b.T.Errorf("%d samples and %d in statistics, want %d and %d", samples, summarized, blockSamples, cells-blockSamples)
	}
}

// TestCustomTypes: what KairosDB has no type for is carried byte for byte.
func TestCustomTypes(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	row := Row{TimeMS: keyspacetest.CityTime(0)}
	for typ, value := range map[model.Type]string{
		"kairos_long_nano": "\x02", "kairos_complex": "\x3f\xf8\x00\x00\x00\x00\x00\x00\xc0\x02\x00\x00\x00\x00\x00\x00", "acme.blob": "\x00\xff", "null": "",
	} {
		s := model.Series{Metric: b.Name("m"), Type: typ, Tags: model.MustTags("k", "v")}
		key, err := rowKeyBytes(s, row)
		if err != nil {
			t.Fatal(err)
		}
		b.Exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, []byte{0, 0, 0, 7}, []byte(value))
		for range 2 {
			times, values := b.readRow(b.reader.Look(), s, row, store.ReadOptions{Range: model.AllTime})
			want := "null"
			if typ.Kind() != model.Null {
				want = valueText(model.Custom, &model.Columns{Offsets: []uint32{0, uint32(len(value))}, Data: []byte(value)}, 0)
			}
			if len(times) != 1 || times[0] != row.TimeMS+7 || values[0] != want {
				t.Errorf("%s: %v %v, want %s", typ, times, values, want)
			}
		}
	}
	s := model.Series{Metric: b.Name("m"), Type: model.TypeLong, Tags: model.MustTags("k", "bad")}
	key, err := rowKeyBytes(s, row)
	if err != nil {
		t.Fatal(err)
	}
	b.Exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, []byte{0, 0, 0, 7}, []byte{0x80})
	c := b.reader.Look().ReadRow(t.Context(), s, row, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	for range 2 {
		if _, err := c.Next(); err == nil {
			t.Error("a long that is cut off was read")
		}
	}
}

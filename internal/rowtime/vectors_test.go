package rowtime

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"varve/internal/model"
)

// vectors is testdata/kairosdb-vectors.json: what KairosDB 1.3's own
// serializers wrote.
type vectors struct {
	RowKeys           []keyVector    `json:"row_keys"`
	RowKeyIndexBounds []keyVector    `json:"row_key_index_slice_bounds"`
	UndecodableKeys   []keyVector    `json:"row_keys_undecodable"`
	Columns           []columnVector `json:"column_names"`
	LegacyColumns     []columnVector `json:"column_names_legacy_flag"`
	RowTimes          []struct {
		Description string
		Input       struct {
			MS    json.Number `json:"timestamp_ms"`
			Width int64       `json:"row_width"`
		}
		RowTime json.Number `json:"row_time_ms"`
		Hex     string
	} `json:"row_times"`
	Timestamps []keyVector `json:"row_time_cql_timestamp"`
	Slices     []struct {
		Description string
		Input       struct {
			Unit    string `json:"row_time_unit"`
			Width   int64  `json:"row_width"`
			RowTime int64  `json:"row_time_ms"`
			Start   int64  `json:"query_start_ms"`
			End     int64  `json:"query_end_ms"`
		}
		Hex string
	} `json:"data_points_slice_bounds"`
	Values       []valueVector
	LegacyValues []valueVector `json:"values_legacy"`
}

type keyVector struct {
	Description string
	Input       struct {
		Metric  string
		RowTime int64  `json:"row_time_ms"`
		End     bool   `json:"end_search_key"`
		Type    string `json:"data_type"`
		Tags    map[string]string
	}
	TagString string `json:"tag_string"`
	Hex       string
}

type columnVector struct {
	Description string
	Input       struct {
		Unit    string `json:"row_time_unit"`
		Width   int64  `json:"row_width"`
		MS      int64  `json:"timestamp_ms"`
		RowTime int64  `json:"row_time_ms"`
		Kind    string `json:"legacy_value_kind"`
	}
	RowTime int64 `json:"row_time_ms"`
	Hex     string
	Decoded int64 `json:"decoded_timestamp_ms"`
}

type valueVector struct {
	Description string
	Input       struct {
		Type            string `json:"data_type"`
		Kind            string
		Encoding        string
		Value           any
		Real, Imaginary float64
	}
	Hex string
}

func load(t *testing.T) vectors {
	t.Helper()
	data, err := os.ReadFile("testdata/kairosdb-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// count fails if a section of the vectors was not read.
func count(t *testing.T, got, want int) {
	t.Helper()
	if got != want {
		t.Fatalf("%d vectors, want %d", got, want)
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unit(t *testing.T, name string) Unit {
	t.Helper()
	u, err := ParseUnit(name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func tagsOf(t *testing.T, m map[string]string) model.Tags {
	t.Helper()
	var list []model.Tag
	for name, value := range m {
		list = append(list, model.Tag{Name: name, Value: value})
	}
	tags, err := model.NewTags(list...)
	if err != nil {
		t.Fatal(err)
	}
	return tags
}

func TestKeyVectors(t *testing.T) {
	v := load(t)
	count(t, len(v.RowKeys), 24)
	for _, c := range v.RowKeys {
		k := Key{Metric: c.Input.Metric, RowTimeMS: c.Input.RowTime, Type: model.Type(c.Input.Type), Tags: tagsOf(t, c.Input.Tags)}
		got, err := k.Append([]byte("x"))
		if err != nil || string(got[:1]) != "x" || hex.EncodeToString(got[1:]) != c.Hex {
			t.Errorf("%s: Append = %x, %v, want %s", c.Description, got, err, c.Hex)
		}
		if !strings.HasSuffix(string(got), c.TagString) {
			t.Errorf("%s: key %q does not end in %q", c.Description, got, c.TagString)
		}
		if back, err := ParseKey(string(unhex(t, c.Hex))); err != nil || back != k {
			t.Errorf("%s: ParseKey = %+v, %v, want %+v", c.Description, back, err, k)
		}
	}
	count(t, len(v.UndecodableKeys), 2)
	for _, c := range v.UndecodableKeys {
		if k, err := ParseKey(string(unhex(t, c.Hex))); err == nil {
			t.Errorf("%s: ParseKey = %+v, want an error", c.Description, k)
		}
	}
	count(t, len(v.RowKeyIndexBounds), 4)
	for _, c := range v.RowKeyIndexBounds {
		if got := AppendIndexBound(nil, c.Input.Metric, c.Input.RowTime, c.Input.End); hex.EncodeToString(got) != c.Hex {
			t.Errorf("%s: %x, want %s", c.Description, got, c.Hex)
		}
	}
}

func TestColumnVectors(t *testing.T) {
	v := load(t)
	count(t, len(v.Columns), 34)
	for _, c := range v.Columns {
		s := Spec{Width: c.Input.Width, Unit: unit(t, c.Input.Unit)}
		row := s.RowTime(c.Input.MS)
		if row != c.RowTime {
			t.Errorf("%s: RowTime(%d) = %d, want %d", c.Description, c.Input.MS, row, c.RowTime)
		}
		column := ColumnBytes(s.Column(row, c.Input.MS))
		if hex.EncodeToString(column) != c.Hex {
			t.Errorf("%s: column %x, want %s", c.Description, column, c.Hex)
		}
		number, err := ParseColumn(column)
		if got := s.Time(row, number); err != nil || got != c.Decoded {
			t.Errorf("%s: Time = %d, %v, want %d", c.Description, got, err, c.Decoded)
		}
	}
	count(t, len(v.LegacyColumns), 2)
	for _, c := range v.LegacyColumns {
		s := Spec{Width: DefaultWidth, Unit: unit(t, c.Input.Unit)}
		column, err := ParseColumn(unhex(t, c.Hex))
		if err != nil {
			t.Fatal(err)
		}
		ms, floating := s.LegacyColumn(c.Input.RowTime, column)
		if ms != c.Decoded || floating != (c.Input.Kind == "double") {
			t.Errorf("%s: LegacyColumn = %d, %v", c.Description, ms, floating)
		}
	}
}

func TestRowTimeVectors(t *testing.T) {
	v := load(t)
	count(t, len(v.RowTimes), 8)
	for _, c := range v.RowTimes {
		ms, _ := c.Input.MS.Int64()
		want, _ := c.RowTime.Int64()
		got := Spec{Width: c.Input.Width}.RowTime(ms)
		if got != want || strconv.FormatUint(uint64(got), 16) != strings.TrimLeft(c.Hex, "0") && got != 0 {
			t.Errorf("%s: RowTime(%d) = %d, want %d (%s)", c.Description, ms, got, want, c.Hex)
		}
	}
	// The row time in a key is a CQL timestamp.
	count(t, len(v.Timestamps), 3)
	for _, c := range v.Timestamps {
		key, err := Key{RowTimeMS: c.Input.RowTime, Type: model.TypeLong}.Append(nil)
		if got := hex.EncodeToString(key[1:9]); err != nil || got != c.Hex {
			t.Errorf("%s: %s, want %s", c.Description, got, c.Hex)
		}
	}
}

func TestSliceVectors(t *testing.T) {
	v := load(t)
	count(t, len(v.Slices), 7)
	for _, c := range v.Slices {
		s := Spec{Width: c.Input.Width, Unit: unit(t, c.Input.Unit)}
		from, to := s.Slice(c.Input.RowTime, model.TimeRange{StartMS: c.Input.Start, EndMS: c.Input.End})
		if got := uint64(from)<<32 | uint64(to); got != mustParse(t, c.Hex) {
			t.Errorf("%s: Slice = %08x..%08x, want %s", c.Description, from, to, c.Hex)
		}
	}
}

func mustParse(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// value returns a vector's value as AppendValue takes it and as DecodeValue
// returns it.
func (c valueVector) value(t *testing.T) (bits uint64, data []byte) {
	t.Helper()
	switch text, _ := c.Input.Value.(string); model.Type(c.Input.Type) {
	case model.TypeLong:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return uint64(n), nil
	case model.TypeDouble:
		if raw, ok := strings.CutPrefix(text, "bits:"); ok {
			return mustParse(t, raw), nil
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return math.Float64bits(f), nil
	case model.TypeComplex:
		return 0, appendDouble(appendDouble(nil, math.Float64bits(c.Input.Real)), math.Float64bits(c.Input.Imaginary))
	case model.TypeNull:
		return 0, nil
	case "kairos_long_nano": // custom: carried as it is
		return 0, unhex(t, c.Hex)
	default:
		return 0, []byte(text)
	}
}

func TestValueVectors(t *testing.T) {
	v := load(t)
	count(t, len(v.Values), 54)
	for _, c := range v.Values {
		kind := model.Type(c.Input.Type).Kind()
		bits, data := c.value(t)
		stored := unhex(t, c.Hex)
		if c.Input.Encoding == "snappy" {
			continue // no row says that its texts are snappy blocks
		}
		got, err := AppendValue([]byte("x"), kind, bits, data)
		if err != nil || hex.EncodeToString(got[1:]) != c.Hex {
			t.Errorf("%s: AppendValue = %x, %v, want %s", c.Description, got, err, c.Hex)
		}
		if kind == model.Double && math.IsNaN(math.Float64frombits(bits)) {
			bits = canonicalNaN
		}
		gotBits, gotData, err := DecodeValue(kind, stored)
		if err != nil || gotBits != bits || string(gotData) != string(data) {
			t.Errorf("%s: DecodeValue = %x, %q, %v, want %x, %q", c.Description, gotBits, gotData, err, bits, data)
		}
	}
	count(t, len(v.LegacyValues), 21)
	for _, c := range v.LegacyValues {
		kind, bits, err := DecodeLegacyValue(c.Input.Kind != "long", unhex(t, c.Hex))
		var want uint64
		switch n := c.Input.Value.(type) {
		case string:
			i, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			want = uint64(i)
		case float64:
			if c.Input.Kind == "float" {
				n = float64(float32(n))
			}
			want = math.Float64bits(n)
		}
		if err != nil || bits != want || (kind == model.Long) != (c.Input.Kind == "long") {
			t.Errorf("%s: DecodeLegacyValue = %v %x, %v, want %x", c.Description, kind, bits, err, want)
		}
	}
}

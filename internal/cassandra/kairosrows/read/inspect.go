package read

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// An Inspector writes the contents of a keyspace as text for people. It changes nothing.
type Inspector struct {
	reader *Reader
	w      io.Writer
	err    error // of w
}

// NewInspector returns an inspector of the keyspace that r reads.
func NewInspector(r *Reader, w io.Writer) *Inspector { return &Inspector{reader: r, w: w} }

// valueBytes is how long a value of metadata that a client has stored may be.
const valueBytes = 1 << 20

var (
	inspectCells = &cql.Statement{Name: "inspect_cells", RowBytes: rowtime.MaxStringBytes,
		Text: "SELECT column1, value, WRITETIME(value), TTL(value) FROM data_points WHERE key = ? AND column1 >= ? AND column1 <= ? LIMIT ?"}
	inspectKeys = &cql.Statement{Name: "inspect_service_keys", RowBytes: valueBytes,
		Text: "SELECT key, value, WRITETIME(value) FROM service_index WHERE service = ? AND service_key = ?"}
	inspectServices = &cql.Statement{Name: "inspect_services", Scan: true, PageSize: 500,
		Text: "SELECT DISTINCT service, service_key FROM service_index"}
)

// say writes one line.
func (in *Inspector) say(format string, args ...any) {
	if in.err == nil {
		_, in.err = fmt.Fprintf(in.w, format+"\n", args...)
	}
}

// timeText formats a time as a number and in words.
func timeText(ms int64) string {
	if ms < -62167219200000 || ms > 253402300799999 { // years 0 to 9999
		return strconv.FormatInt(ms, 10)
	}
	return fmt.Sprintf("%d (%s)", ms, time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"))
}

// Overview describes the keyspace: its row arithmetic, its tables, and anything unusual about
// them.
func (in *Inspector) Overview(ctx context.Context) error {
	ks := in.reader.ks
	found, err := ks.Session.Tables(ctx)
	if err != nil {
		return err
	}
	in.say("keyspace %s, Cassandra %s", ks.Name, ks.Session.State().Version)
	if ks.Role() == schema.RoleMeta {
		in.say("rows     none: it is for metadata")
	} else {
		in.say("rows     unit %s, width %d: %s each", ks.Spec.Unit, ks.Spec.Width, schema.LengthOfRow(ks.Spec))
	}
	for _, name := range schema.TableNames() {
		t, ok := found[name]
		switch {
		case !ok:
			in.say("table    %-20s missing", name)
		case t.Compact():
			in.say("table    %-20s COMPACT STORAGE", name)
		default:
			in.say("table    %-20s", name)
		}
	}
	switch {
	case ks.Role() == schema.RoleMeta:
	case ks.Tables.Own:
		in.say("index    inverted, %d shards", ks.IndexShards)
	default:
		in.say("index    none of Varve's: selective queries may read all row keys of a metric")
	}
	for _, note := range ks.Notes {
		in.say("note     %s", note)
	}
	return in.err
}

// Metrics lists the metrics whose names begin with prefix, with the number of
// their row times and the range that these span.
func (in *Inspector) Metrics(ctx context.Context, prefix string) error {
	names, err := in.reader.Look().metricNames(ctx, store.NamesQuery{Kind: store.MetricNames, Prefix: prefix})
	if err != nil {
		return err
	}
	low, high := in.reader.ks.Spec.RowRange(model.AllTime)
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		times, err := in.reader.Look().readRowTimes(ctx, rowkey.Span{Metric: name, LowMS: low, HighMS: high})
		if err != nil {
			return err
		}
		if len(times) == 0 {
			in.say("%s\tno row times", name)
			continue
		}
		in.say("%s\t%d row times\t%s to %s", name, len(times), timeText(times[0].TimeMS), timeText(times[len(times)-1].TimeMS))
	}
	return in.err
}

// Rows shows the rows that a selection finds, with row time and key, and for at most samples
// cells of each: column, time, value, write time and time to live.
func (in *Inspector) Rows(ctx context.Context, sel store.Selection, samples int) error {
	found, err := in.reader.Look().Lookup(ctx, sel)
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b SeriesRows) int {
		return cmp.Or(a.Series.Tags.Compare(b.Series.Tags), cmp.Compare(a.Series.Type, b.Series.Type))
	})
	for _, s := range found {
		in.say("%s, type %s: %d rows", s.Series, s.Series.Type, len(s.Rows))
		for _, row := range s.Rows {
			key, err := rowKeyBytes(s.Series, row)
			if err != nil {
				return err
			}
			in.say("  row %s%s", timeText(row.TimeMS), []string{"", ", legacy, longs", ", legacy, doubles"}[row.Form])
			in.say("    key 0x%x", key)
			if err := in.cells(ctx, s.Series.Type, row, key, sel.Range, samples); err != nil {
				return err
			}
		}
	}
	if len(found) == 0 {
		in.say("no rows; varve inspect index says what the index tables hold")
	}
	return in.err
}

// cells shows the first n cells of a row in a range.
func (in *Inspector) cells(ctx context.Context, typ model.Type, row Row, key []byte, r model.TimeRange, n int) error {
	s := sliceOf(in.reader.ks.Spec, row, r)
	if s.empty || n == 0 {
		return nil
	}
	rows := in.reader.ks.Session.Query(ctx, inspectCells, key, rowtime.ColumnBytes(s.from), rowtime.ColumnBytes(s.to), n+1)
	defer rows.Close()
	var column, value, written cql.Raw
	var ttl *int32
	for i := 0; rows.Scan(&column, &value, &written, &ttl); i++ {
		if i == n {
			in.say("    ...")
			break
		}
		in.say("    %s", in.cell(typ, row, column, value, rowkey.WrittenMS(written), ttl))
	}
	return errors.Join(in.err, rows.Close())
}

func (in *Inspector) cell(typ model.Type, row Row, column, value []byte, writtenMS int64, ttl *int32) string {
	life := "for ever"
	if ttl != nil {
		life = until(*ttl)
	}
	at, shown := "", ""
	n, err := rowtime.ParseColumn(column)
	switch {
	case err != nil:
		at, shown = err.Error(), fmt.Sprintf("0x%x", value)
	case row.Form == Typed:
		at, shown = timeText(in.reader.ks.Spec.Time(row.TimeMS, n)), cellText(typ.Kind(), value)
	default:
		ms, floating := in.reader.ks.Spec.LegacyColumn(row.TimeMS, n)
		at, shown = timeText(ms), legacyCellText(floating, value)
	}
	return fmt.Sprintf("0x%x  %s  %s  written %s, %s", column, at, shown, timeText(writtenMS), life)
}

// until formats the expiry of a cell that lives for ttl more seconds.
func until(ttl int32) string {
	return "until " + time.Now().Add(time.Duration(ttl)*time.Second).UTC().Format(time.RFC3339)
}

// cellText formats the value of a cell and its bytes.
func cellText(k model.Kind, value []byte) string {
	bits, data, err := rowtime.DecodeValue(k, value)
	if err != nil {
		return err.Error()
	}
	text := ""
	switch k {
	case model.Long:
		text = strconv.FormatInt(int64(bits), 10)
	case model.Double:
		text = strconv.FormatFloat(math.Float64frombits(bits), 'g', -1, 64)
	case model.String:
		text = strconv.Quote(string(data))
	case model.Complex:
		text = "complex"
	case model.Null:
		text = "null"
	default:
		text = "bytes"
	}
	return fmt.Sprintf("%s (0x%x)", text, value)
}

func legacyCellText(floating bool, value []byte) string {
	k, bits, err := rowtime.DecodeLegacyValue(floating, value)
	switch {
	case err != nil:
		return err.Error()
	case k == model.Double:
		return fmt.Sprintf("%v (0x%x)", math.Float64frombits(bits), value)
	}
	return fmt.Sprintf("%d (0x%x)", int64(bits), value)
}

// Index shows, for each row time of a metric in a range, what row_keys and Varve's own index
// contain.
func (in *Inspector) Index(ctx context.Context, metric string, r model.TimeRange) error {
	ks := in.reader.ks
	low, high := ks.Spec.RowRange(r)
	look := in.reader.Look()
	states, err := look.readStates(ctx, rowkey.Span{Metric: metric, LowMS: low, HighMS: high})
	if err != nil {
		return err
	}
	var legacy []rowtime.Key
	err = look.readLegacy(ctx, rowkey.Span{Metric: metric, LowMS: low, HighMS: high}, func(k rowtime.Key) error {
		legacy = append(legacy, k)
		return nil
	})
	if err != nil {
		return err
	}
	if len(legacy) > 0 {
		in.say("row_key_index: %d keys", len(legacy))
		for _, k := range legacy {
			in.say("  row %s %s, type %s", timeText(k.RowTimeMS), k.Tags, k.Type)
		}
	}
	in.say("row_key_time_index: %d row times", len(states))
	for _, state := range states {
		if err := in.indexOf(ctx, look, look.partition(metric, state)); err != nil {
			return err
		}
	}
	return in.err
}

func (in *Inspector) indexOf(ctx context.Context, look *Look, p *partition) error {
	ks := in.reader.ks
	s, err := rowkey.ReadStamp(ctx, ks.Session, p.key, cql.Configured)
	if err != nil {
		return err
	}
	in.say("row %s", timeText(p.key.TimeMS))
	rows := look.query(ctx, readRowKeys, p.key.Args()...)
	defer rows.Close()
	count := 0
	types := map[string]int{}
	var name cql.Raw
	for rows.Scan(&name, nil, nil, nil) {
		if name != nil {
			count++
			types[string(name)]++
		}
	}
	if err := rows.Close(); err != nil {
		return err
	}
	in.say("  row_keys         %d %v", count, types)
	in.say("  mtime            %s%s", mtimeText(s.Mtime, s.TTL), writtenText(s.WrittenMS))
	if !ks.Tables.Own {
		return in.err
	}
	in.say("  Varve's index    kairos_mtime %s; changed %s", mtimeText(p.state.KairosMtime, nil), mtimeText(p.state.Changed, nil))
	if p.state.Covers(s) {
		in.say("  covered          yes: selective queries ask the inverted index")
	} else {
		in.say("  covered          not yet: queries look in row_keys, and ask for a pass in the background")
	}
	return in.err
}

func writtenText(writtenMS int64) string {
	if writtenMS == 0 {
		return ""
	}
	return ", with write timestamp " + strconv.FormatInt(writtenMS, 10)
}

// mtimeText says who wrote a timeuuid, and when.
func mtimeText(u cql.UUID, ttl *int) string {
	text := ""
	switch u {
	case cql.UUID{}:
		return "none"
	case schema.WroteHere:
		text = "from Varve nodes only"
	default:
		text = fmt.Sprintf("%s, at %s", u, schema.UUIDTime(u[:]).Format("2006-01-02T15:04:05.000Z"))
	}
	if ttl != nil {
		text += ", " + until(int32(*ttl))
	}
	return text
}

// Services lists all service keys in service_index or, with a service, its keys and values.
func (in *Inspector) Services(ctx context.Context, service string) error {
	ks := in.reader.ks
	rows := ks.Session.Query(ctx, inspectServices)
	defer rows.Close()
	var pairs [][2]string
	var s, k string
	for rows.Scan(&s, &k) {
		if service == "" || s == service {
			pairs = append(pairs, [2]string{s, k})
		}
	}
	if err := rows.Close(); err != nil {
		return err
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, pair := range pairs {
		in.say("%s / %s", pair[0], pair[1])
		if service == "" {
			continue
		}
		if err := in.serviceKeys(ctx, pair[0], pair[1]); err != nil {
			return err
		}
	}
	if len(pairs) == 0 {
		in.say("nothing is stored")
	}
	return in.err
}

func (in *Inspector) serviceKeys(ctx context.Context, service, serviceKey string) error {
	rows := in.reader.ks.Session.Query(ctx, inspectKeys, service, serviceKey)
	defer rows.Close()
	var key, value *string
	var written cql.Raw
	for rows.Scan(&key, &value, &written) {
		if key == nil {
			continue
		}
		text := "null"
		if value != nil {
			text = *value
		}
		in.say("  %s = %s  (written %s)", *key, text, timeText(rowkey.WrittenMS(written)))
	}
	return errors.Join(in.err, rows.Close())
}

// Decode explains bytes of data_points, given as hexadecimal digits with or without 0x: as a
// key if they are one, otherwise as a column of the row at a row time, and as a value.
func Decode(w io.Writer, text string, spec rowtime.Spec, rowTimeMS int64) error {
	data, err := hex.DecodeString(strings.TrimPrefix(strings.TrimPrefix(text, "0x"), "0X"))
	if err != nil || len(data) == 0 {
		return fmt.Errorf("%q: want an even number of hexadecimal digits, with or without 0x", text)
	}
	in := &Inspector{w: w}
	if key, err := rowtime.ParseKey(string(data)); err == nil && utf8.ValidString(key.Metric) && key.Metric != "" {
		in.say("a row key")
		in.say("  metric    %s", key.Metric)
		in.say("  row time  %s", timeText(key.RowTimeMS))
		in.say("  type      %s", key.Type)
		for name, value := range key.Tags.All() {
			in.say("  tag       %s = %s", name, value)
		}
		return in.err
	}
	if n, err := rowtime.ParseColumn(data); err == nil {
		in.say("a column, of a row at %s in a keyspace of unit %s", timeText(rowTimeMS), spec.Unit)
		in.say("  time      %s", timeText(spec.Time(rowTimeMS, n)))
	}
	in.say("a value")
	known := false
	for _, k := range []model.Kind{model.Long, model.Double, model.String} {
		if isValue(k, data) {
			in.say("  as %-7s %s", k.String(), cellText(k, data))
			known = true
		}
	}
	if !known {
		in.say("  not of a built-in type")
	}
	return in.err
}

// isValue reports whether data is exactly one value of a kind.
func isValue(k model.Kind, data []byte) bool {
	bits, text, err := rowtime.DecodeValue(k, data)
	if err != nil {
		return false
	}
	again, err := rowtime.AppendValue(nil, k, bits, text)
	return err == nil && bytes.Equal(again, data)
}

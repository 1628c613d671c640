package remove

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// Deletions are recorded in service_index for nodes that have samples which are older than a
// deletion but not in Cassandra yet: the deletion cannot find rows that have not been written.
// There is a service key for each hour. The key is the deletion's write timestamp as 16
// hexadecimal digits, a dash, and a unique suffix; the value is one deletion.
const (
	deletedPrefix = "Deleted/"
	recordHour    = int64(time.Hour / time.Millisecond)

	// recordLife is how long records are kept. Deletions by other nodes do not reach samples
	// that wait for longer.
	recordLife = 48 * time.Hour

	// recordBytes is about how long a record may be: a request may have a MiB of values of tags.
	recordBytes = 1 << 20

	// recordsTogether is how many bytes of records are written at once.
	recordsTogether = 64 << 10
)

var (
	recordDeletion = &cql.Statement{Name: "record_deletion", Level: cql.Everywhere, Prompt: true, KeyArgs: 2,
		Text: "INSERT INTO service_index (service, service_key, key, value) VALUES (?, ?, ?, ?) USING TTL ?"}
	readDeletions = &cql.Statement{Name: "read_deletions", Level: cql.Quorum, KeyArgs: 2, RowBytes: recordBytes,
		Text: "SELECT key, value FROM service_index WHERE service = ? AND service_key = ? AND key >= ?"}
	withdrawDeletion = &cql.Statement{Name: "withdraw_deletion", Level: cql.Everywhere, Prompt: true, KeyArgs: 2,
		Text: "DELETE FROM service_index WHERE service = ? AND service_key = ? AND key = ?"}
)

type recordedDeletion struct {
	StartMS  int64                `json:"start_ms"`
	EndMS    int64                `json:"end_ms"`
	Deletion layout.SavedDeletion `json:"deletion"`
}

// Record tells other nodes about deletions before they are executed with the write timestamp
// stampMS. Without the table service_index, other nodes cannot be told.
func (d *Deleter) Record(ctx context.Context, stampMS int64, deletions ...store.Deletion) error {
	if !d.ks.Tables.ServiceIndex {
		return nil
	}
	var batch []cql.Entry // all records are in one partition
	size := 0
	write := func() error {
		if err := d.ks.Session.Batch(ctx, d.ks.Stamp(), batch); err != nil {
			return fmt.Errorf("record a delete for other nodes: %w", err)
		}
		batch, size = nil, 0
		return nil
	}
	for _, del := range deletions {
		value, err := textOf(recordedDeletion{del.Range.StartMS, del.Range.EndMS, layout.SaveDeletion(del)})
		if err != nil {
			return fmt.Errorf("record a delete: %w", err)
		}
		if len(batch) > 0 && size+len(value) > recordsTogether {
			if err := write(); err != nil {
				return err
			}
		}
		key := fmt.Sprintf("%016x-%s", stampMS, rand.Text())
		batch = append(batch, cql.Entry{Statement: recordDeletion, Args: []any{schema.OwnService, hourKey(stampMS), key, value, int(recordLife / time.Second)}})
		size += len(value)
	}
	return write()
}

// textOf returns the JSON of a record. Unlike that of json.Marshal, it is about as long as the request: "<" does not
// become "\u003c".
func textOf(record any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(record); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// withdraw removes the record of a cancelled job, so that other nodes do not delete what they have
// yet to write.
func (d *Deleter) withdraw(ctx context.Context, job *layout.Job) error {
	if !d.ks.Tables.ServiceIndex {
		return nil
	}
	text, err := textOf(recordedDeletion{job.StartMS, job.EndMS, job.Deletion})
	if err != nil {
		return fmt.Errorf("withdraw the record of a delete: %w", err)
	}
	keys, err := d.recordsOf(ctx, job.StampMS, text)
	hour := hourKey(job.StampMS)
	for _, key := range keys {
		var value store.Value // a server whose clock is ahead may have written it
		if value, err = d.ks.Get(ctx, schema.OwnService, hour, key); err == nil {
			err = d.ks.Session.Exec(ctx, withdrawDeletion, max(d.ks.Stamp(), value.Modified.UnixMilli()+1), schema.OwnService, hour, key)
		}
		if errors.Is(err, store.ErrNotFound) {
			err = nil
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("withdraw the record of a delete: %w", err)
	}
	return nil
}

// recordsOf returns the keys of the records with a write timestamp and a text. The deletions of a request,
// of which there may be many, have one timestamp.
func (d *Deleter) recordsOf(ctx context.Context, stampMS int64, text string) (keys []string, err error) {
	prefix := fmt.Sprintf("%016x-", stampMS)
	rows := d.ks.Session.Query(ctx, readDeletions, schema.OwnService, hourKey(stampMS), prefix)
	defer rows.Close()
	var key, value *string
	for rows.Scan(&key, &value) {
		if key == nil || value == nil {
			continue
		}
		if !strings.HasPrefix(*key, prefix) { // they are in order
			break
		}
		if *value == text {
			keys = append(keys, *key)
		}
	}
	return keys, rows.Close()
}

func hourKey(ms int64) string { return deletedPrefix + strconv.FormatInt(ms/recordHour, 10) }

// Recorded calls f with each deletion of the last two days, by any node, whose write timestamp
// is fromMS or later. If f returns an error, Recorded stops and returns it.
func (d *Deleter) Recorded(ctx context.Context, fromMS int64, f func(stampMS int64, del store.Deletion) error) error {
	if !d.ks.Tables.ServiceIndex {
		return nil
	}
	nowMS := d.now().UnixMilli()
	fromMS = max(fromMS, nowMS-recordLife.Milliseconds(), 0)
	for hour := fromMS / recordHour; hour <= nowMS/recordHour+1; hour++ { // other clocks may be ahead
		if err := d.recordedIn(ctx, hour*recordHour, fromMS, f); err != nil {
			return fmt.Errorf("look for deletes by other nodes: %w", err)
		}
	}
	return nil
}

func (d *Deleter) recordedIn(ctx context.Context, hourMS, fromMS int64, f func(stampMS int64, del store.Deletion) error) error {
	rows := d.ks.Session.Query(ctx, readDeletions, schema.OwnService, hourKey(hourMS), fmt.Sprintf("%016x", fromMS))
	defer rows.Close()
	var key, value *string
	for rows.Scan(&key, &value) {
		if key == nil || value == nil {
			continue
		}
		stampMS, del, err := parseRecord(*key, *value)
		if err != nil {
			d.log.Warn("a recorded delete cannot be read; ignoring it", "key", *key, "error", err)
			continue
		}
		if err := f(stampMS, del); err != nil {
			return err
		}
	}
	return rows.Close()
}

func parseRecord(key, value string) (stampMS int64, del store.Deletion, err error) {
	text, _, _ := strings.Cut(key, "-")
	if stampMS, err = strconv.ParseInt(text, 16, 64); err != nil {
		return 0, del, err
	}
	var r recordedDeletion
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return 0, del, err
	}
	job := layout.Job{StartMS: r.StartMS, EndMS: r.EndMS, Deletion: r.Deletion}
	if del, err = job.Means(); err == nil && del.Metric == "" {
		err = fmt.Errorf("it names no metric")
	}
	del.Range = model.TimeRange{StartMS: r.StartMS, EndMS: r.EndMS}
	return stampMS, del, err
}

// Place returns the row time of a sample, the time that queries return for it, and whether a
// deletion of a range deletes it.
func (d *Deleter) Place(ms int64, r model.TimeRange) (rowTimeMS, storedMS int64, deleted bool) {
	spec := d.ks.Spec
	rowTimeMS = spec.RowTime(ms)
	storedMS = spec.Time(rowTimeMS, spec.Column(rowTimeMS, ms))
	shown := model.TimeRange{StartMS: spec.FirstShown(rowTimeMS, r.StartMS), EndMS: r.EndMS}
	return rowTimeMS, storedMS, r.StartMS <= r.EndMS && shown.Contains(storedMS)
}

// Cuts implements layout.Repeater.
func (d *Deleter) Cuts() bool { return d.ks.Spec.Unit == rowtime.Seconds }

// DeleteWritten removes samples of one metric that were written with a timestamp up to stampMS,
// as Delete does. The rows are known, so it does not look for them in the index. It is never a
// job, since the caller repeats it until it succeeds.
func (d *Deleter) DeleteWritten(ctx context.Context, stampMS int64, metric string, written []layout.Written) error {
	byTime := map[int64][]rowDelete{}
	for _, w := range written {
		if rd, some := deletedColumns(d.ks.Spec, w.RowTimeMS, w.Times); some {
			rd.key = rowkey.Of(w.Series)
			byTime[w.RowTimeMS] = append(byTime[w.RowTimeMS], rd)
		}
	}
	if len(byTime) == 0 {
		return nil
	}
	some := store.Deletion{Metric: metric, Only: &written[0].Series} // not the whole metric
	if err := d.run(ctx, some, stampMS, newPace(d.cfg.Parallel), context.Background(), ascending(byTime), func(int64, int) error { return nil }); err != nil {
		return fmt.Errorf("delete from %s: %w", metric, err)
	}
	return nil
}

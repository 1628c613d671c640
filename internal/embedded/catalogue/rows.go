package catalogue

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"varve/internal/model"
	"varve/internal/record"
)

// Scan calls fn for each row of a table. Keys come without the table's byte.
func Scan(r pebble.Reader, table byte, fn func(key, value []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{table}, UpperBound: []byte{table + 1}})
	if err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		var v []byte
		if v, err = it.ValueAndErr(); err == nil {
			err = fn(it.Key()[1:], v)
		}
	}
	if closeErr := it.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("read catalogue: %w", closeErr)
	}
	return err
}

// ReadSeries returns the series of an id, false if it cannot be read.
func ReadSeries(r pebble.Reader, id model.SeriesNumber) (model.Series, bool) {
	v, closer, err := r.Get(seriesKey(id))
	if err != nil {
		return model.Series{}, false
	}
	defer closer.Close()
	s, err := model.ParseKey(string(v))
	return s, err == nil
}

// SeriesName describes the series of an id, for people.
func SeriesName(r pebble.Reader, id model.SeriesNumber) string {
	if s, ok := ReadSeries(r, id); ok {
		return s.String()
	}
	return fmt.Sprintf("series %d", id)
}

// ParseSeries parses a row of the table of series.
func ParseSeries(key, value []byte) (record.Definition, model.Series, error) {
	if len(key) != 4 {
		return record.Definition{}, model.Series{}, fmt.Errorf("row of a series has a key of %d bytes, expected 4: %x", len(key), key)
	}
	d := record.Definition{ID: model.SeriesNumber(binary.BigEndian.Uint32(key)), Key: string(value)}
	s, err := model.ParseKey(d.Key)
	if err != nil {
		return d, s, fmt.Errorf("series %d: %w", d.ID, err)
	}
	return d, s, nil
}

// ParseFile parses a row of the manifest.
func ParseFile(key, value []byte) (uint64, File, error) {
	var m File
	if len(key) != 8 {
		return 0, m, fmt.Errorf("row of a file has a key of %d bytes, expected 8: %x", len(key), key)
	}
	n := binary.BigEndian.Uint64(key)
	if err := json.Unmarshal(value, &m); err != nil {
		return n, m, fmt.Errorf("row of file %d: %w", n, err)
	}
	return n, m, nil
}

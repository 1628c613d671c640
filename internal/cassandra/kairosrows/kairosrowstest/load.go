// Package kairosrowstest loads keyspaces that KairosDB wrote into the Cassandra of a test.
package kairosrowstest

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/model"
)

// Names are the recorded keyspaces; testdata/README.md describes them.
var Names = []string{"milliseconds", "narrow", "seconds"}

//go:embed testdata
var recorded embed.FS

// Files returns the files of a recorded keyspace: schema.cql, TABLE.jsonl and
// cases.
func Files(name string) fs.FS {
	files, err := fs.Sub(recorded, path.Join("testdata", name))
	if err != nil {
		panic(err)
	}
	return files
}

// Load creates the tables of a recorded keyspace in the session's keyspace, which must exist
// and be empty, and fills them.
func Load(t testing.TB, s *cql.Session, name string) {
	t.Helper()
	LoadFS(t, s, Files(name))
}

// LoadFS is Load for files that are laid out like those of the recorded
// keyspaces.
func LoadFS(t testing.TB, s *cql.Session, files fs.FS) {
	t.Helper()
	schema, err := fs.ReadFile(files, "schema.cql")
	if err != nil {
		t.Fatal(err)
	}
	cqltest.Must(t, s, CreateTables(string(schema))...)
	tables, err := s.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dumps, err := fs.Glob(files, "*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var lines []dumped
	latest := int64(1)
	for _, dump := range dumps {
		table, ok := tables[strings.TrimSuffix(dump, ".jsonl")]
		if !ok {
			t.Fatalf("%s: schema.cql has no such table", dump)
		}
		text, err := fs.ReadFile(files, dump)
		if err != nil {
			t.Fatal(err)
		}
		scanner := bufio.NewScanner(bytes.NewReader(text))
		scanner.Buffer(nil, 1<<24)
		for scanner.Scan() {
			l := dumped{table: table}
			if err := json.Unmarshal(scanner.Bytes(), &l.cells); err != nil {
				t.Fatalf("%s: %v", dump, err)
			}
			for column := range l.cells {
				if strings.HasPrefix(column, "writetime(") {
					latest = max(latest, l.number(column))
				}
			}
			lines = append(lines, l)
		}
		if err := scanner.Err(); err != nil {
			t.Fatalf("%s: %v", dump, err)
		}
	}
	insertAll(t, s, lines, latest)
}

// tableText finds the statements in the output of DESCRIBE; those of compact tables are in a
// comment.
var tableText = regexp.MustCompile(`(?s)CREATE TABLE (?:\w+\.)(\w+ \(.*?\n\))( WITH COMPACT STORAGE)?`)

// CreateTables returns the statements that make the tables of what DESCRIBE
// KEYSPACE prints, without their options.
func CreateTables(described string) []string {
	var texts []string
	for _, m := range tableText.FindAllStringSubmatch(described, -1) {
		texts = append(texts, "CREATE TABLE "+m[1]+m[2])
	}
	return texts
}

// insertAll inserts with some statements at once. latest replaces write times that CQL does not
// return, those of rows without any cell.
func insertAll(t testing.TB, s *cql.Session, lines []dumped, latest int64) {
	t.Helper()
	work := make(chan dumped)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for l := range work {
				if err := l.insert(t, s, latest); err != nil {
					t.Errorf("%s %s: %v", l.table.Name, l.cells, err)
				}
			}
		})
	}
	for _, l := range lines {
		work <- l
	}
	close(work)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// dumped is a row of a dump.
type dumped struct {
	table cql.Table
	cells map[string]json.RawMessage
}

func (l dumped) null(column string) bool {
	raw, ok := l.cells[column]
	return !ok || string(raw) == "null"
}

// number is 0 for null.
func (l dumped) number(column string) int64 {
	var n int64
	if !l.null(column) {
		if err := json.Unmarshal(l.cells[column], &n); err != nil {
			panic(fmt.Sprintf("%s: %v", column, err))
		}
	}
	return n
}

// insert inserts the static cells apart from the row, since the row's stamp and
// TTL are its own.
func (l dumped) insert(t testing.TB, s *cql.Session, latest int64) error {
	partition, clustering := l.table.Keys("partition_key"), l.table.Keys("clustering")
	for _, c := range l.table.Keys("static") {
		if l.null(c) {
			continue
		}
		if err := l.write(t, s, append(slices.Clone(partition), c), l.number("writetime("+c+")"), l.number("ttl("+c+")")); err != nil {
			return err
		}
	}
	if len(clustering) > 0 && l.null(clustering[0]) {
		return nil
	}
	columns := append(slices.Clone(partition), clustering...)
	stamp, ttl := int64(0), int64(0)
	for _, c := range append(l.table.Keys("regular"), l.table.Keys("static")...) {
		if l.null(c) || stamp != 0 {
			continue
		}
		stamp, ttl = l.number("writetime("+c+")"), l.number("ttl("+c+")")
	}
	for _, c := range l.table.Keys("regular") {
		if !l.null(c) {
			columns = append(columns, c)
		}
	}
	if stamp == 0 {
		stamp = latest
	}
	return l.write(t, s, columns, stamp, ttl)
}

func (l dumped) write(t testing.TB, s *cql.Session, columns []string, stamp, ttl int64) error {
	args := make([]any, 0, len(columns)+1)
	for _, c := range columns {
		args = append(args, l.bind(t, c))
	}
	text := "INSERT INTO " + l.table.Name + " (" + strings.Join(columns, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(columns)-1) + ")"
	if ttl > 0 {
		text += " USING TTL ?"
		args = append(args, int(ttl))
	}
	return s.Exec(t.Context(), &cql.Statement{Name: "load", Text: text}, stamp, args...)
}

// bind returns a cell as its column's type wants it.
func (l dumped) bind(t testing.TB, column string) any {
	c, _ := l.table.Column(column)
	raw := l.cells[column]
	into := func(v any) {
		if err := json.Unmarshal(raw, v); err != nil {
			t.Errorf("%s.%s %s: %v", l.table.Name, column, raw, err)
		}
	}
	var text string
	switch c.Type {
	case "blob":
		into(&text)
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Errorf("%s.%s %s: %v", l.table.Name, column, raw, err)
		}
		return b
	case "timestamp":
		return l.number(column)
	case "int":
		return int(l.number(column))
	case "timeuuid":
		into(&text)
		var id cql.UUID
		if err := id.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s.%s %s: %v", l.table.Name, column, raw, err)
		}
		return id
	case "frozen<map<text, text>>":
		var pairs map[string]string
		into(&pairs)
		var tags []model.Tag
		for name, value := range pairs {
			tags = append(tags, model.Tag{Name: name, Value: value})
		}
		set, err := model.NewTags(tags...)
		if err != nil {
			t.Errorf("%s.%s %s: %v", l.table.Name, column, raw, err)
		}
		return cql.TagMap{Tags: set}
	}
	into(&text)
	return text
}

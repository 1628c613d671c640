package events

import "varve/internal/cassandra/cql"

// Page is the page of the documentation that describes the tables.
const Page = "docs/formats/timelines-cassandra.md"

// Tables are the definitions of the tables of timelines.
var Tables = []cql.Definition{
	{Name: "timeline_events", Order: "time DESC, id DESC", Columns: append(partKey(),
		cql.OrderColumn("time", "bigint"), cql.OrderColumn("id", "text"), cql.PlainColumn("event", "blob"))},
	{Name: "timeline_pieces", Order: "time DESC, id DESC, piece DESC", Columns: append(partKey(),
		cql.OrderColumn("time", "bigint"), cql.OrderColumn("id", "text"), cql.OrderColumn("piece", "int"),
		cql.PlainColumn("data", "blob"))},
	{Name: "timeline_buckets", Order: "start DESC", Columns: []cql.Column{
		cql.KeyColumn("timeline", "text"), cql.KeyColumn("block", "bigint"), cql.OrderColumn("start", "bigint")}},
	{Name: "timeline_names", Columns: []cql.Column{cql.KeyColumn("shard", "int"), cql.OrderColumn("name", "text"), cql.PlainColumn("put", "bigint")}},
	{Name: "timeline_payloads", Columns: []cql.Column{
		cql.KeyColumn("key", "blob"), cql.OrderColumn("piece", "int"), cql.OrderColumn("timeline", "text"),
		cql.PlainColumn("size", "int"), cql.PlainColumn("data", "blob")}},
	{Name: "timeline_logs", Columns: []cql.Column{
		cql.KeyColumn("timeline", "text"), cql.OrderColumn("log", "int"), cql.PlainColumn("slot", "bigint")}},
	{Name: "timeline_arrivals", Options: "gc_grace_seconds = 3600", Columns: []cql.Column{
		cql.KeyColumn("timeline", "text"), cql.KeyColumn("log", "int"), cql.KeyColumn("slot", "bigint"), cql.OrderColumn("number", "bigint"),
		cql.PlainColumn("events", "blob")}},
	{Name: "timeline_deletions", Columns: []cql.Column{
		cql.KeyColumn("timeline", "text"), cql.KeyColumn("day", "bigint"), cql.OrderColumn("before", "bigint"),
		cql.OrderColumn("from_time", "bigint"), cql.OrderColumn("from_id", "text"), cql.OrderColumn("to_time", "bigint"), cql.OrderColumn("to_id", "text"),
		cql.OrderColumn("id", "text")}},
}

func partKey() []cql.Column {
	return []cql.Column{cql.KeyColumn("timeline", "text"), cql.KeyColumn("bucket", "bigint"), cql.KeyColumn("part", "int")}
}

const (
	ofPart  = " WHERE timeline = ? AND bucket = ? AND part = ?"
	inRange = " AND (time, id) >= (?, ?) AND (time, id) < (?, ?)"

	forEver = " USING TTL 0" // overrides the table's default_time_to_live
)

// All reads and writes use a quorum of the local data center, so that every read sees all
// acknowledged writes.
func write(name, text string) *cql.Statement {
	return &cql.Statement{Name: name, Level: cql.Quorum, Prompt: true, Text: text}
}

func read(name string, pageSize int, text string) *cql.Statement {
	return &cql.Statement{Name: name, Level: cql.Quorum, PageSize: pageSize, Text: text}
}

// Package opentsdb accepts samples by OpenTSDB's HTTP put, POST /api/put: JSON as OpenTSDB 2.4
// reads it, and, by content type, Graphite's plain text lines, which netdata posts there.
// docs/formats/opentsdb-put.md describes both.
//
// The body is held in memory whole (bounded by half of ingest.body_memory, and
// over all requests by ingest.body_memory) and stored block by block. Every
// valid point is stored, whatever the answer is.
package opentsdb

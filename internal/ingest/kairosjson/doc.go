// Package kairosjson accepts samples by POST /api/v1/datapoints, KairosDB's JSON form.
// docs/formats/kairosdb-json.md describes it.
//
// The body is held in memory whole (bounded by half of ingest.body_memory, and
// over all requests by ingest.body_memory), and is walked without building a
// tree, block by block of samples:
//
//	[ {name, tags, type, ttl, datapoints:[[ms,v],[ms,v], ... ]}, {...} ]
//	  \__ first pass: where is what __/     \_ second pass: samples _/
//
// A metric object is walked twice, because its members come in any order: tags
// and ttl after the points with collectd. The first pass only skips the points.
//
// Most objects are not walked at all: see shape. An object that has all bytes but its points in
// common with an earlier object is compared with it, and its points are read as they come. If
// anything is unusual about the object, it is walked as above.
//
// Every valid point is stored, whatever the answer is; all faults are collected
// in order of the request, with KairosDB's texts. A fault of the JSON itself
// ends the request, since nothing after it can be trusted.
package kairosjson

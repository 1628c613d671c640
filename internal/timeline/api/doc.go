// Package api serves timelines over HTTP. docs/timelines.md describes it for callers.
//
//	POST   /api/v1/timelines/NAME/events      append: one event, an array, or lines
//	POST   /api/v1/timelines/events           the same, but each event names its timelines
//	GET    /api/v1/timelines/NAME/events      a page
//	GET    /api/v1/timelines/events           a page of several timelines, merged
//	GET    /api/v1/timelines/NAME/tail        arrivals, as server-sent events
//	GET    /api/v1/timelines/NAME/{latest,start,stats,layout}
//	POST   /api/v1/timelines/NAME/{layout,retention}
//	DELETE /api/v1/timelines/NAME/events, /api/v1/timelines/NAME
//	GET    /api/v1/timelines                  names
//
// Limits of a request: a body that is parsed as a whole counts as ingest.body_memory, and so
// does the part of a body of lines that has arrived. A page counts as memory of queries, and
// its request takes a slot of queries. Events that are being sent to readers that follow a
// timeline are bounded by tailMemory.
//
// JSON data is stored as text (see payload.go), so that it is returned as it was sent.
package api

// Package api serves timelines over HTTP, as docs/timelines.md describes it for callers.
//
//	POST   /api/v1/timelines/NAME/events      append: one event, an array, or lines
//	POST   /api/v1/timelines/events           the same, each event says its timelines
//	GET    /api/v1/timelines/NAME/events      a page
//	GET    /api/v1/timelines/events           a page of several timelines, merged
//	GET    /api/v1/timelines/NAME/tail        arrivals, as server-sent events
//	GET    /api/v1/timelines/NAME/{latest,start,stats,layout}
//	POST   /api/v1/timelines/NAME/{layout,retention}
//	DELETE /api/v1/timelines/NAME/events, /api/v1/timelines/NAME
//	GET    /api/v1/timelines                  names
//
// What a request may take: a body that is parsed as a whole, and what has arrived of one
// that comes in lines, count as ingest.body_memory; a page counts as memory of queries, and
// its request takes a place among them; what is on its way to those who follow is bounded
// by tailMemory.
//
// The data of an event is stored as Payload says, so that JSON comes back as it was sent.
package api

// Package retention decides how long samples are kept, and at which resolution:
// policies of stages, and which series has which policy.
//
// A stage is a step and a time for which it is kept. The step of the first stage is the
// expected distance of samples; later stages hold aggregates of buckets of their step:
//
//	10s:6h,60s:30d,1h:5y
//
//	now                                                                       past
//	 |<-- 6 h -->|
//	 |  10 s     |
//	 |<--------- 30 d --------->|
//	 |  60 s                    |
//	 |<---------------------- 5 y ----------------------->|
//	 |  1 h                                               |
//
// Rules apply in order: the first one that matches a series counts. First come the
// policies of the configuration, which may match metric, tags and path, and may set the
// aggregation of a bucket. The rules of a carbon installation follow. They come from
// its own files, storage-schemas.conf (stages) and storage-aggregation.conf
// (aggregation), which are two lists: a series has one rule of each.
package retention

// Package retention says how long samples are kept, and how finely: policies of
// stages, and which series has which policy.
//
// A stage is a step and a time for which it is kept. The first stage of a policy
// says how far apart samples are expected; later ones hold aggregates of buckets of
// their step:
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
// Rules are looked at in their order; the first that matches a series decides. First
// come the policies of the configuration, which may look at metric, tags and path, and
// may say how a bucket becomes one value. The rules of a carbon installation follow.
// They are read from its own files, storage-schemas.conf (stages) and
// storage-aggregation.conf (values of buckets), which are two lists: a series has one
// rule of each.
package retention

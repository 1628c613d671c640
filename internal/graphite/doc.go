// Package graphite answers Graphite's HTTP API from any store: /render with all
// functions, /metrics/find, /metrics/expand, /metrics/index.json and /functions.
//
//	request -> render.Parse -> function.Evaluate -> render.Write
//	                               |
//	                            source: globs -> levels of the tree of metrics
//	                                    series -> a grid of the finest stage
//	                                           -> aggregated as in Whisper's archives
//
// A metric without tags is a path. A series with tags is found by seriesByTag and by its
// canonical name. It is not in the tree.
//
// The store keeps all samples, so Whisper's archives are computed on request. A point of
// the finest stage is the last sample in its step. A point of a coarser stage is
// aggregated from points of the next finer stage by the aggregation method, if at least
// the fraction xFilesFactor of them is known. As in Whisper, the beginning of the time
// range determines the stage of the answer, so that dashboards show the same numbers.
package graphite

// Package graphite answers Graphite's HTTP API from any store: /render with all
// functions, /metrics/find, /metrics/expand, /metrics/index.json and /functions.
//
//	request -> render.Parse -> function.Evaluate -> render.Write
//	                               |
//	                            source: globs -> levels of the tree of metrics
//	                                    series -> a grid of the finest stage
//	                                           -> merged as Whisper's archives are
//
// A metric without tags is a path. A series with tags is found by seriesByTag, and by
// its canonical name, and is not in the tree.
//
// The store keeps all samples, so Whisper's archives are computed on request. In each step
// of the finest stage the last sample counts. Each coarser stage is aggregated from the one
// before by the aggregation method, if at least the share xFilesFactor of its points is
// known. As in Whisper, the beginning of the request decides which stage answers, so that
// dashboards show the same numbers.
package graphite

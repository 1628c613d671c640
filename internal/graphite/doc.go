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
// All samples are kept, so an archive of Whisper is computed when it is asked for: of
// the samples in a step of the finest stage the last one counts, and each coarser stage
// is made of the one before by the aggregation method, where the part of xFilesFactor
// is there. Which stage answers depends on how far back the request begins, as in
// Whisper, so that dashboards show the same numbers.
package graphite

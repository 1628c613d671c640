// Package chart draws evaluated series as pictures, in PNG and in SVG. Parse reads the
// parameters of Graphite's render API that say how. The drawing is done once, on a
// canvas; the two formats are two canvases. It knows nothing of HTTP.
//
// A series is merged to one point for each column of pixels before it is drawn, by the
// function that consolidateBy names, so the work is bounded by the size of the picture
// and the number of series.
package chart

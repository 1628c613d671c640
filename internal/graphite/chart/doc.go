// Package chart draws evaluated series as pictures, in PNG and SVG. Parse parses the
// parameters of Graphite's render API for pictures. The code that draws is common to the
// two formats, which are two implementations of canvas. The package does not depend on
// HTTP.
//
// Before a series is drawn, its values are merged to one point for each column of pixels,
// by the function that consolidateBy names. The work is therefore limited by the size of
// the picture and the number of series.
package chart

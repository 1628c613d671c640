package ingesttest

import "strings"

// AwkwardNumbers are seeds for fuzzers: values and times at the ends of their
// ranges, and spellings that some parsers take and others refuse.
var AwkwardNumbers = []string{"0", "-0", "-0.0", "1e-05", "1E5", "1.5E300", "5e-324", "1e-400", "1.7976931348623157e308", "1e309",
	"9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "9223372036854775807.0", "1e18", "NaN", "-Infinity",
	"0." + strings.Repeat("0", 400) + "1", strings.Repeat("9", 400), ".5", "5.", "+1", "0x10", "1_0", "\"NaN\"", "true"}

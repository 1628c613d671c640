// Package storetest is the contract of package store as tests that every store
// passes unchanged, in the manner of testing/fstest.
//
// A store's own test hands over a [Harness]: how to open the store, and how to
// flush, merge or crash it where it can do that.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, newHarness)
//	}
//
//	func TestMetamorphic(t *testing.T) {
//		storetest.RunMetamorphic(t,
//			storetest.Config{Name: "default", New: newHarness},
//			storetest.Config{Name: "tiny files", New: newTinyHarness})
//	}
//
// [Run] runs scripts with known answers. [RunMetamorphic] does random operations
// and compares each answer with that of package reference, the simplest possible store.
//
// # The groups of Run
//
//	overwrite     the last accepted write of a series and time wins; kinds do not touch each other
//	time          ranges, both ends inclusive; order; limit; rows; far and negative times
//	value         every kind comes back bit for bit
//	select        matchers, order as Java sorts, unicode, the limit
//	names         lists by prefix, pattern, place and limit; names vanish with the last sample
//	delete        by selector and range; nothing comes back, nothing written later goes
//	held          views kept open while the store is used
//	ttl           times-to-live to the millisecond
//	keyvalue      set, get, unset, prefix
//	blocks        long series: out of order, overwritten, with holes, in every direction and part
//	stats         statistics stand for just the samples that they replace
//	series        refs, epochs, 100,000 series
//	views         what a View sees and how long it lives
//	expiry        times-to-live on any clock, names after expiry
//	service-keys  lists of service keys, modification times
//	reopen        closing, crashing and opening again
//	cancel        contexts that end
//	concurrent    writers, readers, deletes and maintenance at once
//
// Each test has an empty store of its own. The first nine groups are the files
// in scripts. Each of their scripts runs five times: as it stands, and with
// a flush, a merge, a reopening or a crash after each step that changes
// something. The tests leave out what the contract leaves open: how coarsely Select
// looks at a range, how a series is cut into blocks, and whether a sample that
// has expired on arrival hides an earlier one of the same time.
//
// A staleness marker is no value: a read shows it only if ReadOptions.Stale is set.
// If a run of samples contains another NaN, its min, max and sum are NaN, as an
// aggregator over the samples would compute them.
//
// # The script language
//
// One operation per line; its answer follows, indented by two spaces. An
// operation that returns nothing but success has no answer. A query without
// results answers (none).
//
//	append SERIES TIME=VALUE[~TTL]... [; SERIES ...]   one batch
//	read SERIES [-from=TIME] [-to=TIME] [-desc] [-limit=N] [-summarize=all|some|none]
//	select METRIC [MATCHER...] [-from] [-to] [-limit] [-raw]
//	names metrics|tagnames|tagvalues [-metric] [-tag] [-prefix] [-pattern] [-after] [-delimiter] [-limit]
//	delete METRIC [MATCHER...] [-from] [-to]
//	erase SERIES [-from] [-to]                         a delete of this one series
//	set|unset|get|keys SERVICE SERVICEKEY [KEY|PREFIX] [TEXT]
//	flush, merge, reopen, crash, advance DURATION
//	hold, look                                         open a view; later, look at it again
//
//	SERIES   metric{tag=value,...}:type, type one of long, double, string, complex, null,
//	         or any other for a custom type
//	TIME     milliseconds, min, max, or @N: N ms after the script began
//	VALUE    a number; 0x and 16 digits for a double's bits; a string in quotes;
//	         # and hexadecimal bytes; null
//	TTL      seconds
//	MATCHER  tag=value|value|/pattern/... ; !=, ?= and !?= as well: not, or absent
//
// Names and texts may be written as Go strings in double quotes. A read with
// -summarize checks every statistic against the samples and answers with the
// samples that blocks and statistics together stand for. A select leaves out
// series without a sample in the range, unless it is -raw. Once a script has
// written a sample with a time-to-live, the runner merges before each names and
// each raw select, since a name may outlive its samples until a merge. A held view
// stays open until the next hold or reopening; look checks that the view still
// shows all that it must, and nothing that it must not.
//
// # Flags
//
//	-storetest.seed    first seed of the metamorphic test
//	-storetest.rounds  how many rounds
//	-storetest.ops     operations per round
package storetest

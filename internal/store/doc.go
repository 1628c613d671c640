// Package store is the contract between the engine's front ends, which write and
// query samples, and the stores that keep the samples. It holds the interfaces, the
// types that cross them, and the errors. [varve/internal/store/storetest] is the
// same contract as a test suite, which every store passes unchanged.
//
// # Who calls what, when
//
// Writers (package ingest) cache the [Ref] of each series by the bytes that the
// client sent. For a block of input they call [Appender.Epoch], fill a [Batch],
// resolve unknown series with Lookup and Create, and call Append once. When Append
// returns nil, every sample of the batch is as durable as the store's policy
// promises, and visible to every View opened from then on. When Append returns
// [ErrStale], nothing was stored: the writer resolves all series of the batch again,
// and drops its cache if the epoch has changed. After any other error, samples of
// the batch may be stored or not. Sending them again is harmless, since the last
// accepted write of a series and time wins.
//
// Readers (package query and the front ends) open a [View], select series, read
// them with as many goroutines as they like, and close the View. A View sees
// everything acknowledged before it was opened. It may or may not see later appends
// and deletes. Refs that a View handed out stay valid until the View is closed.
//
// # Time-to-live
//
// A sample with a time-to-live of n seconds expires n seconds after its own
// time. A sample that has already expired when it arrives is accepted, and never
// visible.
//
// # Errors
//
//	*InputError       the caller asked for something that has no meaning, or that
//	                  the store's layout cannot hold
//	*LimitError       a limit, its value, and what was needed
//	*UnavailableError the store cannot do this now; trying again may help
//	*PartError        only from Append: some parts of the store are unavailable; the
//	                  other parts have stored their samples
//	*CorruptionError  stored bytes are wrong; trying again will not help
//	ErrStale          only from Append: refs of an earlier epoch, or of forgotten series
//	ErrClosed         the store was closed
//	context errors    from the caller's context, wrapped
//
// Anything else is a fault of the store itself.
package store

// Package store is the contract between what takes points in and answers
// questions, and what keeps the points. It holds interfaces, the types that
// cross them, and the errors; [varve/internal/store/storetest] is the meaning
// of these words as a test suite, which every store passes unchanged.
//
// # Who calls what, when
//
// Writers (package ingest) keep a cache from what a client sent to a [Ref].
// For a block of input they ask [Appender.Epoch], fill a [Batch], resolving
// what the cache does not know with Lookup and Create, and call Append once.
// When Append returns nil, every sample of the batch is durable as the store's
// stated policy says and visible to every View opened from then on. When it
// returns [ErrStale], nothing was stored: the writer resolves all series of the
// batch again, and drops its cache if the epoch has moved. After any other error,
// samples of the batch may be stored or not; sending them again is harmless, since
// the last accepted write of a series and time wins.
//
// Readers (package query and the front ends) open a [View], select series, read
// them with as many goroutines as they like, and close the View. A View sees
// everything acknowledged before it was opened; what is appended or deleted
// later it may see or not. Refs that a View handed out stay valid until it is
// closed.
//
// # Time-to-live
//
// A sample with a time-to-live of n seconds is gone n seconds after its own
// time. A sample that is gone already when it arrives is accepted, and never
// seen.
//
// # Errors
//
//	*InputError       the caller asked for something that has no meaning, or that
//	                  the store's layout cannot hold
//	*LimitError       a limit, its value, and what was needed
//	*UnavailableError the store cannot do this now; trying again may help
//	*PartError        only from Append: what an *UnavailableError says, of some parts of the
//	                  store; the other ones have stored their samples
//	*CorruptionError  stored bytes are wrong; trying again will not help
//	ErrStale          only from Append: refs of an earlier epoch, or of forgotten series
//	ErrClosed         the store was closed
//	context errors    from the caller's context, wrapped
//
// Anything else is a fault of the store itself.
package store

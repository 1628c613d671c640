package work

import "context"

// Take waits until it can occupy one of the places, whose number is the capacity of the channel. It
// fails with the cause of ctx if ctx ended meanwhile, even if a place became free.
func Take(ctx context.Context, places chan struct{}) (release func(), err error) {
	select {
	case places <- struct{}{}:
		if ctx.Err() != nil {
			<-places
			return nil, context.Cause(ctx)
		}
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

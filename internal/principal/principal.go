// Package principal says on whose behalf work is done. The server puts a [Principal]
// into the context of each request and connection; writers, queries and stores find it
// there. Today there is one tenant, and it limits nothing.
package principal

import "context"

// Default is the tenant of everyone who names no other.
const Default = "default"

// A Principal is who sent a request. The zero Principal is the server itself, which
// works for no client: roll-ups and maintenance.
type Principal struct {
	Tenant string // whose data is meant
	Name   string // of the sender within the tenant; "" if nobody asked for it
}

type key struct{}

// With returns a context of work on behalf of p.
func With(ctx context.Context, p Principal) context.Context { return context.WithValue(ctx, key{}, p) }

// Of returns on whose behalf ctx is.
func Of(ctx context.Context) Principal {
	p, _ := ctx.Value(key{}).(Principal)
	return p
}

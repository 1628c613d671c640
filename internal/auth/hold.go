package auth

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"varve/internal/principal"
)

// ErrEnded ends what went on for a sender that has lost its rights. Who asks only whether a
// context was cancelled takes it for a client that has gone.
var ErrEnded error = endedError{}

type endedError struct{}

func (endedError) Error() string {
	return "the token, certificate or rule of this sender was revoked, has expired or was changed meanwhile"
}

func (endedError) Is(target error) bool { return target == context.Canceled }

// A Held is something that goes on for a sender, such as a request or a connection, and its
// context, on behalf of that sender. It ends, for [ErrEnded], when the sender no longer has what it had at
// the beginning. Release is to be called at the end.
//
// Most requests are over before anybody asks whether their context has ended. So the context
// that can be cancelled is only made when somebody does.
type Held struct {
	context.Context // of the request or connection
	keeper          *Keeper
	claim           Claim
	id              Identity
	ender           Ender

	next, before *Held // keeper.holds guards them

	mu     sync.Mutex // held while joined is set
	joined atomic.Pointer[joined]
}

// An Ender is told when what a Held stands for is to end. It must not wait, nor release.
type Ender interface{ EndOfRights() }

// A joined context ends with its parent and by cancel.
type joined struct {
	context.Context
	cancel context.CancelCauseFunc
}

// holds are all that go on, as a ring around first. What the mutex guards is short: one comes
// and goes with each request.
type holds struct {
	sync.Mutex
	first   Held
	version atomic.Uint64 // of tokens and rules
}

// Hold watches over something that begins for the sender c, which was identified as id: its
// token may be revoked, it or its certificate expire, a reload take its rule away or give it
// other rights. ender may be nil.
func (k *Keeper) Hold(ctx context.Context, c Claim, id Identity, ender Ender) *Held {
	h := &Held{Context: ctx, keeper: k, claim: c, id: id, ender: ender}
	k.holds.Lock()
	h.before, h.next = &k.holds.first, k.holds.first.next
	h.before.next, h.next.before = h, h
	k.holds.Unlock()
	if k.holds.version.Load() != id.version { // changed since the sender was identified
		k.recheck()
	}
	return h
}

// Release notes the end of h. Its ender is not told after that.
func (h *Held) Release() {
	h.keeper.holds.Lock()
	h.withdraw()
	h.keeper.holds.Unlock()
	if j := h.joined.Load(); j != nil {
		j.cancel(nil)
	}
}

// Ended reports whether the sender has lost its rights since.
func (h *Held) Ended() bool {
	j := h.joined.Load()
	return j != nil && errors.Is(context.Cause(j), ErrEnded)
}

// withdraw takes h out of the ring, if it is there. keeper.holds must be held.
func (h *Held) withdraw() {
	if h.next != nil {
		h.before.next, h.next.before = h.next, h.before
		h.next, h.before = nil, nil
	}
}

// join makes the context that can be cancelled.
func (h *Held) join() *joined {
	if j := h.joined.Load(); j != nil {
		return j
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.joined.Load(); j != nil {
		return j
	}
	j := &joined{}
	j.Context, j.cancel = context.WithCancelCause(h.Context)
	h.joined.Store(j)
	return j
}

// Done implements [context.Context].
func (h *Held) Done() <-chan struct{} { return h.join().Done() }

// Err implements [context.Context].
func (h *Held) Err() error {
	if j := h.joined.Load(); j != nil {
		return j.Err()
	}
	return h.Context.Err()
}

// Value implements [context.Context]. Package context finds the cause of an end by it.
func (h *Held) Value(key any) any {
	if key == (principal.Key{}) {
		return &h.id.Principal
	}
	if j := h.joined.Load(); j != nil {
		return j.Value(key)
	}
	return h.Context.Value(key)
}

// changed notes that tokens or rules have changed, and ends what they no longer allow.
func (k *Keeper) changed() {
	k.holds.version.Add(1)
	k.recheck()
}

// recheck ends what senders no longer may have.
func (k *Keeper) recheck() {
	k.endIf(func(h *Held) bool { return !k.stillGives(h) })
}

// expire ends what was allowed up to now.
func (k *Keeper) expire() {
	now := k.now()
	k.endIf(func(h *Held) bool { return !h.id.until.IsZero() && !now.Before(h.id.until) })
}

func (k *Keeper) endIf(over func(*Held) bool) {
	k.holds.Lock()
	defer k.holds.Unlock()
	ended := 0
	for h := k.holds.first.next; h != &k.holds.first; {
		next := h.next
		if over(h) {
			h.withdraw()
			h.join().cancel(ErrEnded)
			if h.ender != nil {
				h.ender.EndOfRights()
			}
			k.ended.WithLabelValues(h.claim.Stream).Inc()
			ended++
		}
		h = next
	}
	if ended > 0 {
		k.log.Info("auth: requests and connections of senders that have lost their rights were ended", "number", ended)
	}
}

// stillGives reports whether the sender of h would be the same one now.
func (k *Keeper) stillGives(h *Held) bool {
	c := h.claim
	g, id, refusal := k.grant(&c)
	if refusal != nil {
		return false
	}
	var ok bool
	id.Tenant, ok = g.tenant(c.Tenant)
	id.Rights, id.Prefix, id.Whole = g.Rights, g.Prefix, g.whole()
	return ok && id.Principal == h.id.Principal && id.Whole == h.id.Whole
}

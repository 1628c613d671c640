package auth

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"varve/internal/principal"
)

// ErrEnded is the cause with which the context of a [Held] ends when its sender loses
// its rights. It matches [context.Canceled], so that code which knows nothing of rights
// treats the sender as a client that has disconnected.
var ErrEnded error = endedError{}

type endedError struct{}

func (endedError) Error() string {
	return "this sender has lost its rights: its token, certificate or rule was revoked, has expired or has changed"
}

func (endedError) Is(target error) bool { return target == context.Canceled }

// A Held is the context of an admitted request or connection. It carries the sender's
// [principal.Principal], and ends with [ErrEnded] when the sender loses its rights.
type Held struct {
	context.Context
	cancel context.CancelCauseFunc
	keeper *Keeper
	claim  Claim
	sender principal.Principal
	whole  bool         // see Identity
	until  atomic.Int64 // see Identity, in milliseconds since 1970, 0 without an end; Recheck changes it
	ender  Ender
}

// An Ender is called when the rights of a sender end. EndOfRights must not block, and
// must not call Release.
type Ender interface{ EndOfRights() }

// holds are the requests and connections that have not been released.
type holds struct {
	version atomic.Uint64 // counts changes of the keeper's grants

	mu struct {
		sync.Mutex // each request locks it twice, so it must never be held for long
		all        map[*Held]struct{}
	}
}

// Hold registers a request or connection with the context ctx, whose sender Identify
// has identified as id by the claim c. The caller must call Release when it ends. ender
// may be nil.
func (k *Keeper) Hold(ctx context.Context, c Claim, id Identity, ender Ender) *Held {
	h := &Held{keeper: k, claim: c, sender: id.Principal, whole: id.Whole, ender: ender}
	h.Context, h.cancel = context.WithCancelCause(ctx)
	h.until.Store(untilMilli(&id))
	k.holds.mu.Lock()
	k.holds.mu.all[h] = struct{}{}
	k.holds.mu.Unlock()
	// A Recheck between Identify and the registration has not seen h.
	if k.holds.version.Load() != id.version && !k.stillGives(h) {
		k.end(h)
	}
	return h
}

// untilMilli is the end of an identity's validity in the form of Held.until.
func untilMilli(id *Identity) int64 {
	if id.until.IsZero() {
		return 0
	}
	return id.until.UnixMilli()
}

// Release ends h. Its ender is not called after that.
func (h *Held) Release() {
	h.keeper.holds.mu.Lock()
	delete(h.keeper.holds.mu.all, h)
	h.keeper.holds.mu.Unlock()
	h.cancel(nil)
}

// Ended reports whether the sender has lost its rights.
func (h *Held) Ended() bool { return context.Cause(h.Context) == ErrEnded }

// Value implements [context.Context].
func (h *Held) Value(key any) any {
	if key == (principal.Key{}) {
		return &h.sender
	}
	return h.Context.Value(key)
}

// Recheck ends all requests and connections whose senders have lost their rights. It must be
// called after each change of tokens, rules or authorities of client certificates.
func (k *Keeper) Recheck() {
	k.holds.version.Add(1)
	k.endIf(func(h *Held) bool { return !k.stillGives(h) })
}

// expire ends all requests and connections whose token or certificate has expired.
func (k *Keeper) expire() {
	now := k.now()
	k.endIf(func(h *Held) bool {
		until := h.until.Load()
		return until != 0 && now.UnixMilli() >= until
	})
}

// endIf ends the requests and connections for which lost returns true. It does not hold
// the mutex while lost runs, which may have to verify a certificate.
func (k *Keeper) endIf(lost func(*Held) bool) {
	k.holds.mu.Lock()
	all := slices.Collect(maps.Keys(k.holds.mu.all))
	k.holds.mu.Unlock()
	ended := 0
	for _, h := range all {
		if lost(h) && k.end(h) {
			ended++
		}
	}
	if ended > 0 {
		k.log.Info("auth: ended requests and connections of senders whose rights were revoked or have expired", "number", ended)
	}
}

// end ends h. It returns false if h was already released.
func (k *Keeper) end(h *Held) bool {
	k.holds.mu.Lock()
	defer k.holds.mu.Unlock()
	if _, there := k.holds.mu.all[h]; !there {
		return false
	}
	delete(k.holds.mu.all, h)
	h.cancel(ErrEnded)
	if h.ender != nil {
		h.ender.EndOfRights()
	}
	k.ended.WithLabelValues(h.claim.Stream).Inc()
	return true
}

// stillGives reports whether the sender of h would now be identified as the same one.
// If so, it updates h.until.
func (k *Keeper) stillGives(h *Held) bool {
	id, refusal := k.identify(&h.claim)
	if refusal != nil || id.Principal != h.sender || id.Whole != h.whole {
		return false
	}
	h.until.Store(untilMilli(&id))
	return true
}

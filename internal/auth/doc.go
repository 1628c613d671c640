// Package auth identifies senders. It knows nothing of HTTP: a [Claim] is what a sender
// shows (a token or a password, a certificate, its address), and a [Keeper] turns it
// into an [Identity] or a [Refusal].
//
// # Tokens
//
// A token is varve_ID_SECRET, with 256 random bits of secret. The token file has its
// SHA-256, not the token. A slow hash, as passwords need, would protect nothing: nobody
// can try 2^256 secrets, however fast the hash, and a slow one would let anyone keep
// the server busy. Hashes are compared in constant time; if the ID is unknown, with a
// hash that no token has.
//
// The command writes the token file and the server reads it. The times of last use are
// in a file of their own, which the server writes, so that neither overwrites changes
// of the other.
package auth

// Package auth finds out who a sender is. It knows nothing of HTTP: a [Claim] is what a
// sender shows (a token or a password, a certificate, the address that it comes from), and
// a [Keeper] turns it into an [Identity] or a [Refusal].
//
// # Tokens
//
// A token is varve_ID_SECRET, with 256 random bits of secret. The token file has its
// SHA-256, not the token. A slow hash, as passwords need, would protect nothing: nobody
// can try 2^256 secrets, however fast, and a slow hash would let anyone keep the server busy.
// The secret's hash is compared in constant time, with a hash that no secret has if the ID
// is unknown.
//
// The command writes the token file and the server reads it. When a token was last used is
// kept in a file of its own, which the server writes, so that neither undoes what the other
// did.
package auth

package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

const (
	tokenMark = "varve_"

	idBytes     = 6
	secretBytes = 32

	// maxSecret bounds the length of a text that is parsed as a token. No token is
	// longer.
	maxSecret = 128
)

var secretText = base64.RawURLEncoding

// newSecret makes a token. It returns the ID by which the token is known, and the text
// that the sender shows.
func newSecret() (id, shown string, hash [sha256.Size]byte) {
	var random [idBytes + secretBytes]byte
	rand.Read(random[:]) // never fails
	id = hex.EncodeToString(random[:idBytes])
	shown = tokenMark + id + "_" + secretText.EncodeToString(random[idBytes:])
	return id, shown, sha256.Sum256([]byte(shown))
}

// IDOf returns the ID in a token as the sender shows it.
func IDOf(shown string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(shown, tokenMark)
	if !ok || len(shown) > maxSecret {
		return "", false
	}
	id, _, ok = strings.Cut(rest, "_")
	return id, ok && len(id) == 2*idBytes
}

// noHash is the hash with which a token of unknown ID is compared.
var noHash [sha256.Size]byte

// shows reports whether a text is the token with the hash.
func shows(text string, hash *[sha256.Size]byte) bool {
	var short [maxSecret]byte
	all := append(short[:0], text...) // allocates nothing for a text that can be a token
	got := sha256.Sum256(all)
	return subtle.ConstantTimeCompare(got[:], hash[:]) == 1
}

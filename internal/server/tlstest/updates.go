package tlstest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
)

// An Updater is a client of TLS 1.3 that sends key updates, which crypto/tls only answers. It writes
// its own records and reads nothing.
type Updater struct {
	conn   net.Conn
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	sent   uint64 // records since the last update
}

// NewUpdater performs the handshake on a connection.
func NewUpdater(conn net.Conn, config *tls.Config) (*Updater, error) {
	var keys bytes.Buffer
	config = config.Clone()
	config.KeyLogWriter, config.MinVersion = &keys, tls.VersionTLS13
	c := tls.Client(conn, config)
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	if suite := c.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		return nil, errors.New("the server has chosen " + tls.CipherSuiteName(suite))
	}
	for line := range strings.Lines(keys.String()) {
		if words := strings.Fields(line); words[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(words[2])
			if err != nil {
				return nil, err
			}
			u := &Updater{conn: conn}
			return u, u.use(secret)
		}
	}
	return nil, errors.New("the handshake has logged no secret")
}

// use derives the keys of a secret (RFC 8446, 7.3).
func (u *Updater) use(secret []byte) error {
	key, err := expand(secret, "key", 16)
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	u.secret, u.sent = secret, 0
	if u.iv, err = expand(secret, "iv", 12); err != nil {
		return err
	}
	u.aead, err = cipher.NewGCM(block)
	return err
}

// expand is HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
func expand(secret []byte, label string, n int) ([]byte, error) {
	label = "tls13 " + label
	return hkdf.Expand(sha256.New, secret, fmt.Sprintf("%c%c%c%s%c", 0, n, len(label), label, 0), n)
}

// The types of what is in a record.
const (
	handshakeRecord = 22
	dataRecord      = 23
)

// record appends a record to p.
func (u *Updater) record(p []byte, kind byte, text string) []byte {
	nonce := bytes.Clone(u.iv)
	counter := binary.BigEndian.Uint64(nonce[4:]) ^ u.sent
	binary.BigEndian.PutUint64(nonce[4:], counter)
	u.sent++
	inner := append([]byte(text), kind)
	head := binary.BigEndian.AppendUint16([]byte{dataRecord, 3, 3}, uint16(len(inner)+u.aead.Overhead()))
	return u.aead.Seal(append(p, head...), nonce, inner, head)
}

// Data returns a record with a text.
func (u *Updater) Data(text string) []byte { return u.record(nil, dataRecord, text) }

// Message returns a record with a part of a handshake message.
func (u *Updater) Message(part string) []byte { return u.record(nil, handshakeRecord, part) }

// Update returns a key update that asks the server for one.
func (u *Updater) Update() ([]byte, error) {
	const keyUpdate, requested = 24, 1
	p := u.record(nil, handshakeRecord, string([]byte{keyUpdate, 0, 0, 1, requested}))
	next, err := expand(u.secret, "traffic upd", sha256.Size)
	if err != nil {
		return nil, err
	}
	return p, u.use(next)
}

package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/principal"
	"varve/internal/safefile"
)

// Bounds on a token file.
const (
	maxTokens    = 10_000
	maxTokenFile = 16 << 20

	tokenFileVersion = 1
)

// A Token is an entry of a token file.
type Token struct {
	ID      string
	Grant   Grant
	Created time.Time
	Expires time.Time // zero: never
	Used    time.Time // when it was last used, approximately; zero: never

	hash [sha256.Size]byte
}

func (t *Token) expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// A tokenEntry is a token as in the file.
type tokenEntry struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Hash    string     `json:"sha256"`
	Role    string     `json:"role"`
	Tenants []string   `json:"tenants"`
	Prefix  string     `json:"prefix,omitempty"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"`
}

type tokenFile struct {
	Version int          `json:"version"`
	Tokens  []tokenEntry `json:"tokens"`
}

// parseTokens parses a token file. It is strict: an entry that it does not understand
// may have been meant to restrict something.
func parseTokens(text []byte) ([]Token, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var f tokenFile
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text follows the end of the JSON")
	}
	if f.Version != tokenFileVersion {
		return nil, fmt.Errorf("version %d; this version of Varve reads %d", f.Version, tokenFileVersion)
	}
	if len(f.Tokens) > maxTokens {
		return nil, fmt.Errorf("it has %d tokens; want at most %d", len(f.Tokens), maxTokens)
	}
	tokens := make([]Token, len(f.Tokens))
	ids := map[string]bool{}
	for i, e := range f.Tokens {
		t, err := e.token()
		if err == nil && ids[t.ID] {
			err = fmt.Errorf("id %s occurs twice", t.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("tokens[%d]: %w", i, err)
		}
		ids[t.ID] = true
		tokens[i] = t
	}
	return tokens, nil
}

func (e *tokenEntry) token() (t Token, err error) {
	t = Token{ID: e.ID, Created: e.Created, Grant: Grant{Name: e.Name, Tenants: e.Tenants, Prefix: e.Prefix}}
	if id, err := hex.DecodeString(e.ID); err != nil || len(id) != idBytes || e.ID != strings.ToLower(e.ID) {
		return t, fmt.Errorf("id %.40q: want %d hexadecimal digits", e.ID, 2*idBytes)
	}
	hash, err := hex.DecodeString(e.Hash)
	if err != nil || len(hash) != sha256.Size {
		return t, fmt.Errorf("sha256: want %d hexadecimal digits", 2*sha256.Size)
	}
	copy(t.hash[:], hash)
	if t.hash == noHash {
		return t, errors.New("sha256: it is all zeros")
	}
	if e.Expires != nil {
		t.Expires = *e.Expires
	}
	if t.Grant.Rights, err = principal.ParseRights(e.Role); err != nil {
		return t, err
	}
	return t, t.Grant.check()
}

// formatTokens is the inverse of parseTokens.
func formatTokens(tokens []Token) []byte {
	f := tokenFile{Version: tokenFileVersion, Tokens: []tokenEntry{}}
	for _, t := range tokens {
		e := tokenEntry{ID: t.ID, Name: t.Grant.Name, Hash: hex.EncodeToString(t.hash[:]), Role: t.Grant.Rights.String(),
			Tenants: t.Grant.Tenants, Prefix: t.Grant.Prefix, Created: t.Created}
		if !t.Expires.IsZero() {
			e.Expires = &t.Expires
		}
		f.Tokens = append(f.Tokens, e)
	}
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		panic(err) // texts and times always marshal
	}
	return append(text, '\n')
}

// readTokens reads a token file. A missing file has no tokens.
func readTokens(path string) ([]Token, error) {
	text, err := safefile.ReadRegular(path, maxTokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	tokens, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w", path, err)
	}
	return tokens, nil
}

// replace writes a file that only its owner may read, or that keeps the permissions of
// the file it replaces. safefile.Replace would make it readable for others.
func replace(path string, text []byte) error {
	next := path + safefile.Suffix
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := safefile.CreateOwned(next, os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if old, statErr := os.Stat(path); statErr == nil {
		if err = safefile.Adopt(f, old); err != nil {
			err = fmt.Errorf("keep the owner of the file; run this command as the user of the server: %w", err)
		}
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return safefile.SyncDir(vfs.Default, filepath.Dir(path))
}

// change changes a token file under a lock against other processes.
func change(path string, with func([]Token) ([]Token, error)) error {
	if f, err := safefile.CreateOwned(path+".lock", os.O_WRONLY, 0o600); err == nil {
		_ = f.Close() // the owner of the directory must be able to lock it too
	}
	lock, err := vfs.Default.Lock(path + ".lock")
	switch {
	case errors.As(err, new(*fs.PathError)):
		return fmt.Errorf("lock the token file: %w; run this command as the user of the server", err)
	case err != nil:
		return fmt.Errorf("another command is changing %s; try again: %w", path, err)
	}
	defer lock.Close()
	tokens, err := readTokens(path)
	if err != nil {
		return err
	}
	if tokens, err = with(tokens); err != nil {
		return err
	}
	if err := replace(path, formatTokens(tokens)); err != nil {
		return fmt.Errorf("write the token file: %w", err)
	}
	return nil
}

// Create adds a token to a file and returns the text that its sender shows. That text
// is stored nowhere.
func Create(path string, g Grant, expires, now time.Time) (id, shown string, err error) {
	if g.Tenants == nil {
		g.Tenants = DefaultTenants(g.Rights)
	}
	if g.Rights == 0 {
		return "", "", errors.New("a token needs a role; use --role")
	}
	if err := g.check(); err != nil {
		return "", "", err
	}
	id, shown, hash := newSecret()
	err = change(path, func(tokens []Token) ([]Token, error) {
		if len(tokens) >= maxTokens {
			return nil, fmt.Errorf("%s already has %d tokens; revoke some", path, len(tokens))
		}
		for _, t := range tokens {
			if t.Grant.Name == g.Name && g.Name != "" {
				return nil, fmt.Errorf("token %s already exists, with the id %s; choose another name, or revoke it", g.Name, t.ID)
			}
		}
		return append(tokens, Token{ID: id, Grant: g, Created: now.UTC().Truncate(time.Second), Expires: expires, hash: hash}), nil
	})
	return id, shown, err
}

// Revoke removes the token with a name or ID from a file.
func Revoke(path, which string) (revoked Token, err error) {
	err = change(path, func(tokens []Token) ([]Token, error) {
		at := slices.IndexFunc(tokens, func(t Token) bool { return t.ID == which || t.Grant.Name == which && which != "" })
		if at < 0 {
			return nil, fmt.Errorf("%s has no token with the name or id %.100q; varve token list shows them", path, which)
		}
		revoked = tokens[at]
		return slices.Delete(tokens, at, at+1), nil
	})
	return revoked, err
}

// List returns the tokens of a file.
func List(path string) ([]Token, error) {
	tokens, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	used := readUses(path)
	for i := range tokens {
		tokens[i].Used = used[tokens[i].ID]
	}
	return tokens, nil
}

// usesPath is the file next to a token file with the times when tokens were last used.
func usesPath(path string) string { return path + ".used" }

// readUses reads when tokens were last used. If the file is missing or damaged, no uses
// are known.
func readUses(path string) map[string]time.Time {
	uses := map[string]time.Time{}
	text, err := safefile.ReadRegular(usesPath(path), maxTokenFile)
	if err != nil || json.Unmarshal(text, &uses) != nil {
		return map[string]time.Time{}
	}
	return uses
}

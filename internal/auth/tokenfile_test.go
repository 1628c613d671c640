package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/principal"
	"varve/internal/safefile"
)

// entryText is a token file with one entry, with old replaced by new.
func entryText(old, new string) string {
	const text = `{"version":1,"tokens":[{"id":"0123456789ab","name":"a","sha256":"` +
		`0000000000000000000000000000000000000000000000000000000000000001","role":"read","tenants":["default"],"created":"2026-05-04T12:00:00Z"}]}`
	return strings.Replace(text, old, new, 1)
}

// A token file with anything unknown in it is refused as a whole. The error names the
// place.
func TestTokenFileWithFaults(t *testing.T) {
	const entry = `{"id":"0123456789ab","name":"b","sha256":"0000000000000000000000000000000000000000000000000000000000000002","role":"read","tenants":["default"],"created":"2026-05-04T12:00:00Z"}`
	const hash = `0000000000000000000000000000000000000000000000000000000000000001`
	tenants := strings.TrimSuffix(strings.Repeat(`"a",`, maxTenants+1), ",")
	for _, tc := range []struct{ old, new, want string }{
		{`}]}`, `}]} `, ""},
		{`}]}`, `}]} {}`, "text follows the end of the JSON"},
		{`}]}`, `}]}]`, "text follows the end of the JSON"},
		{`"version":1`, `"version":2`, "version 2; this version of Varve reads 1"},
		{`"version":1`, `"version":0`, "version 0"},
		{`"name"`, `"nam"`, `unknown field "nam"`},
		{`}]}`, `},` + entry + `]}`, "tokens[1]: id 0123456789ab occurs twice"},
		{`}]}`, `},` + strings.Replace(entry, "0123456789ab", "0123456789ac", 1) + `]}`, ""},
		{`0123456789ab`, `0123456789`, `tokens[0]: id "0123456789": want 12 hexadecimal digits`},
		{`0123456789ab`, `0123456789abcd`, "want 12 hexadecimal digits"},
		{`0123456789ab`, `0123456789AB`, "want 12 hexadecimal digits"},
		{`0123456789ab`, `0123456789ag`, "want 12 hexadecimal digits"},
		{hash, hash[2:], "sha256: want 64 hexadecimal digits"},
		{hash, hash + "00", "sha256: want 64 hexadecimal digits"},
		{hash, "xx" + hash[2:], "sha256: want 64 hexadecimal digits"},
		{hash, strings.Repeat("0", 64), "sha256: it is all zeros"},
		{`"read"`, `"reader"`, `role "reader"`},
		{`"read"`, `""`, "no role"},
		{`["default"]`, `[]`, "tenants: there are 0; want 1 to 1000"},
		{`["default"]`, `[` + tenants + `]`, "tenants: there are 1001; want 1 to 1000"},
		{`["default"]`, `[` + strings.TrimPrefix(tenants, `"a",`) + `]`, ""},
		{`["default"]`, `["*"]`, ""},
		{`["default"]`, `["*","*"]`, "stands for all"},
		{`"name":"a"`, `"name":"` + strings.Repeat("a", maxName) + `"`, ""},
		{`"name":"a"`, `"name":"` + strings.Repeat("a", maxName+1) + `"`, "want at most 100 bytes of text"},
		{`"name":"a"`, `"name":"a\u001fb"`, "bytes of text"},
		{`"name":"a"`, `"name":"a b"`, ""},
		{`"name":"a"`, `"name":"a\u007f"`, "bytes of text"},
		{`"name":"a"`, `"name":"a\ud800"`, "bytes of text"},
		{`"created"`, `"prefix":"` + strings.Repeat("p", maxPrefix) + `","created"`, ""},
		{`"created"`, `"prefix":"` + strings.Repeat("p", maxPrefix+1) + `","created"`, "prefix: it has 1025 bytes; want at most 1024"},
	} {
		path := filepath.Join(t.TempDir(), "tokens.json")
		text := entryText(tc.old, tc.new)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := List(path)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%.60q: %v, want %q", tc.new, err, tc.want)
		}
	}
}

// The number of tokens and the size of their file are bounded.
func TestTokenFileBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := make([]Token, maxTokens-1)
	for i := range tokens {
		tokens[i] = Token{ID: fmt.Sprintf("%012x", i), Grant: Grant{Rights: principal.Read, Tenants: []string{"default"}}, Created: noon}
		tokens[i].hash[0] = 1
	}
	if err := replace(path, formatTokens(tokens)); err != nil {
		t.Fatal(err)
	}
	last, _ := create(t, path, Grant{Name: "last", Rights: principal.Read}, time.Time{})
	if _, _, err := Create(path, Grant{Name: "more", Rights: principal.Read}, time.Time{}, noon); err == nil || !strings.Contains(err.Error(), "already has 10000 tokens; revoke some") {
		t.Errorf("one more: %v", err)
	}
	full, err := List(path)
	if err != nil || len(full) != maxTokens {
		t.Fatalf("%d tokens, %v", len(full), err)
	}
	more := full[0]
	more.ID = "ffffffffffff"
	if err := replace(path, formatTokens(append(full, more))); err != nil {
		t.Fatal(err)
	}
	if _, err := List(path); err == nil || !strings.Contains(err.Error(), "it has 10001 tokens; want at most 10000") {
		t.Errorf("too many: %v", err)
	}
	for size, want := range map[int64]string{maxTokenFile: "invalid character", maxTokenFile + 1: "bytes; want at most"} {
		if err := os.WriteFile(path, []byte("!"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if _, err := List(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v, want %q", size, err, want)
		}
	}
	if last == "" {
		t.Error("a token without an id")
	}
}

// A command that rewrites the file keeps what the file says about tokens. Names are
// unique, and tokens without a name are distinguished by their ids.
func TestTokenFileKeepsTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	ends := noon.Add(time.Hour)
	id, _ := create(t, path, Grant{Name: "a", Rights: principal.Read | principal.Write, Prefix: "p", Tenants: []string{"x", "y"}}, ends)
	first, _ := create(t, path, Grant{Rights: principal.Read}, time.Time{})
	second, _ := create(t, path, Grant{Rights: principal.Admin}, time.Time{})
	if _, _, err := Create(path, Grant{Name: "a", Rights: principal.Read}, time.Time{}, noon); err == nil || !strings.Contains(err.Error(), "token a already exists, with the id "+id) {
		t.Errorf("a name that is taken: %v", err)
	}
	tokens, err := List(path)
	if err != nil || len(tokens) != 3 {
		t.Fatal(tokens, err)
	}
	if a := tokens[0]; a.ID != id || !a.Expires.Equal(ends) || !a.Created.Equal(noon) || !reflect.DeepEqual(a.Grant, Grant{Name: "a", Rights: principal.Read | principal.Write, Prefix: "p", Tenants: []string{"x", "y"}}) {
		t.Errorf("%+v", a)
	}
	if !tokens[1].Expires.IsZero() || tokens[1].Grant.Tenants[0] != principal.Default || tokens[2].Grant.Tenants[0] != AnyTenant {
		t.Errorf("%+v", tokens[1:])
	}
	if _, err := Revoke(path, ""); err == nil {
		t.Error("a token without a name is revoked by none")
	}
	if revoked, err := Revoke(path, second); err != nil || revoked.ID != second {
		t.Errorf("revoked %+v, %v", revoked, err)
	}
	if tokens, err = List(path); err != nil || len(tokens) != 2 || tokens[1].ID != first {
		t.Errorf("after that: %+v, %v", tokens, err)
	}
}

// A command that cannot write the file reports that, and leaves the old file.
func TestTokenFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens.json")
	create(t, path, Grant{Name: "a", Rights: principal.Read}, time.Time{})
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A non-empty directory occupies the path of the new file.
	if err := os.MkdirAll(filepath.Join(path+safefile.Suffix, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Create(path, Grant{Name: "b", Rights: principal.Read}, time.Time{}, noon); err == nil || !strings.Contains(err.Error(), "write the token file") {
		t.Errorf("create: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file has %s, %v", after, err)
	}
	if _, _, err := Create(filepath.Join(dir, "none", "tokens.json"), Grant{Name: "b", Rights: principal.Read}, time.Time{}, noon); err == nil {
		t.Error("a token in a directory that is not there")
	}
}

// A command does not replace a file that it cannot read: its tokens would be lost.
func TestDamagedTokenFileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	const damaged = `{"version": 1, "tokens": [`
	if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Create(path, Grant{Name: "b", Rights: principal.Read}, time.Time{}, noon); err == nil || !strings.Contains(err.Error(), "token file "+path) {
		t.Errorf("create: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != damaged {
		t.Errorf("the file has %s, %v", after, err)
	}
}

// Only a lock that another command holds is reported as held.
func TestTokenFileLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	create(t, path, Grant{Name: "a", Rights: principal.Read}, time.Time{})
	lock, err := vfs.Default.Lock(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Revoke(path, "a"); err == nil || !strings.Contains(err.Error(), "another command is changing "+path+"; try again") {
		t.Errorf("the lock is held: %v", err)
	}
	if err := errors.Join(lock.Close(), os.Remove(path+".lock"), os.Mkdir(path+".lock", 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Revoke(path, "a"); err == nil || !strings.HasPrefix(err.Error(), "lock the token file: ") || strings.Contains(err.Error(), "another command") {
		t.Errorf("the lock cannot be opened: %v", err)
	}
}

// If the file with the last uses is damaged, they are unknown. It is written again
// after a failed attempt.
func TestLastUseWithFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	id, shown := create(t, path, Grant{Name: "a", Rights: principal.Read}, time.Time{})
	used := func() time.Time {
		t.Helper()
		tokens, err := List(path)
		if err != nil || len(tokens) != 1 {
			t.Fatal(tokens, err)
		}
		return tokens[0].Used
	}
	if err := os.MkdirAll(filepath.Join(usesPath(path), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	h := hold(t, path, DefaultConfig())
	if got := h.reason(Claim{Authorization: "Bearer " + shown}); got != "" || !used().IsZero() {
		t.Errorf("%s, used %v", got, used())
	}
	h.writeUses()
	if log := h.log.String(); !strings.Contains(log, "cannot store when tokens were last used") {
		t.Error(log)
	}
	if err := os.RemoveAll(usesPath(path)); err != nil {
		t.Fatal(err)
	}
	if h.writeUses(); !used().Equal(noon) {
		t.Errorf("written again: %v", used())
	}
	for _, text := range []string{`{"` + id + `":"2026-05-04T12:00:00Z"`, `{"` + id + `":7}`, ""} {
		if err := os.WriteFile(usesPath(path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if !used().IsZero() {
			t.Errorf("%q: %v", text, used())
		}
	}
	for size, want := range map[int]time.Time{maxTokenFile: noon, maxTokenFile + 1: {}} {
		text := `{"` + id + `":"2026-05-04T12:00:00Z"}`
		if err := os.WriteFile(usesPath(path), []byte(text+strings.Repeat(" ", size-len(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		if !used().Equal(want) {
			t.Errorf("a file of %d bytes: %v, want %v", size, used(), want)
		}
	}
	if err := os.WriteFile(usesPath(path), []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h.writeUses() // nothing has changed since it was written
	if text, err := os.ReadFile(usesPath(path)); err != nil || string(text) != `{}` {
		t.Errorf("%s, %v", text, err)
	}
	h.now = noon.Add(time.Second)
	h.reason(Claim{Authorization: "Bearer " + shown})
	var uses map[string]time.Time
	h.writeUses()
	if text, err := os.ReadFile(usesPath(path)); err != nil || json.Unmarshal(text, &uses) != nil || len(uses) != 1 || !uses[id].Equal(h.now) {
		t.Errorf("%s, %v", text, err)
	}
}

// A running server notices changes of the file within seconds. It logs once that a file
// cannot be read, and ends requests whose token has expired. It writes the last uses
// every ten minutes.
func TestRunReadsTheTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, shown := create(t, path, Grant{Name: "a", Rights: principal.Read}, time.Time{})
	synctest.Test(t, func(t *testing.T) {
		h := hold(t, path, DefaultConfig())
		h.Keeper.now = time.Now // that of the bubble
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); h.Run(ctx) }()
		after := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		_, second := create(t, path, Grant{Name: "b", Rights: principal.Read}, time.Now().Add(time.Hour))
		after(2 * time.Second)
		claim := Claim{Stream: "http", Authorization: "Bearer " + second}
		id, err := h.Identify(claim)
		if err != nil {
			t.Fatal(err)
		}
		held := h.Hold(t.Context(), claim, id, nil)
		defer held.Release()
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		const fault = "cannot reload the token file"
		for times, text := range []string{"{", "[{"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			after(5 * time.Second)
			if got := strings.Count(h.log.String(), fault); got != times+1 {
				t.Errorf("%q: told %d times of %d faults", text, got, times+1)
			}
		}
		if held.Ended() || h.reason(Claim{Authorization: "Bearer " + shown}) != "" {
			t.Error("a damaged file took rights away")
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Second)
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Second)
		if got := strings.Count(h.log.String(), fault); got != 3 {
			t.Errorf("told %d times of 3 faults", got)
		}
		if _, err := os.Stat(usesPath(path)); err == nil {
			t.Error("the last uses were written at once")
		}
		after(11 * time.Minute)
		if uses := readUses(path); len(uses) != 2 {
			t.Errorf("after ten minutes the file has %v", uses)
		}
		if held.Ended() {
			t.Error("what has not expired has ended")
		}
		after(time.Hour)
		if !held.Ended() {
			t.Error("what has expired goes on")
		}
		cancel()
		<-ended
	})
}

// A token that is in the file before and after a change keeps its last use.
func TestLastUseOutlivesAChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	id, shown := create(t, path, Grant{Name: "a", Rights: principal.Read}, time.Time{})
	h := hold(t, path, DefaultConfig())
	if got := h.reason(Claim{Authorization: "Bearer " + shown}); got != "" {
		t.Fatal(got)
	}
	create(t, path, Grant{Name: "b", Rights: principal.Read}, time.Time{})
	if h.refresh(stateOf(path)) != nil {
		t.Fatal(h.log)
	}
	if uses := h.uses(); len(uses) != 1 || !uses[id].Equal(noon) {
		t.Errorf("%v", uses)
	}
}
